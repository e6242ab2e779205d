"""A store that does not answer is told apart from one that refuses, and from files that are damaged."""

import pytest

from pipelines.errors import InfrastructureError, SourceError
from pipelines.spark.failures import explain_failure, explain_stream_failure
from pipelines.spark.store_outages import LIMITS, store_limits, store_outage
from pipelines.spark.store_refusals import store_refusal

S3A = "org.apache.hadoop.fs.s3a"
SDK = "software.amazon.awssdk"
FILE = "s3a://lake/lake/bronze/flights/part-00000-1.c000.snappy.parquet"
REFUSED = "Unable to execute HTTP request: Connect to 127.0.0.1:1 failed: Connection refused"
LATE = "Client execution did not complete before the specified timeout"
NO_ROLE = "No AWS Credentials provided by IAMInstanceCredentialsProvider :"
FRAMES = f"""
\tat {SDK}.core.internal.http.pipeline.stages.ApiCallTimeoutTrackingStage.execute(X.java:52)
\tat {SDK}.core.internal.http.pipeline.stages.TimeoutExceptionHandlingStage.execute(X.java:77)
"""


def answered(kind: str, status: int, code: str, said: str) -> str:
    """What Hadoop's client makes of an answer."""
    answer = (
        f"{SDK}.services.s3.model.S3Exception: {said} (Service: S3, Status Code: {status}, Request ID: 1)"
    )
    return f"{kind}: open {FILE}: {answer}:{code}{FRAMES}Caused by: {answer}{FRAMES}"


OUTAGES = [
    (
        answered(f"{S3A}.AWSServiceThrottledException", 503, "SlowDown", "Please reduce your request rate."),
        "fewer",
    ),
    (answered(f"{S3A}.AWSServiceThrottledException", 503, "null", "Service Unavailable"), "fewer requests"),
    (
        answered(f"{S3A}.AWSStatus500Exception", 500, "InternalError", "We encountered an"),
        "that it has failed",
    ),
    (
        answered(
            f"{S3A}.AWSBadRequestException", 400, "RequestTimeout", "Your socket connection to the server"
        ),
        "silent",
    ),
    (
        f"{S3A}.AWSApiCallTimeoutException: {FILE}: {SDK}.core.exception.ApiCallTimeoutException: {LATE}",
        "silent",
    ),
    (
        f"java.net.SocketTimeoutException: read {FILE}: {SDK}.core.exception.SdkClientException: Read",
        "silent",
    ),
    (
        f"java.net.ConnectException: open {FILE}: {SDK}.core.exception.SdkClientException: {REFUSED}",
        "nothing takes",
    ),
    (f"java.net.UnknownHostException: open {FILE}: {SDK}.core.exception.SdkClientException: X", "not known"),
]


@pytest.mark.parametrize(("text", "said"), OUTAGES)
def test_an_outage_says_where_and_what_and_that_a_new_start_is_right(text: str, said: str) -> None:
    assert store_refusal(text) is None
    for explained in (explain_failure(RuntimeError(text)), explain_stream_failure(RuntimeError(text))):
        assert type(explained) is InfrastructureError
        assert f"{FILE}: the object store does not answer, also after retries: " in str(explained)
        assert said in str(explained)
        assert "Start the job again once the store answers" in str(explained)
        assert "docs/runbook.md, 'The object store does not answer'" in str(explained)
        assert "\n" not in str(explained)


def test_a_file_that_could_not_be_fetched_is_not_damaged() -> None:
    text = (
        f"[CANNOT_READ_FILE_FOOTER] Could not read footer for file: {FILE}. Please ensure that the file is in"
        f" either ORC or Parquet format.\nCaused by: {OUTAGES[0][0]}"
    )
    assert type(explain_failure(RuntimeError(text))) is InfrastructureError
    assert type(explain_stream_failure(RuntimeError(text))) is InfrastructureError


@pytest.mark.parametrize(
    "text",
    [
        answered("java.nio.file.AccessDeniedException", 403, "AccessDenied", "Access Denied"),
        f"java.io.FileNotFoundException: No such file or directory: {FILE}{FRAMES}",
        f"{S3A}.RemoteFileChangedException: open {FILE}: PreconditionFailed{FRAMES}",
        f"{S3A}.auth.NoAuthWithAWSException: {NO_ROLE} {SDK}.core.exception.SdkClientException: {REFUSED}",
        "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node",
        "java.net.ConnectException: Connection refused",
    ],
)
def test_other_failures_are_no_outage(text: str) -> None:
    assert store_outage(text) is None


def test_a_damaged_file_on_s3_is_damaged() -> None:
    text = f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file {FILE}.{FRAMES}Caused by: {PAGE}"
    assert type(explain_failure(RuntimeError(text))) is SourceError


PAGE = "org.apache.parquet.io.ParquetDecodingException: could not verify page integrity, CRC checksum"


def test_what_people_have_set_stays() -> None:
    (first, *others) = LIMITS
    assert store_limits({}) == LIMITS
    assert [*store_limits({first: "9"})] == others
