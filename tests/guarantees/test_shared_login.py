"""One login is for Kafka's client in Java, which reads, and for librdkafka, which publishes.

Both are told in one message what is wrong with a token or with a certificate of a client.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

import pytest

from pipelines.doctor.acls import Acl
from pipelines.errors import ConfigError, InfrastructureError, OncelakeError
from pipelines.kafka.topics import find_topic
from pipelines.publishing.cluster import asking, topic_id
from pipelines.publishing.settings import sink_of
from pipelines.runtime.local_broker import unused_ports
from tests.support.identity_provider import IdentityProvider, identity_provider
from tests.support.lakes import Lake, flight
from tests.support.secured_broker import Authority, SecuredBroker, jaas, secured_broker
from tests.support.secured_site import MARK, Site, secret, secured_site, send, watched

pytestmark = [pytest.mark.thorough, pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]

MakeLake = Callable[..., Lake]
Client = Literal["java", "librdkafka"]
ROWS: Final = 300
CLIENTS: Final[tuple[Client, ...]] = ("java", "librdkafka")
MODULE: Final = "org.apache.kafka.common.security.oauthbearer"
TOKEN: Final = f"""
  options:
    security.protocol: SASL_SSL
    sasl.mechanism: OAUTHBEARER
    sasl.login.callback.handler.class: {MODULE}.OAuthBearerLoginCallbackHandler
    sasl.oauthbearer.token.endpoint.url: {{provider.tokens_url}}
    ssl.truststore.type: PEM
    ssl.truststore.location: {{broker.authority}}
  secrets:
    sasl.jaas.config: >-
      {MODULE}.OAuthBearerLoginModule required
      clientId="by-token" clientSecret="${{{{file:{{secrets}}/client}}}}" scope="all"
      ssl.truststore.type="PEM" ssl.truststore.location="{{broker.authority}}";
"""
CERTIFICATE: Final = """
  options:
    security.protocol: SSL
    ssl.truststore.type: PEM
    ssl.truststore.location: {broker.authority}
    ssl.keystore.type: PEM
  secrets:
    ssl.keystore.key: ${{file:{secrets}/key.pem}}
    ssl.keystore.certificate.chain: ${{file:{secrets}/chain.pem}}
"""
UNREACHED: Final = {"cluster_answers", "output_cluster_answers", "rights_suffice"}
CONFIGURATION: Final = """
lake: {{root: {folder}/lake}}
quarantine: {{dead_letter_topic: LOGIN-dead}}
publish: {{topic: LOGIN-events, slots: 2, progress_topic: LOGIN-progress}}
spark:
  conf:
    spark.eventLog.enabled: "true"
    spark.eventLog.compress: "false"
    spark.eventLog.dir: file:{folder}/events
kafka:
  topic: LOGIN-flights
  connect_timeout: 10 seconds
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def running(authority: Authority) -> Iterator[IdentityProvider]:
    with identity_provider(authority.issue(authority.file.with_name("provider.pem"))) as provider:
        yield provider


@pytest.fixture
def provider(running: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> IdentityProvider:
    """A provider that a test may change."""
    monkeypatch.setattr(running, "lifetime_s", running.lifetime_s)
    monkeypatch.setattr(running, "audience", running.audience)
    monkeypatch.setattr(running, "is_down", running.is_down)
    monkeypatch.setattr(running, "clients", {"by-token": secret("client")})
    return running


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, running: IdentityProvider
) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("broker")
    with secured_broker(folder, secret("plain"), authority, running) as started:
        started.create("flights", "events")
        yield started


def parts(keys: Path) -> tuple[str, str]:
    """The key of a file and its certificate."""
    key, separator, certificate = keys.read_text().partition("-----BEGIN CERTIFICATE")
    return key, separator + certificate


@pytest.fixture(params=["token", "certificate"])
def site(
    request: pytest.FixtureRequest,
    broker: SecuredBroker,
    authority: Authority,
    provider: IdentityProvider,
    tmp_path: Path,
) -> Iterator[Site]:
    is_token = request.param == "token"
    servers = broker.by_token if is_token else broker.by_certificate
    login = TOKEN.replace("{provider.tokens_url}", provider.tokens_url) if is_token else CERTIFICATE
    configuration = f"{CONFIGURATION.rstrip()}\n  bootstrap_servers: {servers}{login}"
    broker.create(*(f"{request.param}-{name}" for name in ("flights", "dead", "events", "progress")))
    with secured_site(broker, tmp_path, configuration.replace("LOGIN", request.param)) as site:
        (site.secrets / "client").write_text(secret("client"))
        keys = authority.issue(site.secrets / "all.pem", name="by-certificate")
        key, chain = parts(keys)
        (site.secrets / "key.pem").write_text(key)
        (site.secrets / "chain.pem").write_text(chain)
        site.further = [line for line in key.splitlines() if len(line) == 64]
        jobs = ("ingest_stream", "speed_stream", "publish_stream", "doctor", "lag")
        site.allow("by-token" if is_token else "by-certificate", *jobs)
        yield site


def test_one_login_is_for_all_jobs_and_is_found_nowhere(
    site: Site, provider: IdentityProvider, request: pytest.FixtureRequest
) -> None:
    topic = f"{request.node.callspec.params['site']}-flights"
    send(site.broker, *(flight(flight=number) for number in range(1, ROWS + 1)), b"poison", topic=topic)
    with watched() as shown:
        assert site.run("plan")[0] == 0
        code, ingested = site.run("ingest_stream", "--once", "--verbose")
        assert (code, ingested["counts"]["records"]) == (0, ROWS + 1), ingested
        code, streamed = site.run("speed_stream", "--once")
        assert (code, streamed["counts"]["rows"], streamed["counts"]["quarantined"]) == (0, ROWS, 1), streamed
        code, published = site.run("publish_stream", "--once")
        assert (code, published["counts"]["rows"]) == (0, ROWS), published
        assert site.run("lag")[0] == 0
        code, examined = site.run("doctor")
        assert code == 0, examined
        assert not {each["check"] for each in examined["findings"]} & UNREACHED
        for file in ("client", "key.pem"):
            (site.secrets / file).write_text(secret("wrong"))
        for job in ("ingest_stream", "publish_stream"):
            code, refused = site.run(job, "--once")
            assert code == 2, refused
    assert "at org.apache.kafka" not in site.process.path.with_name("log").read_text()
    assert shown == set()
    site.further += provider.signatures
    assert site.leaks() == []


def tokens(broker: SecuredBroker, provider: IdentityProvider, **changes: str) -> dict[str, str]:
    """Settings of a login by tokens, of which some are changed."""
    login = {
        "module": f"{MODULE}.OAuthBearerLoginModule required",
        "clientId": 'clientId="by-token"',
        "clientSecret": f'clientSecret="{secret("client")}"',
        "trust": f'ssl.truststore.type="PEM" ssl.truststore.location="{broker.authority}";',
    }
    return {
        "bootstrap_servers": broker.by_token,
        "options.security.protocol": "SASL_SSL",
        "options.sasl.mechanism": "OAUTHBEARER",
        "options.sasl.login.callback.handler.class": f"{MODULE}.OAuthBearerLoginCallbackHandler",
        "options.sasl.oauthbearer.token.endpoint.url": changes.pop("url", provider.tokens_url),
        "options.ssl.truststore.type": "PEM",
        "options.ssl.truststore.location": str(broker.authority),
        "secrets.sasl.jaas.config": " ".join({**login, **changes}.values()),
    }


def certificate(broker: SecuredBroker, keys: Path) -> dict[str, str]:
    """Settings of a login by a certificate, in a file."""
    return {
        "bootstrap_servers": broker.by_certificate,
        "options.security.protocol": "SSL",
        "options.ssl.truststore.type": "PEM",
        "options.ssl.truststore.location": str(broker.authority),
        "options.ssl.keystore.type": "PEM",
        "options.ssl.keystore.location": str(keys),
    }


def allow(broker: SecuredBroker, user: str) -> None:
    """Allows a user to find the topics."""
    topics = ("flights", "events")
    broker.allow(user, [Acl("lag", "topic", name, "Describe", broker.servers) for name in topics])


def ask(client: Client, make_lake: MakeLake, settings: dict[str, str]) -> str:
    """Has a client find its topic."""
    given = (f"kafka.{name}={value}" for name, value in settings.items())
    lake = make_lake(*given, "kafka.topic=flights", "publish.topic=events", "kafka.connect_timeout=8 seconds")
    if client == "java":
        return find_topic(lake.spark, lake.config.kafka).topic_id
    sink = sink_of(lake.config)
    with asking(sink) as cluster:
        return topic_id(cluster, sink.topic)


def refusal(client: Client, make_lake: MakeLake, settings: dict[str, str]) -> OncelakeError:
    with pytest.raises(OncelakeError) as refused:
        ask(client, make_lake, settings)
    assert MARK not in str(refused.value)
    assert "Traceback" not in str(refused.value)
    return refused.value


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_without_a_token_is_told_why(
    client: Client, broker: SecuredBroker, provider: IdentityProvider, make_lake: MakeLake, tmp_path: Path
) -> None:
    wrong = tokens(broker, provider, clientSecret=f'clientSecret="{secret("wrong")}"')
    refused = refusal(client, make_lake, wrong)
    assert type(refused) is ConfigError
    assert "there is no token for the login" in str(refused)
    assert "invalid_client" in str(refused)

    other = Authority(tmp_path)
    stranger = f'ssl.truststore.type="PEM" ssl.truststore.location="{other.file}";'
    refused = refusal(client, make_lake, tokens(broker, provider, trust=stranger))
    assert type(refused) is ConfigError
    assert "there is no token for the login" in str(refused)

    (closed,) = unused_ports(1)
    refused = refusal(client, make_lake, tokens(broker, provider, url=f"https://127.0.0.1:{closed}/token"))
    assert type(refused) is InfrastructureError
    assert "there is no token for the login" in str(refused)

    provider.is_down = True
    assert type(refusal(client, make_lake, tokens(broker, provider))) is InfrastructureError
    provider.is_down = False
    allow(broker, "by-token")
    assert ask(client, make_lake, tokens(broker, provider))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_token_that_has_expired_or_is_for_others_is_refused(
    client: Client, broker: SecuredBroker, provider: IdentityProvider, make_lake: MakeLake
) -> None:
    provider.lifetime_s = -300.0
    refused = refusal(client, make_lake, tokens(broker, provider))
    assert type(refused) is ConfigError, refused
    provider.lifetime_s = 3600.0
    provider.audience = "others"
    refused = refusal(client, make_lake, tokens(broker, provider))
    assert type(refused) is ConfigError, refused
    assert "refuses the login" in str(refused)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_without_a_certificate_that_counts_is_told_so(
    client: Client, broker: SecuredBroker, authority: Authority, make_lake: MakeLake, tmp_path: Path
) -> None:
    name = "by-certificate"
    keys = authority.issue(tmp_path / "keys.pem", name=name)
    expired = authority.issue(tmp_path / "expired.pem", name=name, has_expired=True)
    (tmp_path / "other").mkdir()
    unknown = Authority(tmp_path / "other").issue(tmp_path / "unknown.pem", name=name)
    whole = certificate(broker, keys)
    missing = {key: value for key, value in whole.items() if "keystore" not in key}
    for settings in (missing, certificate(broker, expired), certificate(broker, unknown)):
        refused = refusal(client, make_lake, settings)
        assert type(refused) is ConfigError, refused
        assert "TLS handshake" in str(refused)
    encrypted = authority.issue(tmp_path / "encrypted.pem", name=name, password=secret("key"))
    wrong = {**certificate(broker, encrypted), "secrets.ssl.key.password": secret("wrong")}
    for settings in (wrong, certificate(broker, tmp_path / "none.pem")):
        refused = refusal(client, make_lake, settings)
        assert type(refused) is ConfigError, refused
    allow(broker, name)
    assert ask(client, make_lake, whole)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_token_that_nobody_signs_is_taken_where_the_cluster_takes_such(
    client: Client, broker: SecuredBroker, make_lake: MakeLake
) -> None:
    settings = {
        "bootstrap_servers": broker.servers,
        "options.security.protocol": "SASL_SSL",
        "options.sasl.mechanism": "OAUTHBEARER",
        "options.ssl.truststore.type": "PEM",
        "options.ssl.truststore.location": str(broker.authority),
        "secrets.sasl.jaas.config": jaas("OAUTHBEARER", "unsigned", ""),
    }
    allow(broker, "unsigned")
    assert ask(client, make_lake, settings)
