"""A wrong setting is refused in one message: where it stands, what was found and what was expected."""

from pathlib import Path
from shutil import copytree

import pytest

from pipelines.config.loader import load_config, raw_settings
from pipelines.errors import ConfigError
from pipelines.publishing.settings import sink_of
from pipelines.publishing.slots import transactional_id


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
    "commits and checkpoints on local files depend on how Oncelake's file system, or Hadoop's own, renames"
    " files and keeps their checksums; remove it"
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


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("notify.when", "[]", "expected 1 or more values, got []"),
        ("notify.when", "{a: 1}", "expected a list, got a dict, not shown here"),
        ("batch.lookback_days", "1.5", "expected a whole number, got 1.5"),
        ("batch.lookback_days", "null", "expected a whole number, got nothing"),
        ("batch.lookback_days", "2026-01-02", "expected a whole number, got 2026-01-02"),
        ("batch.lookback_days", "400", "expected a number less than or equal to 366, got 400"),
        ("quarantine.max_share", "some", "expected a number, got 'some'"),
        ("quarantine.max_share", ".nan", "expected a number less than or equal to 1, got nan"),
        ("maintain.compact", "maybe", "expected true or false, got 'maybe'"),
        ("metrics.host", '""', "expected text of 1 or more characters, got ''"),
        ("metrics.host", "1", "expected text in quotes, got 1"),
    ],
)
def test_a_wrong_value_is_refused_once_in_the_words_of_yaml(key: str, value: str, said: str) -> None:
    assert refusal(f"{key}={value}") == f"--set {key}: {key}: {said}"


def test_an_item_that_is_refused_does_not_make_its_list_too_short() -> None:
    said = "expected 'audit_failed', 'source_error' or 'failed', got 'never'"
    assert refusal("notify.when=[never]") == f"--set notify.when: notify.when.0: {said}"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("lake.root", "a b", "a path, or a URI such as s3a://bucket/lake, without spaces, quotes"),
        ("kafka.topic", "a b", "the name of a topic, of 1 to 249 letters, digits, '.', '_' and '-'"),
        ("kafka.bootstrap_servers", "b", "host:port, several separated by commas without spaces, such as"),
        ("ingest.offsets_group", "a{b}", "1 to 200 letters, digits, '.', '_' and '-', with {env} and"),
        (
            "serving.view",
            "a.b.c.d",
            "the name of a view, such as flights, lake.flights or unity.lake.flights",
        ),
        (
            "serving.database",
            "a.b.c",
            "the name of a database, such as lake, or unity.lake in a Spark catalog",
        ),
        ("kafka.rack.variable", "1a", "the name of an environment variable, such as NODE_RACK"),
        ("speed.max_bytes_per_trigger", "64x", "a whole number above 0 with a unit (b, k, m, g or t)"),
        ("contract", "../x.yaml", "a file in the folder of contracts, such as flights.odcs.yaml: letters"),
    ],
)
def test_a_form_is_said_in_words(key: str, value: str, said: str) -> None:
    message = refusal(f"{key}={value}")
    assert message.startswith(f"--set {key}: {key}: expected {said}")
    assert message.endswith(f", got {value!r}")


def test_a_wrong_name_of_a_cluster_is_refused_where_it_stands() -> None:
    where = "--set kafka.clusters: kafka.clusters.A B"
    said = (
        "the name of a cluster, of 1 to 40 small letters, digits and '-', a letter or a digit first and last"
    )
    setting = "kafka.clusters={A B: {bootstrap_servers: 'b:1'}}"
    assert refusal(setting) == f"{where}: expected {said}, got 'A B'"


@pytest.mark.parametrize("name", ["my flights", "shop.flights", "flights.lag", "flights.", "_flights"])
def test_a_file_whose_name_is_no_pipeline_is_to_be_renamed(name: str, tmp_path: Path) -> None:
    conf, ran = tmp_path / "conf", tmp_path / "ran"
    copytree("conf", conf)
    file = conf / f"base/pipelines/{name}.yml"
    text = (conf / "base/pipelines/flights.yml").read_text()
    file.write_text(f"{text}\nregistry: {{url: '${{command:touch {ran}}}'}}\n")
    said = "a name of letters, digits, '_' and '-', a letter or a digit first (rename the file)"
    for read in (
        lambda: load_config(name, conf_dir=conf, environ={}),
        lambda: raw_settings(name, env="local", conf_dir=conf),
    ):
        with pytest.raises(ConfigError) as refused:
            read()
        assert str(refused.value) == f"{file}: expected {said}, got '{name}'"
    # No program that a setting names has run for a pipeline that there cannot be.
    assert not ran.exists()


def test_pipelines_and_environments_never_share_what_is_named_by_them(tmp_path: Path) -> None:
    """A dot divides the parts of these names, and only an environment may have some: the last is the name."""
    conf = tmp_path / "conf"
    copytree("conf", conf)
    text = (conf / "base/pipelines/flights.yml").read_text()
    names = ["flights", "flights-lag", "eu-flights", "eu_flights"]
    envs = ["local", "local.eu", "local.eu-flights"]
    for name in names:
        (conf / f"base/pipelines/{name}.yml").write_text(text)
    for env in envs:
        copytree("conf/local", conf / env, dirs_exist_ok=True)
    settings = ("publish.topic=out", "kafka.clusters.eu.bootstrap_servers=eu:9092")
    configs = [
        load_config(name, env=env, conf_dir=conf, environ={}, settings=settings)
        for name in names
        for env in envs
    ]
    groups = [source.offsets_group for config in configs for source in config.sources()]
    ids = [transactional_id(sink_of(config).name, slot) for config in configs for slot in range(3)]
    assert len({*groups}) == len(groups) == 2 * len(configs)
    assert len({*ids}) == len(ids)
