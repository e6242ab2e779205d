"""Where TLS, a login and ACLs are demanded, jobs work with what they are allowed, and no secret is found."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelines.doctor.acls import Acl
from pipelines.errors import ConfigError
from pipelines.kafka.topics import find_topic
from pipelines.publishing.cluster import asking, topic_id
from pipelines.publishing.settings import sink_of
from pipelines.steps.ingest import ingest
from tests.support.identity_provider import identity_provider
from tests.support.lakes import Lake, flight
from tests.support.secured_broker import Authority, Mechanism, SecuredBroker, jaas, secured_broker
from tests.support.secured_site import MARK, Site, secret, secured_site, send, watched

pytestmark = [pytest.mark.thorough, pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]

MakeLake = Callable[..., Lake]
ROWS = 600
CONFIGURATION = """
lake: {{root: {folder}/lake}}
kafka:
  bootstrap_servers: {broker.servers}
  topic: flights
  connect_timeout: 10 seconds
  options:
    security.protocol: SASL_SSL
    sasl.mechanism: SCRAM-SHA-256
    ssl.truststore.type: PEM
    ssl.truststore.location: {broker.authority}
  secrets:
    sasl.jaas.config: >-
      org.apache.kafka.common.security.scram.ScramLoginModule required
      username="${{KAFKA_USER}}" password="${{KAFKA_PASSWORD}}";
quarantine: {{dead_letter_topic: dead}}
publish:
  topic: events
  slots: 2
  options:
    security.protocol: SASL_SSL
    sasl.mechanism: SCRAM-SHA-256
    sasl.username: ${{KAFKA_USER}}
    ssl.ca.location: {broker.authority}
  secrets: {{sasl.password: "${{file:{secrets}/password}}"}}
notify:
  webhook: https://hooks.example.internal/${{HOOK}}
  headers: {{Authorization: "Bearer ${{HOOK}}"}}
spark:
  conf:
    spark.hadoop.fs.s3a.secret.key: ${{command:cat {secrets}/key}}
    spark.eventLog.enabled: "true"
    spark.eventLog.compress: "false"
    spark.eventLog.dir: file:{folder}/events
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    # Its own files hold passwords, and are no part of the lake.
    folder = tmp_path_factory.mktemp("broker")
    authority = Authority(folder)
    with (
        identity_provider(authority.issue(folder / "provider.pem")) as provider,
        secured_broker(folder, secret("plain"), authority, provider) as running,
    ):
        running.create("flights", "dead", "events", "oncelake-progress")
        yield running


@pytest.fixture
def site(broker: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for name in ("KAFKA_USER", "KAFKA_PASSWORD", "HOOK"):
        monkeypatch.setenv(name, secret(name))
    with secured_site(broker, tmp_path, CONFIGURATION) as site:
        (site.secrets / "key").write_text(secret("key"))
        (site.secrets / "password").write_text(secret("password"))
        yield site


@dataclass
class Users:
    """Has each job run as a user of its own, who is allowed what `doctor --acls` lists for it."""

    site: Site
    patch: pytest.MonkeyPatch

    def introduce(self, job: str) -> None:
        self.site.broker.set_password(job, secret(job))
        self.site.allow(job, job)

    def run(self, job: str, *arguments: str, password: str | None = None) -> tuple[int, dict[str, Any]]:
        self.patch.setenv("KAFKA_USER", job)
        self.patch.setenv("KAFKA_PASSWORD", password or secret(job))
        (self.site.secrets / "password").write_text(f"{password or secret(job)}\n")
        return self.site.run(job, *arguments)


def test_every_job_works_with_its_acls_alone_and_no_secret_is_found_anywhere(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = Users(site, monkeypatch)
    jobs = ("ingest_stream", "speed_stream", "nightly_batch", "publish_stream", "doctor", "lag", "reconcile")
    for job in jobs:
        users.introduce(job)
    send(site.broker, *(flight(flight=number) for number in range(1, ROWS + 1)), b"poison")
    with watched() as shown:
        assert users.run("plan")[0] == 0
        code, ingested = users.run("ingest_stream", "--once", "--verbose")
        assert (code, ingested["counts"]["records"]) == (0, ROWS + 1), ingested
        code, streamed = users.run("speed_stream", "--once")
        assert (code, streamed["counts"]["rows"], streamed["counts"]["quarantined"]) == (0, ROWS, 1), streamed
        code, published = users.run("publish_stream", "--once")
        assert (code, published["counts"]["rows"]) == (0, ROWS), published
        code, night = users.run("nightly_batch", "--date=2013-01-01")
        assert (code, night["days"]) == (0, {"2013-01-01": "certified"}), night
        for command in ("lag", "reconcile"):
            assert users.run(command)[0] == 0
        code, examined = users.run("doctor")
        assert code == 0, examined
        of_cluster = {each["check"] for each in examined["findings"] if each["group"] == "cluster"}
        # What the topics allow by default; a right that lacks would be told as well.
        assert of_cluster == {"dead_letters_fit"}
        assert users.run("report", f"--out={site.folder}/reports")[0] == 0

        # A login that is wrong, and one that was changed meanwhile.
        code, refused = users.run("ingest_stream", "--once", password=secret("wrong"))
        assert (code, refused["status"]) == (2, "failed")
        assert "the cluster refuses the login: check user and password in kafka.secrets" in refused["error"]
        send(site.broker, flight(flight=ROWS + 1))
        site.broker.set_password("ingest_stream", secret("rotated"))
        assert users.run("ingest_stream", "--once")[0] == 2
        code, behind = users.run("lag")
        assert (code, behind["stages"][0]["records"]) == (0, 1), behind
        assert behind["stages"][0]["behind_s"] is not None
        code, ingested = users.run("ingest_stream", "--once", password=secret("rotated"))
        assert (code, ingested["counts"]["records"]) == (0, 1), ingested
        code, refused = users.run("publish_stream", "--once", password=secret("wrong"))
        assert code == 2
        assert "refuses the login" in refused["error"]
    assert shown == set()
    assert site.leaks() == []


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_each_mechanism_is_taken_and_a_login_that_is_not_ends_with_one_message(
    mechanism: Mechanism, broker: SecuredBroker, make_lake: MakeLake
) -> None:
    user = "plain" if mechanism == "PLAIN" else mechanism.lower()
    if mechanism == "SCRAM-SHA-256":
        broker.set_password(user, secret("plain"))

    def found(user: str, password: str) -> str:
        login = f"kafka.secrets.sasl.jaas.config={jaas(mechanism, user, password)}"
        lake = make_lake(*broker.java(mechanism), "kafka.topic=flights", login)
        return find_topic(lake.spark, lake.config.kafka).name

    # Whoever is known may still do nothing.
    with pytest.raises(ConfigError, match=r"does not allow it. For what each job needs") as refused:
        found(user, secret("plain"))
    assert MARK not in str(refused.value)
    broker.allow(user, [Acl("lag", "topic", "flights", "Describe", broker.servers)])
    assert found(user, secret("plain")) == "flights"
    if mechanism != "OAUTHBEARER":
        with pytest.raises(ConfigError, match=r"refuses the login: check user and password") as refused:
            found(user, secret("wrong"))
        assert MARK not in str(refused.value)


def test_a_user_without_rights_is_told_so_before_anything_is_written(
    broker: SecuredBroker, make_lake: MakeLake
) -> None:
    broker.set_password("nobody", secret("nobody"))
    login = jaas("SCRAM-SHA-256", "nobody", secret("nobody"))
    settings = (*broker.java("SCRAM-SHA-256"), f"kafka.secrets.sasl.jaas.config={login}")
    lake = make_lake(*settings, "kafka.topic=flights")
    with pytest.raises(ConfigError, match=r"does not allow it. For what each job needs"):
        ingest(lake.pipeline, once=True)
    assert lake.count("bronze") == 0
    # It may describe the topic, and not read it.
    broker.allow("nobody", [Acl("lag", "topic", "flights", "Describe", broker.servers)])
    send(broker, flight())
    with pytest.raises(Exception, match=r"does not allow it. For what each job needs"):
        ingest(lake.pipeline, once=True)
    assert lake.count("bronze") == 0


def test_a_wrong_login_of_the_output_cluster_is_told_as_one(
    broker: SecuredBroker, make_lake: MakeLake
) -> None:
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(broker.authority),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "plain",
    }
    lake = make_lake(
        f"publish.bootstrap_servers={broker.servers}",
        "publish.topic=events",
        "kafka.connect_timeout=3 seconds",
        *(f"publish.options.{key}={value}" for key, value in settings.items()),
        f"publish.secrets.sasl.password={secret('wrong')}",
    )
    sink = sink_of(lake.config)
    with pytest.raises(ConfigError, match=r"refuses the login") as refused, asking(sink) as cluster:
        topic_id(cluster, sink.topic)
    assert MARK not in str(refused.value)


@contextmanager
def greeting(keys: Path) -> Iterator[int]:
    """Takes TLS connections on a port with a certificate, as far as a client wants it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
                        secured.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(30)


@pytest.mark.parametrize(
    ("has_expired", "is_known", "said"),
    [(True, True, "CertificateExpiredException"), (False, False, "unable to find valid certification path")],
)
def test_a_certificate_that_has_expired_or_that_nobody_knows_is_told_as_one(
    has_expired: bool, is_known: bool, said: str, make_lake: MakeLake, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path), Authority(tmp_path / "other")
    keys = authority.issue(tmp_path / "server.pem", has_expired=has_expired)
    with greeting(keys) as port:
        stand_in = SecuredBroker(f"127.0.0.1:{port}", (authority if is_known else other).file, "")
        login = jaas("PLAIN", "plain", secret("plain"))
        settings = (*stand_in.java("PLAIN"), f"kafka.secrets.sasl.jaas.config={login}")
        lake = make_lake(*settings, "kafka.connect_timeout=20 seconds")
        with pytest.raises(ConfigError, match=r"the TLS handshake with the cluster fails") as refused:
            find_topic(lake.spark, lake.config.kafka)
    assert said in str(refused.value)
    assert MARK not in str(refused.value)
