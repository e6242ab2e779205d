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
