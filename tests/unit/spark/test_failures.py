"""A cluster that refuses a client is told apart from one that does not answer."""

import pytest

from pipelines.errors import InfrastructureError
from pipelines.spark.failures import cluster_refusal, explain_stream_failure

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


def test_another_file_with_other_bytes_is_no_commit() -> None:
    text = "org.apache.hadoop.fs.ChecksumException: Checksum error: file:/lake/bronze/part-1.parquet at 0"
    assert explain_stream_failure(RuntimeError(text)).exit_code == 1
