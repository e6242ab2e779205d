"""A lake on S3 without a log store that several JVMs share is refused before anything starts."""

import pytest

from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig
from pipelines.errors import ConfigError
from pipelines.spark import session
from pipelines.spark.session import spark_session

CONDITIONAL = "oncelake.store.S3ConditionalLogStore"
DYNAMODB = "io.delta.storage.S3DynamoDBLogStore"


def config(root: str, *settings: str) -> PipelineConfig:
    return load_config("flights", environ={}, settings=[f"lake.root={root}", *settings])


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> None:
        raise RuntimeError("Java is started")

    monkeypatch.setattr(session, "use_java", start)


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n", "S3A"])
@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("spark.conf.spark.delta.logStore.gs.impl=io.delta.storage.GCSLogStore",),
        # Delta's own choice for S3, which keeps apart what runs in one JVM only.
        ("spark.conf.spark.delta.logStore.class=io.delta.storage.S3SingleDriverLogStore",),
    ],
)
def test_s3_without_a_shared_log_store(scheme: str, settings: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refused:
        spark_session(config(f"{scheme}://bucket/lake", *settings), "test")
    assert refused.value.exit_code == 2
    assert f"spark.conf.spark.delta.logStore.{scheme.lower()}.impl={CONDITIONAL}" in str(refused.value)


@pytest.mark.parametrize(
    ("root", "settings"),
    [
        ("s3a://bucket/lake", [f"spark.conf.spark.delta.logStore.s3a.impl={CONDITIONAL}"]),
        ("s3a://bucket/lake", [f"spark.conf.spark.delta.logStore.s3a.impl={DYNAMODB}"]),
        ("s3a://bucket/lake", ["spark.conf.spark.delta.logStore.class=org.example.OurLogStore"]),
        ("gs://bucket/lake", []),
        ("abfss://container@account/lake", []),
        (".lake", []),
        ("s3a-lake", []),
    ],
)
def test_session_starts_where_the_log_store_has_put_if_absent(root: str, settings: list[str]) -> None:
    with pytest.raises(RuntimeError, match="Java is started"):
        spark_session(config(root, *settings), "test")


@pytest.mark.parametrize("root", [".lake", "/data/lake", "file:///data/lake"])
@pytest.mark.parametrize(
    "setting",
    [
        "spark.delta.logStore.class=io.delta.storage.HDFSLogStore",
        "spark.delta.logStore.file.impl=io.delta.storage.LocalLogStore",
    ],
)
def test_a_local_lake_with_a_log_store_that_looks_before_it_writes(root: str, setting: str) -> None:
    with pytest.raises(ConfigError, match=setting.replace("=", "=.*")) as refused:
        spark_session(config(root, f"spark.conf.{setting}"), "test")
    assert "one commit is lost" in str(refused.value)


def test_the_example_is_safe() -> None:
    prod = load_config("flights", env="prod", environ={"KAFKA_JAAS_CONFIG": "x"})
    assert prod.root.startswith("s3a://")
    with pytest.raises(RuntimeError, match="Java is started"):
        spark_session(prod, "test")


def test_a_log_store_for_another_scheme_is_none() -> None:
    with pytest.raises(ConfigError, match=r"logStore\.s3\.impl"):
        spark_session(config("s3://b/l", f"spark.conf.spark.delta.logStore.s3a.impl={DYNAMODB}"), "test")
