"""A login that is sent over HTTP without TLS to another machine is found, and never shown."""

import pytest

from pipelines.config.loader import load_config
from pipelines.config.plain_logins import plain_logins
from pipelines.config.taken_risks import taken

HUSH = "hush-hush"
REGISTRY = "registry.url=http://registry:8081"
USER = f"registry.secrets.basic.auth.user.info=me:{HUSH}"
HEADER = f"notify.headers.Authorization=Bearer {HUSH}"
S3A = "spark.conf.spark.hadoop.fs.s3a"


def found(*settings: str) -> dict[str, str]:
    """By setting, what is said of it."""
    config = load_config("flights", environ={}, settings=settings)
    risks = list(plain_logins(config))
    assert [each for each in taken(config) if each.name == "login_in_plain_text"] == risks
    for each in risks:
        assert HUSH not in repr(each)
        assert each.expected
    assert len({each.setting for each in risks}) == len(risks)
    return {each.setting: f"{each.found}; {each.fix}" for each in risks}


@pytest.mark.parametrize(
    ("settings", "where", "said"),
    [
        ((REGISTRY, USER), "registry.url", "http://registry:8081, with a login (basic.auth.user.info)"),
        (
            (REGISTRY, f"registry.secrets.bearer.auth.token={HUSH}"),
            "registry.url",
            "with a login (bearer.auth.token); set registry.url to https://",
        ),
        (("registry.url=https://a:1,http://b:2/x", USER), "registry.url", "http://b:2, with a login"),
        (("registry.url=http://[2001:db8::1]:8081", USER), "registry.url", "http://[2001:db8::1]:8081"),
        (
            (
                "registry.url=https://registry:8081",
                "registry.options.bearer.auth.issuer.endpoint.url=http://login:9000/token?x=1",
            ),
            "registry.options.bearer.auth.issuer.endpoint.url",
            "http://login:9000, with a login; set it to https://",
        ),
        (
            (f"notify.webhook=http://hooks.example.com/{HUSH}", HEADER),
            "notify.webhook",
            "an address that is not shown, with the header Authorization; set notify.webhook to https://",
        ),
        (
            (f"notify.webhook=http://hooks.example.com/{HUSH}", f"notify.headers.X-Api-Key={HUSH}"),
            "notify.webhook",
            "with the header X-Api-Key",
        ),
        (
            (f"{S3A}.endpoint=http://minio:9000",),
            "spark.conf.spark.hadoop.fs.s3a.endpoint",
            "http://minio:9000, which requests are signed for",
        ),
        (
            (f"{S3A}.endpoint=minio:9000", f"{S3A}.connection.ssl.enabled=False"),
            "spark.conf.spark.hadoop.fs.s3a.connection.ssl.enabled",
            "false, so requests",
        ),
        # Amazon's own endpoint.
        (
            (f"{S3A}.connection.ssl.enabled='false'",),
            "spark.conf.spark.hadoop.fs.s3a.connection.ssl.enabled",
            "false, so requests",
        ),
        (
            (f"{S3A}.endpoint=https://minio:9000", f"{S3A}.bucket.my.lake.endpoint=http://other:9000"),
            "spark.conf.spark.hadoop.fs.s3a.bucket.my.lake.endpoint",
            "http://other:9000",
        ),
        (
            (f"{S3A}.endpoint=minio:9000", f"{S3A}.bucket.lake.connection.ssl.enabled=false"),
            "spark.conf.spark.hadoop.fs.s3a.bucket.lake.connection.ssl.enabled",
            "false, so requests",
        ),
    ],
)
def test_a_login_that_others_can_read_is_found_where_it_is_set(
    settings: tuple[str, ...], where: str, said: str
) -> None:
    told = found(*settings)
    assert {*told} == {where}
    assert said in told[where]


@pytest.mark.parametrize(
    "settings",
    [
        (),
        # Nobody logs in.
        (REGISTRY,),
        (REGISTRY, f"registry.secrets.ssl.key.password={HUSH}"),
        ("notify.webhook=http://hooks.example.com/x",),
        ("notify.webhook=http://hooks.example.com/x", "notify.headers.X-Team=lake"),
        (HEADER,),
        ("registry.url=https://registry:8081", USER),
        (f"notify.webhook=https://hooks.example.com/{HUSH}", HEADER),
        (f"{S3A}.endpoint=https://minio:9000", f"{S3A}.connection.ssl.enabled=false"),
        (f"{S3A}.endpoint=minio:9000",),
        (f"{S3A}.endpoint.region=http://none",),
        # Nobody else listens.
        ("registry.url=http://localhost:8081", USER),
        ("registry.url=http://127.0.0.2:8081", USER),
        ("registry.url=http://[::1]:8081", USER),
        ("registry.url=http://registry.localhost:8081", USER),
        ("notify.webhook=http://127.0.0.1:9/x", HEADER),
        (f"{S3A}.endpoint=http://localhost:9000",),
        (f"{S3A}.endpoint=localhost:9000", f"{S3A}.connection.ssl.enabled=false"),
        # What is of one bucket wins.
        (
            f"{S3A}.endpoint=localhost:9000",
            f"{S3A}.connection.ssl.enabled=false",
            f"{S3A}.bucket.lake.endpoint=https://minio:9000",
        ),
    ],
)
def test_a_login_that_is_encrypted_or_stays_on_the_machine_is_no_risk(settings: tuple[str, ...]) -> None:
    assert found(*settings) == {}


def test_a_setting_of_all_buckets_is_told_once() -> None:
    more = f"{S3A}.bucket.lake.connection.ssl.enabled=false"
    assert [*found(f"{S3A}.endpoint=http://minio:9000", more)] == ["spark.conf.spark.hadoop.fs.s3a.endpoint"]


KAFKA = "kafka.options.security.protocol"
OAUTH = "kafka.options.sasl.oauthbearer.token.endpoint.url"


@pytest.mark.parametrize(
    ("mechanism", "servers", "said"),
    [
        ("PLAIN", "localhost:9092,k2:9092", "SASL_PLAINTEXT, by which PLAIN sends a password to k2:9092"),
        ("OAUTHBEARER", "10.0.0.1:9092", "OAUTHBEARER sends a token to 10.0.0.1:9092"),
        ("PLAIN", "[::1]:9092,127.0.0.1:9092", None),
        ("SCRAM-SHA-512", "k2:9092", None),
    ],
)
def test_a_password_or_token_that_goes_to_brokers_without_tls_is_found(
    mechanism: str, servers: str, said: str | None
) -> None:
    settings = (f"{KAFKA}=SASL_PLAINTEXT", f"kafka.options.sasl.mechanism={mechanism}")
    told = found(*settings, f"kafka.bootstrap_servers='{servers}'", f"kafka.secrets.sasl.jaas.config={HUSH}")
    assert list(told) == ([KAFKA] if said else [])
    assert (said or "") in told.get(KAFKA, "")


def test_brokers_that_encrypt_are_not_found_but_an_endpoint_of_tokens_is() -> None:
    mechanism = "kafka.options.sasl.mechanism=OAUTHBEARER"
    told = found(
        f"{KAFKA}=SASL_SSL",
        mechanism,
        "kafka.bootstrap_servers=k2:9092",
        f"{OAUTH}=http://login:9000/x?{HUSH}",
    )
    assert list(told) == [OAUTH]
    assert "http://login:9000, with a login" in told[OAUTH]


def test_a_further_cluster_and_the_client_that_publishes_are_looked_at_but_no_retired_cluster() -> None:
    plain = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN")
    clusters = [f"kafka.clusters.{name}.options.{each}" for name in ("eu", "us") for each in plain]
    servers = [f"kafka.clusters.{name}.bootstrap_servers={name}:9092" for name in ("eu", "us")]
    publish = ("publish.topic=out", "publish.bootstrap_servers=out:9092")
    login = [f"publish.options.{each}" for each in plain]
    told = found(*clusters, *servers, "kafka.clusters.us.retired=true", *publish, *login)
    assert list(told) == ["kafka.clusters.eu.options.security.protocol", "publish.options.security.protocol"]
    assert "PLAIN sends a password to out:9092" in told["publish.options.security.protocol"]


PLAIN = (
    f"{KAFKA}=SASL_PLAINTEXT",
    "kafka.options.sasl.mechanism=PLAIN",
    f"kafka.secrets.sasl.jaas.config={HUSH}",
)


def test_a_login_that_publish_shares_is_told_once() -> None:
    told = found("kafka.bootstrap_servers=k:9092", *PLAIN, "publish.topic=out")
    assert list(told) == [KAFKA]
    assert "PLAIN sends a password to k:9092" in told[KAFKA]


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_client_that_publishes_to_another_cluster_is_looked_at_by_its_own_login(name: str) -> None:
    other = ("publish.topic=out", "publish.bootstrap_servers=out:9092")
    login = ("publish.options.security.protocol=sasl_plaintext", f"publish.secrets.sasl.password={HUSH}")
    # The login by which the topic is read is for its own cluster alone, and stays on this machine here.
    assert found("kafka.bootstrap_servers=localhost:9092", *PLAIN, *other) == {}
    told = found(*other, *login, f"publish.options.{name}=PLAIN")
    assert list(told) == ["publish.options.security.protocol"]
    assert "PLAIN sends a password to out:9092" in told["publish.options.security.protocol"]
    secret = f"publish.secrets.{name}=PLAIN"
    assert list(found(*other, *login, secret)) == ["publish.options.security.protocol"]
    assert found(*other, *login, f"publish.options.{name}=SCRAM-SHA-512") == {}
    # A login of its own on the cluster that is read.
    on_same = ("kafka.bootstrap_servers=k:9092", "publish.topic=out", *login, f"publish.options.{name}=PLAIN")
    assert "sends a password to k:9092" in found(*on_same)["publish.options.security.protocol"]
