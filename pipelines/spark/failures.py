"""Spark's failures in plain words, with the exit code that a scheduler needs."""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

from pipelines.errors import InfrastructureError, OncelakeError, SourceError
from pipelines.spark.store_outages import SECTION as OUTAGE_SECTION
from pipelines.spark.store_outages import asked_for, store_outage
from pipelines.spark.store_refusals import SECTION, store_refusal

_LENGTH: Final = 500
# What Java writes of an exception, and of what it came from: a class, and mostly what it says.
_CAUSE: Final = re.compile(r"^(?:Caused by: |: )(?P<said>[^\n]*?:\s+(?!at )\S[^\n]*)", re.MULTILINE)
# What Python writes of an exception: the way to it, indented, and then the exception.
_TRACEBACK: Final = re.compile(
    r"^.*Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)+(?P<said>\S.*)", re.MULTILINE
)
TABLE_IS_GONE: Final = (
    r"DELTA_STREAMING_TRAILING_COMMIT_MISSING|DELTA_LOG_FILE_NOT_FOUND|FAILED_READ_FILE\.FILE_NOT_EXIST"
)
"""What Spark says if the log or the files of a table are gone that a stream has to read."""

# Hadoop keeps a checksum beside each file that is not on an object store.
_OTHER_BYTES: Final = re.compile(r"ChecksumException: Checksum error: (.+?/_delta_log/[0-9]{20}\.json)\b")
# Delta reads its checkpoints as any Parquet files, and says so of those that are gone, too.
_CHECKPOINT: Final = re.compile(r"while reading file (\S+/_delta_log/(?:_sidecars/)?[^/\s]+\.parquet)\b")
# What is read of a Parquet file that is not what was written; a store that does not answer has other words.
_NOT_AS_WRITTEN: Final = re.compile(
    r"ChecksumException|is not a Parquet file|Could not read footer|could not verify page integrity"
    r"|CRC checksum verification failed|ParquetDecodingException|can not read class org\.apache\.parquet"
    # A length that is none, in what has no checksum: no store answers so.
    r"|(?:IllegalArgument|IndexOutOfBounds|ArrayIndexOutOfBounds|NegativeArraySize|BufferUnderflow)Exception[^\n]*"
    r"(?:\n\s+at [^\n]*){0,8}\n\s+at org\.apache\.(?:parquet|spark\.sql\.execution\.datasources\.parquet)\."
)
# What Spark, or the file system below it, says of a file that the log names and that is not there.
_NOT_THERE: Final = re.compile(
    r"FAILED_READ_FILE\.FILE_NOT_EXIST|FileNotFoundException: (?:File \S|No such file or directory)"
)
_DATA_FILE: Final = re.compile(r"((?:[a-z][a-z0-9]*:)?/[^\s,\]]+?\.parquet)\b")
_DAMAGED_SECTION: Final = "See docs/runbook.md, 'A data file is damaged'"
# A file of the state of a stream, below its checkpoint.
_OF_STATE: Final = re.compile(r"(?:Checksum error: |[Ff]ile(?: of)? )(\S[^\n]*?/state/[0-9]+/[^\s,]+)")
_STATE: Final = re.compile(r"CANNOT_LOAD_STATE_STORE|MISSING_STATE_DIRECTORY|RocksDBException")
# What says that the store has answered, and that its answer is not what was written. One that does not answer
# has other words; so has a task without memory or disk.
_NOT_READABLE: Final = re.compile(
    r"ChecksumException|CHECKSUM_VERIFICATION_FAILED|MISSING_STATE_DIRECTORY|UNEXPECTED_FILE_SIZE"
    r"|CANNOT_READ_(?!STREAMING_STATE_FILE)|FileNotFoundException: (?:File \S|No such file)"
    r"|AUTO_SNAPSHOT_REPAIR_FAILED|INVALID_CHANGE_LOG_READER_VERSION"
    r"|Stream is corrupted|Stream ended prematurely|reached end of stream after reading|ZipException"
    r"|end of ZLIB input|EOFException\s+at (?:java\.base/)?java\.io\.DataInputStream"
    r"|RocksDBException: (?:Corruption|block checksum)"
)
_UNTRUSTED: Final = {
    TABLE_IS_GONE: (
        "log or data files that the next micro-batch needs were deleted from the table that it reads."
        " See docs/runbook.md, 'A foreign checkpoint'"
    ),
    r"KAFKA_DATA_LOSS|failOnDataLoss|OffsetOutOfRange|Some data may have been lost": (
        "records were deleted from Kafka before they were read, or the topic was recreated."
        " See docs/runbook.md, 'Offsets are gone'"
    ),
    "UnknownTopicOrPartition": (
        "the topic was deleted, or has lost partitions, or it is not the one this stream began with."
        " See docs/runbook.md, 'The topic was recreated'"
    ),
    "STREAMING_CHECKPOINT_MISSING_METADATA_FILE": (
        "the checkpoint is not the one this stream began with. See docs/runbook.md, 'A foreign checkpoint'"
    ),
    "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE": (
        "the table is not the one that this checkpoint has read. See docs/runbook.md, 'A foreign checkpoint'"
    ),
}

# What Kafka's client in Java raises if brokers refuse it, and what to look at.
_REFUSED: Final = {
    r"SaslAuthenticationException": (
        "the cluster refuses the login: check user and password in kafka.secrets and sasl.mechanism in"
        " kafka.options, and whether the password was changed or has expired; of a token, check issuer and"
        " audience"
    ),
    r"login\.LoginException": (
        "the Kafka client cannot log in: check sasl.jaas.config in kafka.secrets; with OAUTHBEARER, whether"
        " sasl.oauthbearer.token.endpoint.url answers, and knows clientId and clientSecret"
    ),
    r"SslAuthenticationException|SSLHandshakeException": (
        "the TLS handshake with the cluster fails: check ssl.truststore.* and ssl.keystore.* in kafka.options"
        " and kafka.secrets, and whether a certificate has expired, is missing or is for another host"
    ),
    r"\w+AuthorizationException": (
        "the cluster does not allow it. For what each job needs see docs/security.md, 'ACLs'"
    ),
}


class StateLost(SourceError):
    """The state of a stream cannot be read, so the stream has to begin anew."""


def cluster_refusal(text: str) -> str | None:
    """Return what it means that a cluster refuses a client, by the text of a failure; None if it does not.

    Args:
        text: Names the exceptions of Kafka's client in Java.
    """
    return next((meaning for pattern, meaning in _REFUSED.items() if re.search(pattern, text)), None)


def is_passing(failure: BaseException) -> bool:
    """Return whether a query lost a micro-batch only because a table property was changed meanwhile."""
    return any("DELTA_METADATA_CHANGED" in text for text in texts(failure))


def explain_stream_failure(failure: BaseException) -> OncelakeError:
    """Turn the failure of a streaming query into an error that says what to do.

    Returns:
        A `SourceError` if the source can no longer be trusted, else an `InfrastructureError`. In both
        cases the state is complete, and a later run continues where this one stopped.
    """
    # First: of a file that could not be fetched, Spark and Parquet may say that it cannot be read.
    of_lake = _outage_in, damaged_log_in, _damaged_state_in, damaged_data_in
    if explained := next(filter(None, (explain(failure) for explain in of_lake)), None):
        return explained
    whole = "\n".join(texts(failure))
    for pattern, meaning in _UNTRUSTED.items():
        if match := re.search(pattern, whole):
            line_of_match = next(line for line in whole.splitlines() if match[0] in line)
            return SourceError(f"{meaning}. Spark says: {first_line(line_of_match)}")
    if "DELTA_SCHEMA_CHANGED" in whole:
        return InfrastructureError(
            "the stream stopped: the table that it reads has a new column."
            " Start the job again: it continues with the new column"
        )
    if refusal := cluster_refusal(whole):
        return InfrastructureError(
            f"the stream stopped: {refusal}. Then start the job again: it continues where it stopped. Kafka"
            f" says: {cause(failure)}"
        )
    if refusal := store_refusal(whole):
        return InfrastructureError(
            f"the stream stopped: {refusal}. Then start the job again: it continues where it stopped."
            f" {SECTION}. The store says: {cause(failure)}"
        )
    return InfrastructureError(
        f"the stream stopped: {cause(failure)}. Fix the cause and start the job again: it continues where it"
        " stopped"
    )


def explain_failure(failure: BaseException) -> OncelakeError | None:
    """Return what a failure of Spark, or of its JVM, means if the cause is in the lake; None if it is not."""
    of_lake = _outage_in, damaged_log_in, damaged_data_in, lost_data_in
    if explained := next(filter(None, (explain(failure) for explain in of_lake)), None):
        return explained
    if refusal := store_refusal("\n".join(texts(failure))):
        return InfrastructureError(
            f"{refusal}. Then start the job again. {SECTION}. The store says: {cause(failure)}"
        )
    return None


def _outage_in(failure: BaseException) -> InfrastructureError | None:
    """Return what to do if the object store of the lake does not answer; None if it does."""
    whole = "\n".join(texts(failure))
    outage, where = store_outage(whole), asked_for(whole)
    if outage is None:
        return None
    return InfrastructureError(
        f"{where or 'lake.root'}: {outage}. Start the job again once the store answers: a stream continues"
        f" where it stopped, a batch job changes nothing, or completes what it has begun. {OUTAGE_SECTION}."
        f" The store says: {cause(failure)}"
    )


def damaged_log_in(failure: BaseException) -> SourceError | None:
    """Return the refusal of a file of a log that Spark or Delta failed to read; None if it is none."""
    whole = "\n".join(texts(failure))
    if commit := _OTHER_BYTES.search(whole):
        return damaged_commit(commit[1])
    if (checkpoint := _CHECKPOINT.search(whole)) and _NOT_AS_WRITTEN.search(whole):
        return SourceError(
            f"{unquote(checkpoint[1])}: the file of a checkpoint of Delta's log is cut off, or has other"
            " bytes than when it was written. The commits before it say the same. Nothing was changed. See"
            " docs/runbook.md, 'A checkpoint of a log is damaged'"
        )
    return None


def damaged_data_in(failure: BaseException) -> SourceError | None:
    """Return the refusal of a data file of a table that is not as it was written; None if it is none."""
    file = _data_file_of(failure, _NOT_AS_WRITTEN)
    if file is None:
        return None
    return SourceError(
        f"{file}: a data file of the table is cut off, or has other bytes than when it was written,"
        f" as after a crash of the machine or a fault of a disk. Nothing was changed. {_DAMAGED_SECTION}"
    )


def lost_data_in(failure: BaseException) -> SourceError | None:
    """Return the refusal of a data file of a table that is not there; None if it is none.

    Of a stream that is behind, the files may have been removed as they should; it says so by itself.
    """
    file = _data_file_of(failure, _NOT_THERE)
    if file is None:
        return None
    return SourceError(
        f"{file}: a data file of the table is gone: it was deleted by hand, by a rule of the store, or by a"
        f" VACUUM that was not that of maintain. {_DAMAGED_SECTION}"
    )


def _data_file_of(failure: BaseException, said: re.Pattern[str]) -> str | None:
    """Return the data file that a failure names; None if there is none, or something else is said of it."""
    whole = "\n".join(texts(failure))
    files = (match[1] for match in _DATA_FILE.finditer(whole))
    file = next((each for each in files if "/_delta_log/" not in each), None)
    return unquote(file) if file and said.search(whole) else None


def _damaged_state_in(failure: BaseException) -> StateLost | None:
    """Return the refusal of a file of a stream's state that is gone or damaged; None if it is none.

    A store that does not answer for a while is no reason to begin anew.
    """
    whole = "\n".join(texts(failure))
    file = _OF_STATE.search(whole)
    if not (file or _STATE.search(whole)) or not _NOT_READABLE.search(whole):
        return None
    where = f"{file[1]}: the file of" if file else "a file of"
    return StateLost(
        f"{where} the state of the stream is gone, empty or cut off, or has other bytes than when it was"
        " written, as after a crash of the machine or a full disk. Nothing of this micro-batch was written."
        f" Spark says: {cause(failure)}"
    )


def damaged_commit(path: object) -> SourceError:
    """Return the refusal of the file of a commit."""
    return SourceError(
        f"{path}: the file of a commit is empty or cut off, or has other bytes than when it was written, as"
        " after a crash of the machine or a full disk. What it had committed is lost to readers. Nothing"
        " was changed. See docs/runbook.md, 'A commit is damaged'"
    )


def texts(failure: BaseException) -> Iterator[str]:
    """Yield the text of a failure and of its causes in the JVM, which PySpark keeps as an attribute."""
    cause: BaseException | None = failure
    while cause is not None:
        yield str(cause)
        cause = getattr(cause, "_cause", None)


def cause(failure: BaseException) -> str:
    """Return what an error of Spark, of its JVM or of its Python workers came from, in one line.

    Named is the innermost cause with a message.
    """
    innermost = ([text for text in texts(failure) if text.strip()] or [""])[-1]
    if raised := [match["said"] for match in _TRACEBACK.finditer(innermost)]:
        return first_line(raised[-1])
    causes = [" ".join(match["said"].split()) for match in _CAUSE.finditer(innermost)]
    return first_line((causes or [innermost])[-1])


def first_line(text: str) -> str:
    """Return the first line that says something, cut to a readable length."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else "no message")[:_LENGTH]
