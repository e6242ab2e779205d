"""A wrong setting is refused in one message: where it stands, what was found and what was expected."""

from pathlib import Path
from shutil import copytree

import pytest

from pipelines.config.loader import load_config
from pipelines.errors import ConfigError


def refusal(*settings: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config("flights", settings=settings, environ={})
    return str(refused.value)


@pytest.mark.parametrize(
    ("setting", "where", "found"),
    [
        ("=hush", "--set", "no key before ="),
        (" = hush", "--set", "no key before ="),
        ("", "--set", "nothing"),
        ("kafka.topic", "--set kafka.topic", "no ="),
        ("kafka.topic hush", "--set kafka.topic", "no ="),
        ("kafka.=hush", "--set kafka.", "a key with an empty part"),
        ("kafka..topic=hush", "--set kafka..topic", "a key with an empty part"),
    ],
)
def test_a_setting_that_is_no_key_and_value_is_refused_with_what_is_one(
    setting: str, where: str, found: str
) -> None:
    said = "expected --set key=value, such as --set kafka.topic=flights"
    assert refusal(setting) == f"{where}: {said}, got {found}"


OURS = "Oncelake sets {} itself, since the results depend on it; remove it"
OWN_PROPERTY = (
    "each new table would get this property: with others than Oncelake's, what streams, runs and readers of"
    " certified days still need may be deleted (commits, files, numbers of micro-batches and leases), or rows"
    " cannot be replaced; remove it, and set a property of a single table with ALTER TABLE"
)
LOCAL_FILES = (
    "commits and checkpoints on local files depend on the atomic renames and the checksums of Oncelake's file"
    " system, or of Hadoop's own; remove it"
)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("spark.databricks.delta.properties.defaults.setTransactionRetentionDuration", OWN_PROPERTY),
        ("spark.databricks.delta.properties.defaults.logRetentionDuration", OWN_PROPERTY),
        ("spark.databricks.delta.properties.defaults.appendOnly", OWN_PROPERTY),
        ("spark.hadoop.fs.file.impl", LOCAL_FILES),
        ("spark.hadoop.fs.AbstractFileSystem.file.impl", LOCAL_FILES),
        ("spark.sql.ansi.enabled", OURS),
        ("spark.sql.shuffle.partitions", f"{OURS} (speed.state_partitions decides it)"),
    ],
)
def test_a_setting_of_spark_that_could_lose_data_is_refused_with_the_reason(key: str, said: str) -> None:
    assert refusal(f"spark.conf.{key}=x") == f"--set spark.conf.{key}: spark.conf.{key}: {said.format(key)}"


def test_other_settings_of_spark_are_taken() -> None:
    taken = {
        # Its tables have properties of their own; this is none of them.
        "spark.databricks.delta.properties": "x",
        "spark.hadoop.fs.file.impl.disable.cache": "true",
        "spark.hadoop.fs.s3a.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        # A query of Oncelake has one watermark, so there are none to choose from.
        "spark.sql.streaming.multipleWatermarkPolicy": "max",
        # Limits that executors need are asked for before a job reads, see `preflight.check_executors`.
        "spark.driver.extraJavaOptions": "-Xss4m",
        "spark.executor.extraJavaOptions": "-Xss4m",
    }
    settings = [f"spark.conf.{key}={value}" for key, value in taken.items()]
    conf = load_config("flights", settings=settings, environ={}).spark.conf
    assert {key: conf[key] for key in taken} == taken


def test_each_refused_setting_of_spark_is_named_where_it_stands(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    copytree("conf", conf)
    file = conf / "base/pipelines/flights.yml"
    with file.open("a") as more:
        more.write("spark: {conf: {spark.sql.caseSensitive: 'true', spark.ui.port: '1'}}\n")
    settings = ["spark.conf.spark.ui.port=2", "spark.conf.spark.sql.ansi.enabled=false"]
    with pytest.raises(ConfigError) as refused:
        load_config("flights", conf_dir=conf, settings=settings, environ={})
    lines = str(refused.value).splitlines()
    assert [line.partition(": Oncelake")[0] for line in lines] == [
        f"{file}: spark.conf.spark.sql.caseSensitive",
        "--set spark.conf.spark.sql.ansi.enabled: spark.conf.spark.sql.ansi.enabled",
    ]
