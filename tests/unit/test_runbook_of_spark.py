"""What jobs say of a failure of Spark leads to an entry of the runbook, which says what to do."""

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest

from pipelines.errors import OncelakeError
from pipelines.spark.failures import cluster_refusal, damaged_commit, explain_failure, explain_stream_failure
from pipelines.spark.store_refusals import store_refusal
from tests.support.runbook import ROOT, anchor, is_said, leads_to, section

MODULES: Final = ("failures.py", "store_refusals.py")
ERRORS: Final = {"SourceError", "InfrastructureError", "StateLost"}
LOG: Final = "file:/lake/bronze/flights/_delta_log"
DATA: Final = "s3a://lake/bronze/part-1.parquet"
KAFKA: Final = "org.apache.kafka.common.errors"

LOGIN, RIGHTS = "The cluster refuses the login", "Rights on the cluster"
FOREIGN, DATA_FILE = "A foreign checkpoint", "A data file is damaged"
STORE, FAILED = "The object store refuses the job", "A stream has failed"
OUTAGE: Final = "The object store does not answer"

# What Spark, or what it calls, says while a stream runs.
OF_STREAMS: Final = {
    "[DELTA_STREAMING_TRAILING_COMMIT_MISSING] It is missing.": FOREIGN,
    "[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Some data may have been lost.": "Offsets are gone",
    f"{KAFKA}.UnknownTopicOrPartitionException: no such topic": "The topic was recreated",
    "[STREAMING_CHECKPOINT_MISSING_METADATA_FILE] It is missing.": FOREIGN,
    "[DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE] It is another one.": FOREIGN,
    f"ChecksumException: Checksum error: {LOG}/{2:020d}.json at 1": "A commit is damaged",
    (
        f"while reading file {LOG}/{10:020d}.checkpoint.parquet\nCaused by: it is not a Parquet file"
    ): "A checkpoint of a log is damaged",
    f"reading file {DATA}\nCaused by: Could not read footer": DATA_FILE,
    (
        "[CANNOT_LOAD_STATE_STORE] An error occurred.\nCaused by: java.io.IOException: Stream is corrupted"
    ): "The state of a stream is damaged",
    "[DELTA_SCHEMA_CHANGED] Detected schema change.": "A table that a stream reads has a new column",
    f"Caused by: {KAFKA}.SaslAuthenticationException: no": LOGIN,
    "Caused by: javax.security.auth.login.LoginException: no": LOGIN,
    f"Caused by: {KAFKA}.SslAuthenticationException: no": LOGIN,
    f"Caused by: {KAFKA}.TopicAuthorizationException: no": RIGHTS,
    "Caused by: java.lang.IllegalStateException: nobody knows this one": FAILED,
}
# What S3, or its client, says.
REFUSALS: Final = (
    "fs.s3a: No AWS Credentials",
    "awssdk: InvalidAccessKeyId",
    "awssdk: SignatureDoesNotMatch",
    "awssdk: ExpiredToken",
    "awssdk: InvalidToken",
    "awssdk: RequestTimeTooSkewed",
    "awssdk: AccessDenied",
    "awssdk.S3Exception: Forbidden (Service: S3, Status Code: 403)",
)
OUTAGES: Final = (
    "fs.s3a.AWSServiceThrottledException: open s3a://lake/x: SlowDown",
    "fs.s3a: java.net.SocketTimeoutException: Read timed out",
)
LOST: Final = f"[FAILED_READ_FILE.FILE_NOT_EXIST] while reading file {DATA}. File does not exist."


def told() -> Iterator[tuple[int, str, str]]:
    """What jobs say: an exit code, a message, and the entry that it leads to."""
    explained: list[tuple[OncelakeError | None, str]] = [
        *((explain_stream_failure(RuntimeError(text)), entry) for text, entry in OF_STREAMS.items()),
        *((explain_stream_failure(RuntimeError(text)), STORE) for text in REFUSALS),
        *((explain_failure(RuntimeError(text)), STORE) for text in REFUSALS),
        *((explain_stream_failure(RuntimeError(text)), OUTAGE) for text in OUTAGES),
        *((explain_failure(RuntimeError(text)), OUTAGE) for text in OUTAGES),
        (explain_failure(RuntimeError(LOST)), DATA_FILE),
        (damaged_commit("/lake/bronze/flights"), "A commit is damaged"),
    ]
    for error, entry in explained:
        assert error is not None
        yield error.exit_code, str(error), entry
    # Whoever asks before anything was begun says it with another exit code.
    for meaning, entry in (
        *((cluster_refusal(text), entry) for text, entry in OF_STREAMS.items() if entry in {LOGIN, RIGHTS}),
        *((store_refusal(text), STORE) for text in REFUSALS),
    ):
        assert meaning is not None
        yield 2, meaning, entry


@pytest.mark.parametrize(("code", "message", "entry"), [*told()])
def test_each_message_leads_to_an_entry_with_cause_and_fix(code: int, message: str, entry: str) -> None:
    assert leads_to(code, message) == {anchor(entry)}
    parts = (r"\*\*You see\*\*", r"\*\*Why\.\*\*", r"\*\*What to do\.\*\*", r"\*\*Fixed when\*\*")
    assert [part for part in parts if not re.search(part, section(entry))] == []
    named = re.findall(r"docs/runbook\.md, '([^']+)'", message)
    assert named in ([], [entry])


def templates(module: str) -> Iterator[str]:
    """The texts that a module makes messages of, with `…` where a value is put in."""
    for node in ast.walk(ast.parse((ROOT / "pipelines/spark" / module).read_text())):
        texts: list[ast.expr | None] = []
        if isinstance(node, ast.Dict):
            texts = [*node.values]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
            texts = [*node.args]
        for text in texts:
            if isinstance(text, ast.JoinedStr):
                parts = (str(part.value) if isinstance(part, ast.Constant) else "…" for part in text.values)
                yield "".join(parts)
            elif isinstance(text, ast.Constant):
                yield str(text.value)


def test_no_message_is_left_out() -> None:
    messages = [message for _, message, _ in told()]
    found = [text for module in MODULES for text in templates(module)]
    assert len(found) > 20
    assert [text for text in found if not any(is_said(text, message) for message in messages)] == []
