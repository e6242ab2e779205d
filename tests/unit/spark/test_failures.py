"""A cluster that refuses a client is told apart from one that does not answer."""

import pytest

from pipelines.errors import InfrastructureError
from pipelines.spark.failures import StateLost, cluster_refusal, explain_failure, explain_stream_failure

SECURITY = "org.apache.kafka.common.errors"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{SECURITY}.SaslAuthenticationException", "refuses the login"),
        (f"ExecutionException {SECURITY}.SslAuthenticationException", "TLS handshake"),
        (f"{SECURITY}.TopicAuthorizationException", "docs/security.md, 'ACLs'"),
        (f"{SECURITY}.GroupAuthorizationException", "docs/security.md, 'ACLs'"),
        (f"{SECURITY}.TransactionalIdAuthorizationException", "docs/security.md, 'ACLs'"),
    ],
)
def test_a_refusal_says_what_to_look_at(text: str, said: str) -> None:
    assert said in (cluster_refusal(text) or "")
    failure = RuntimeError(f"a task failed\nCaused by: {text}: no\n")
    explained = explain_stream_failure(failure)
    assert type(explained) is InfrastructureError
    assert said in str(explained)
    assert str(explained).endswith(f"{text}: no")


def test_timeout_is_not_an_authorization_error() -> None:
    assert cluster_refusal(f"{SECURITY}.TimeoutException") is None


@pytest.mark.parametrize("root", ["/lake", "/my lake"])
def test_a_commit_whose_checksum_is_of_other_bytes_is_refused_with_the_way_back(root: str) -> None:
    file = f"file:{root}/bronze/flights/_delta_log/{2:020d}.json"
    text = f"org.apache.hadoop.fs.ChecksumException: Checksum error: {file} at 1536 exp: -13 got: -14"
    explained = explain_stream_failure(RuntimeError(f"a task failed\nCaused by: {text}\n"))
    assert explained.exit_code == 4
    assert str(explained).startswith(f"{file}: the file of a commit is empty or cut off")
    assert "docs/runbook.md, 'A commit is damaged'" in str(explained)


STATE = "file:/my lake/ops/checkpoints/flights/speed/state/0/3/13.changelog"
LOADING = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 8 times: org.apache.spark.SparkException:"
    " [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state."
)


@pytest.mark.parametrize(
    "said",
    [
        f"org.apache.hadoop.fs.ChecksumException: Checksum error: {STATE} at 0 exp: -13 got: -14",
        f"java.io.FileNotFoundException: File {STATE} does not exist",
    ],
)
def test_a_file_of_the_state_that_is_gone_or_has_other_bytes_is_refused_with_the_way_back(said: str) -> None:
    explained = explain_stream_failure(RuntimeError(f"{LOADING}\nCaused by: {said}\n"))
    assert explained.exit_code == 4
    assert str(explained).startswith(f"{STATE}: the file of the state of the stream is gone")
    assert type(explained) is StateLost


@pytest.mark.parametrize(
    "said",
    [
        "java.io.IOException: Stream is corrupted",
        "java.io.EOFException\n\tat java.base/java.io.DataInputStream.readFully(DataInputStream.java:210)",
        "java.io.EOFException: Stream ended prematurely",
        "java.io.EOFException: Unexpected end of ZLIB input stream",
        "java.util.zip.ZipException: invalid entry CRC",
        "org.rocksdb.RocksDBException: block checksum mismatch: stored = 1, computed = 2",
        "org.rocksdb.RocksDBException: Corruption: bad record",
    ],
)
def test_a_state_that_cannot_be_read_is_refused_though_no_file_is_named(said: str) -> None:
    explained = explain_stream_failure(RuntimeError(f"{LOADING}\nCaused by: {said}\n"))
    assert explained.exit_code == 4
    assert str(explained).startswith("a file of the state of the stream is gone")


@pytest.mark.parametrize(
    "said",
    [
        "java.net.ConnectException: Call From a to b:8020 failed on connection exception",
        "java.net.SocketTimeoutException: Read timed out",
        "java.io.EOFException: End of File Exception between local host is: a; destination host is: b",
        "AWSClientIOException: getFileStatus on s3a://lake/speed/state/0/3/13.zip: Unable to execute request",
        "java.io.IOException: No space left on device",
        "java.io.FileNotFoundException: /lake/speed/state/0/3/13.zip (Too many open files)",
        # So Spark says of any failure to open one.
        f"CANNOT_READ_STREAMING_STATE_FILE {STATE}\nCaused by: java.io.FileNotFoundException: /a (Denied)",
        f"java.nio.file.AccessDeniedException: {STATE}",
    ],
)
def test_a_store_that_does_not_give_the_state_is_asked_again(said: str) -> None:
    explained = explain_stream_failure(RuntimeError(f"{LOADING}\nCaused by: {said}\n"))
    assert explained.exit_code == 1


@pytest.mark.parametrize(
    "text",
    [
        "org.apache.hadoop.fs.ChecksumException: Checksum error: file:/lake/bronze/part-1.parquet at 0",
        (
            "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file s3a://lake/bronze/part-1.parquet."
            "\nCaused by: org.apache.parquet.io.ParquetDecodingException: could not verify page integrity"
        ),
        "Could not read footer for file: FileStatus{path=file:/lake/bronze/part-1.parquet; length=7}",
        (
            "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file s3a://lake/bronze/part-1.parquet."
            "\nCaused by: java.lang.IllegalArgumentException: newLimit > capacity: (7340103 > 71303)"
            "\n\tat java.base/java.nio.Buffer.createLimitException(Buffer.java:372)"
            "\n\tat java.base/java.nio.ByteBuffer.limit(ByteBuffer.java:1529)"
            "\n\tat org.apache.parquet.bytes.SingleBufferInputStream.slice(SingleBufferInputStream.java:114)"
        ),
    ],
)
def test_a_data_file_with_other_bytes_is_told_and_is_no_commit(text: str) -> None:
    explained = explain_stream_failure(RuntimeError(text))
    assert explained.exit_code == 4
    assert "/bronze/part-1.parquet: a data file of the table is cut off" in str(explained)


@pytest.mark.parametrize(
    "said",
    [
        "java.net.SocketTimeoutException: Read timed out",
        "java.io.InterruptedIOException: interrupted",
        "org.apache.hadoop.fs.s3a.AWSClientIOException: Unable to execute request",
    ],
)
def test_a_store_that_does_not_give_a_data_file_is_asked_again(said: str) -> None:
    text = (
        f"[FAILED_READ_FILE.NO_HINT] while reading file s3a://lake/bronze/part-1.parquet.\nCaused by: {said}"
    )
    assert explain_stream_failure(RuntimeError(text)).exit_code == 1


@pytest.mark.parametrize(
    "text",
    [
        (
            "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file"
            " file:///my%20lake/batch/flights/part-1.parquet. File does not exist."
        ),
        "java.io.FileNotFoundException: No such file or directory: s3a://lake/batch/flights/part-1.parquet",
        "java.io.FileNotFoundException: File file:/lake/batch/flights/part-1.parquet does not exist",
    ],
)
def test_a_data_file_that_is_gone_is_told_with_the_way_back(text: str) -> None:
    explained = explain_failure(RuntimeError(f"a task failed\nCaused by: {text}\n"))
    assert explained is not None
    assert explained.exit_code == 4
    assert "/batch/flights/part-1.parquet: a data file of the table is gone" in str(explained)
    assert str(explained).endswith("See docs/runbook.md, 'A data file is damaged'")


@pytest.mark.parametrize(
    "text",
    [
        "java.io.FileNotFoundException: /lake/batch/flights/part-1.parquet (Too many open files)",
        "java.io.FileNotFoundException: File file:/lake/ops/checkpoints/flights/speed/7 does not exist",
    ],
)
def test_a_file_that_cannot_be_opened_or_is_no_data_is_not_told_as_gone(text: str) -> None:
    assert explain_failure(RuntimeError(text)) is None


def test_an_error_of_code_that_reads_no_file_is_no_damage() -> None:
    text = (
        "reading file s3a://lake/bronze/part-1.parquet.\nCaused by: java.lang.IllegalArgumentException: x"
        "\n\tat org.apache.spark.sql.catalyst.expressions.Substring.eval(stringExpressions.scala:1)"
    )
    assert explain_stream_failure(RuntimeError(text)).exit_code == 1
