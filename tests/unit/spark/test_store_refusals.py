"""What S3 refuses is told with what to look at."""

import pytest

from pipelines.errors import InfrastructureError
from pipelines.spark.failures import explain_failure, explain_stream_failure
from pipelines.spark.store_refusals import may_pass, store_refusal

FILE = "s3a://lake/lake/bronze/flights/_delta_log/_last_checkpoint"
S3 = "software.amazon.awssdk.services.s3.model.S3Exception"


def raised(kind: str, status: int, code: str, said: str) -> str:
    """What Hadoop's client makes of an answer."""
    answer = f"{said} (Service: S3, Status Code: {status}, Request ID: 1) (SDK Attempt Count: 1)"
    return f"{kind}: {FILE}: open: {S3}: {answer}:{code}\n\tat org.apache.hadoop\nCaused by: {S3}: {answer}\n"


DENIED = "java.nio.file.AccessDeniedException"
BAD = "org.apache.hadoop.fs.s3a.AWSBadRequestException"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            raised(DENIED, 403, "InvalidAccessKeyId", "The AWS Access Key Id you provided"),
            "does not know the",
        ),
        (
            raised(DENIED, 403, "SignatureDoesNotMatch", "The request signature"),
            "is not the one of the access",
        ),
        (
            raised(BAD, 400, "ExpiredToken", "The provided token has expired."),
            "the session token has expired",
        ),
        (raised(BAD, 400, "InvalidToken", "The provided token is malformed"), "the session token is not the"),
        (raised(DENIED, 403, "RequestTimeTooSkewed", "The difference"), "the clock of this machine is wrong"),
        (
            raised(DENIED, 403, "AccessDenied", "Access Denied"),
            "the user or role of this job may not do that",
        ),
        (raised(DENIED, 403, "null", "Forbidden"), "it does not say why"),
        (raised(DENIED, 403, "403 Forbidden", "null"), "it does not say why"),
        (raised(BAD, 400, "400 Bad Request", "null"), "it does not say why"),
        (
            f"{DENIED}: lake: org.apache.hadoop.fs.s3a.auth.NoAwsCredentialsException: +++",
            "there are no credentials for it",
        ),
    ],
)
def test_a_refusal_says_what_to_look_at(text: str, said: str) -> None:
    assert said in (store_refusal(text) or "")
    explained = explain_stream_failure(RuntimeError(text))
    assert type(explained) is InfrastructureError
    assert said in str(explained)
    assert "it continues where it stopped. See docs/runbook.md, 'The object store refuses the" in str(
        explained
    )
    assert "\n" not in str(explained)
    assert said in str(explain_failure(RuntimeError(text)))


@pytest.mark.parametrize(
    "text",
    [
        raised(DENIED, 403, "InvalidObjectState", "The operation is not valid for the storage class"),
        "java.nio.file.AccessDeniedException: /lake/bronze",
        "org.apache.kafka.common.errors.SaslAuthenticationException: ExpiredToken",
    ],
)
def test_other_failures_are_no_refusal(text: str) -> None:
    assert store_refusal(text) is None
    assert explain_failure(RuntimeError(text)) is None


@pytest.mark.parametrize(
    ("providers", "passing"),
    [
        (
            "TemporaryAWSCredentialsProvider IAMInstanceCredentialsProvider",
            True,
        ),
        ("WebIdentityTokenFileCredentialsProvider", True),
        ("TemporaryAWSCredentialsProvider SimpleAWSCredentialsProvider", False),
    ],
)
def test_credentials_that_a_service_did_not_give_may_come_later(providers: str, passing: bool) -> None:
    """Hadoop says the same of a machine without a role, and of a service that answers with status 500."""
    none = (
        f"org.apache.hadoop.fs.s3a.auth.NoAuthWithAWSException: No AWS Credentials provided by {providers} :"
    )
    text = (
        f"{DENIED}: s3a://lake/lake: {none} software.amazon.awssdk.core.exception.SdkClientException: Unable"
    )
    assert "there are no credentials for it" in (store_refusal(text) or "")
    assert may_pass(text) == passing
    assert not may_pass(raised(DENIED, 403, "InvalidAccessKeyId", "The AWS Access Key Id you provided"))
