"""The login by which a topic is read is that of the client that publishes, which has other names for it."""

import re
import shutil
import ssl
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient

from pipelines.config.loader import load_config
from pipelines.config.output_login import output_login
from pipelines.config.references import references_in
from pipelines.errors import ConfigError
from pipelines.publishing.settings import sink_of
from tests.support.secured_broker import Authority, jaas

HANDLER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
ENDPOINT: Final = "https://login.example.com/token"
OIDC: Final = {
    "kafka.options.security.protocol": "SASL_SSL",
    "kafka.options.sasl.mechanism": "OAUTHBEARER",
    "kafka.options.sasl.login.callback.handler.class": HANDLER,
    "kafka.options.sasl.oauthbearer.token.endpoint.url": ENDPOINT,
}
SCRAM: Final = {
    "kafka.options.security.protocol": "SASL_SSL",
    "kafka.options.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.secrets.sasl.jaas.config": jaas("SCRAM-SHA-512", "me", "hush; \\\" 'hush"),
}
LOGIN: Final = "kafka.secrets.sasl.jaas.config"


def bearer(options: str) -> str:
    return f"org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required {options};"


def client(settings: dict[str, str], *more: str) -> dict[str, Any]:
    """The settings of the client that publishes, without its address."""
    given = [f"{key}={value}" for key, value in settings.items()]
    config = load_config("flights", environ={}, settings=["publish.topic=events", *given, *more])
    found = dict(sink_of(config).client)
    del found["bootstrap.servers"]
    return found


def test_a_user_and_a_password_are_taken_from_the_login_of_java() -> None:
    assert client(SCRAM) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": "hush; \" 'hush",
    }


def test_a_client_of_an_endpoint_of_tokens_is_taken_from_the_login_of_java() -> None:
    login = bearer('clientId="me" clientSecret="hush" scope="a b" extension_pool="p-1" extension_x="y"')
    found = client({**OIDC, LOGIN: login})
    default = ssl.get_default_verify_paths().cafile
    assert found.pop("https.ca.location", None) == default
    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": ENDPOINT,
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "hush",
        "sasl.oauthbearer.scope": "a b",
        "sasl.oauthbearer.extensions": "pool=p-1,x=y",
    }
    trust = 'ssl.truststore.type="PEM" ssl.truststore.location="/ca.pem"'
    found = client({**OIDC, LOGIN: bearer(f'clientId="me" clientSecret="hush" {trust}')})
    assert found["https.ca.location"] == "/ca.pem"


def test_tokens_that_nobody_signs_name_the_same_subject() -> None:
    settings = {
        "kafka.options.security.protocol": "SASL_PLAINTEXT",
        "kafka.options.sasl.mechanism": "OAUTHBEARER",
        LOGIN: bearer('unsecuredLoginStringClaim_sub="me"'),
    }
    assert client(settings) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": "principal=me",
    }


def test_certificates_and_keys_are_those_of_java_in_files_and_in_texts(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    keys = authority.issue(tmp_path / "client.pem")
    in_files = client(
        {
            "kafka.options.security.protocol": "SSL",
            "kafka.options.ssl.truststore.type": "PEM",
            "kafka.options.ssl.truststore.location": str(authority.file),
            "kafka.options.ssl.keystore.type": "PEM",
            "kafka.options.ssl.keystore.location": str(keys),
            "kafka.options.ssl.endpoint.identification.algorithm": "",
        }
    )
    assert in_files == {
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.file),
        "ssl.certificate.location": str(keys),
        "ssl.key.location": str(keys),
        "ssl.endpoint.identification.algorithm": "none",
    }
    private, chain = keys.read_text().split("-----BEGIN CERTIFICATE", 1)
    in_texts = client(
        {
            "kafka.options.security.protocol": "SSL",
            "kafka.options.ssl.truststore.type": "PEM",
            "kafka.secrets.ssl.truststore.certificates": authority.file.read_text(),
            "kafka.options.ssl.keystore.type": "PEM",
            "kafka.secrets.ssl.keystore.key": private,
            "kafka.secrets.ssl.keystore.certificate.chain": f"-----BEGIN CERTIFICATE{chain}",
            "kafka.secrets.ssl.key.password": "hush",
        }
    )
    assert {*in_texts} == {
        *("security.protocol", "ssl.ca.pem", "ssl.key.pem", "ssl.certificate.pem", "ssl.key.password")
    }
    # librdkafka reads files and texts when it starts, and refuses what it cannot read.
    for found in (in_files, in_texts):
        AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **found})


def test_a_login_of_its_own_or_another_cluster_takes_nothing_of_that_of_the_source() -> None:
    login = {"publish.options.sasl.mechanism": "PLAIN", "publish.secrets.sasl.password": "other"}
    assert client({**SCRAM, **login}) == {"sasl.mechanism": "PLAIN", "sasl.password": "other"}
    assert client(SCRAM, "publish.bootstrap_servers=other:9092") == {}
    shared = client(SCRAM, "publish.options.linger.ms=7")
    assert (shared["linger.ms"], shared["sasl.username"]) == ("7", "me")


def test_what_the_protocol_does_not_use_and_how_often_tokens_are_asked_for_is_left_out() -> None:
    plain = {"kafka.options.ssl.truststore.location": "/ca.jks", "kafka.options.fetch.min.bytes": "1"}
    assert client(plain) == {}
    assert client({**SCRAM, "kafka.options.sasl.login.retry.backoff.ms": "5"}) == client(SCRAM)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({LOGIN: "hush"}, f"{LOGIN}: expected CLASS required"),
        ({LOGIN: jaas("PLAIN", "me", "hush")}, "expected the class ScramLoginModule"),
        ({LOGIN: jaas("SCRAM-SHA-512", "me", "hush").replace("username", "user")}, "missing: username"),
        ({LOGIN: jaas("SCRAM-SHA-512", "me", "hush").replace(";", " hush=hush;")}, "has further options"),
        (
            {"kafka.options.sasl.mechanism": "GSSAPI"},
            "kafka.options.sasl.mechanism: expected PLAIN, .* GSSAPI",
        ),
        ({"kafka.options.ssl.truststore.location": "/ca.jks"}, "truststore.type: expected PEM, .* got JKS"),
        ({"kafka.options.ssl.enabled.protocols": "TLSv1.3"}, "ssl.enabled.protocols: librdkafka has no such"),
        (
            {"kafka.secrets.sasl.mechanism": "hush"},
            "kafka.secrets.sasl.mechanism: .* a value that is not shown",
        ),
        ({**OIDC, LOGIN: bearer('clientId="me"')}, "missing: clientSecret"),
        (
            {**OIDC, LOGIN: bearer('clientId="me" clientSecret="hush" ssl.truststore.location="/ca.jks"')},
            'expected ssl.truststore.type="PEM" among its options',
        ),
        (
            {**OIDC, LOGIN: bearer(""), "kafka.options.sasl.login.callback.handler.class": "own.Handler"},
            "cannot run this class",
        ),
        ({"kafka.options.sasl.mechanism": "OAUTHBEARER", LOGIN: bearer("")}, "unsecuredLoginStringClaim_sub"),
    ],
)
def test_a_login_that_only_java_can_use_is_refused_in_words(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        client({**SCRAM, **settings})
    assert "see docs/security.md, 'Logins'" in str(refused.value)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "missing", ["kafka.secrets.sasl.jaas.config", "kafka.options.sasl.oauthbearer.token.endpoint.url"]
)
def test_a_part_of_a_login_that_is_missing_is_named(missing: str) -> None:
    settings = {**OIDC, LOGIN: bearer('clientId="me" clientSecret="hush"')}
    del settings[missing]
    with pytest.raises(ConfigError, match=f"{missing}: missing"):
        client(settings)


def test_each_login_that_is_documented_is_one_for_both_clients(tmp_path: Path) -> None:
    documented = Path("docs/security.md").read_text().partition("\n## Logins\n")[2].partition("\n## ")[0]
    examples = re.findall(r"^```yaml\n(.*?)^```$", documented, re.MULTILINE | re.DOTALL)
    mechanisms = []
    for example in examples:
        shutil.copytree("conf", tmp_path / "conf", dirs_exist_ok=True)
        (tmp_path / "conf/prod/pipelines/flights.yml").write_text(f"{example}\npublish: {{topic: events}}")
        environ = dict.fromkeys(("KAFKA_JAAS_CONFIG", *references_in(example)), "hush")
        config = load_config("flights", env="prod", conf_dir=tmp_path / "conf", environ=environ)
        login = output_login(config)
        assert login.is_shared
        assert any(value.get_secret_value() == "hush" for value in login.secrets.values())
        mechanisms.append(login.options.get("sasl.mechanism"))
    assert mechanisms == ["SCRAM-SHA-512", "OAUTHBEARER", None]


def test_a_secret_of_the_source_stays_one() -> None:
    given = [f"{key}={value}" for key, value in SCRAM.items()]
    config = load_config("flights", environ={}, settings=["publish.topic=events", *given])
    assert "hush" not in repr(output_login(config))
    assert "hush" not in repr(sink_of(config))
    assert {*sink_of(config).secrets} == {"sasl.username", "sasl.password"}
