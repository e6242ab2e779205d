"""Configuration is layered, typed and refused in one message that names the file and the fix."""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from pipelines.config.backfill import BackfillConfig
from pipelines.config.loader import load_config, pipeline_names
from pipelines.errors import ConfigError

BASE = """
contract: flights.odcs.yaml
kafka: {topic: flights}
speed: {watermark_delay: 6 hours}
"""
LOCAL = """
lake: {root: .lake}
kafka: {bootstrap_servers: 'localhost:9092'}
"""


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    for path, text in {
        "base/pipelines/flights.yml": BASE,
        "local/oncelake.yml": LOCAL,
        "prod/pipelines/flights.yml": "speed: {watermark_delay: 2 hours}\n",
        "prod/oncelake.yml": LOCAL,
    }.items():
        file = tmp_path / "conf" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "conf"


def refusal(conf: Path, *settings: str, env: str = "local", name: str = "flights", **environ: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config(name, env=env, conf_dir=conf, settings=settings, environ=environ)
    return str(refused.value)


def test_the_environment_wins_over_base_and_the_command_line_over_both(conf: Path) -> None:
    hours = [
        load_config("flights", env=env, conf_dir=conf, settings=settings, environ={}).speed.watermark_delay
        for env, settings in (("local", ()), ("prod", ()), ("prod", ("speed.watermark_delay=1 hour",)))
    ]
    assert [length.total_seconds() / 3600 for length in hours] == [6, 2, 1]


def test_a_running_cluster_named_in_the_environment_is_used(conf: Path) -> None:
    config = load_config("flights", conf_dir=conf, environ={"KAFKA_BOOTSTRAP_SERVERS": "b:1"})
    assert config.kafka.bootstrap_servers == "b:1"


def test_a_wrong_value_is_refused_with_file_key_expectation_and_what_was_found(conf: Path) -> None:
    path = conf / "prod/pipelines/flights.yml"
    path.write_text("speed: {watermark_delay: '2'}\n")
    expected = f"{path}: speed.watermark_delay: expected an interval such as '2 hours', got '2'"
    assert refusal(conf, env="prod") == expected


def test_an_unknown_key_is_refused_with_the_key_that_was_meant(conf: Path) -> None:
    (conf / "local/oncelake.yml").write_text(LOCAL + "sped: {watermark_delay: 2 hours}\n")
    message = refusal(conf)
    assert message == f"{conf}/local/oncelake.yml: sped: unknown key; did you mean 'speed'?"


def test_every_mistake_is_named_at_once(conf: Path) -> None:
    message = refusal(conf, "kafka.topic=a b", "speed.state_partitions=0", "lake.rot=x")
    assert len(message.splitlines()) == 3


def test_a_missing_key_says_how_to_give_it(conf: Path) -> None:
    (conf / "local/oncelake.yml").write_text("lake: {root: .lake}\n")
    assert refusal(conf).endswith(
        "kafka.bootstrap_servers: missing; add it here or with --set kafka.bootstrap_servers=VALUE"
    )


def test_what_one_pipeline_lacks_is_not_to_be_added_for_all(conf: Path) -> None:
    file = conf / "base/pipelines/flights.yml"
    file.write_text("contract: flights.odcs.yaml\n")
    # The environment has the section, and is read by all pipelines.
    (conf / "local/oncelake.yml").write_text(LOCAL + "speed: {state_partitions: 2}\n")
    fix = "missing; add it here or with --set"
    assert refusal(conf).splitlines() == [
        f"{file}: {key}: {fix} {key}=VALUE" for key in ("kafka.topic", "speed.watermark_delay")
    ]
    (conf / "local/oncelake.yml").write_text("lake: {root: .lake}\nkafka: {connect_timeout: 9 seconds}\n")
    assert f"{conf}/local/oncelake.yml: kafka.bootstrap_servers: {fix}" in refusal(conf)


def test_a_file_in_another_encoding_is_refused_with_what_to_do(conf: Path) -> None:
    file = conf / "local/oncelake.yml"
    file.write_text(LOCAL, encoding="utf-16")
    said = "cannot be read: the byte at position 0 is not UTF-8; save the file as plain text in UTF-8"
    assert refusal(conf) == f"{file}: {said}"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("kafka.options.group.id=mine", "Oncelake sets group.id itself"),
        ("kafka.options.enable.auto.commit='true'", "since a wrong value loses data"),
        ("kafka.bootstrap_servers=nowhere", "got 'nowhere'"),
        ("kafka.max_offsets_per_trigger=many", "got 'many'"),
        ("ingest.trigger_interval=0 seconds", "longer than zero"),
        ("name=other", "the file name is the name"),
        ("env=other", "--env sets the environment"),
        ("kafka.options.ISOLATION.LEVEL=read_uncommitted", "in lower case, got ISOLATION.LEVEL"),
        ("decode.max_future=999999999 days", "of 3650 days at most"),
        ("batch.lease_duration=1 millisecond", "expected 1 second at least"),
        ("run.stuck_after=299 seconds", "expected '5 minutes' at least"),
        ("quarantine.max_share=2", "less than or equal to 1"),
        ("quarantine.min_records=0", "greater than or equal to 1"),
        ("contract=/etc/shadow", "contract: "),
        ("contract=../x.yaml", "contract: "),
        ("kafka.topic=${no-such}", "expected ${NAME}, with letters"),
        ("kafka.topic=2024-13-01", "a value cannot be read"),
        ("speed.state_partitions=true", "speed.state_partitions: expected a number, got true"),
        ("quarantine.max_share=false", "quarantine.max_share: expected a number, got false"),
        ("audit.known_gaps=[{partition: true, first: 1, last: 2, why: x}]", "expected a number, got true"),
        ("audit.known_gaps=[{partition: 0, first: 1, last: 2, wy: x}]", "did you mean 'why'?"),
        ('lake.root="/a\\0b"', "found the character \\0, which no value may have"),
        ("kafka.options.a=\udcff", "--set kafka.options.a: expected text in UTF-8, got other bytes"),
        ("notify.when=failed", "notify.when: expected a list, got 'failed'"),
        ("kafka.options={security.protocol: SSL}", "; set one at a time: --set kafka.options.KEY=VALUE"),
        ("spark.conf.spark.sql.caseSensitive='true'", "Oncelake sets spark.sql.caseSensitive itself"),
        ("kafka.rack.mode=false", "expected 'off', 'client' or 'placement', got false"),
    ],
)
def test_a_wrong_setting_is_refused(conf: Path, setting: str, said: str) -> None:
    assert said in refusal(conf, setting)


def test_a_misspelt_pipeline_is_refused_with_the_one_that_was_meant(conf: Path) -> None:
    assert "did you mean 'flights'?" in refusal(conf, name="flihgts")


@pytest.mark.parametrize(
    "name",
    ["base/pipelines/flights", "base/oncelake", "local/oncelake", "local/pipelines/flights"],
)
def test_a_file_that_nobody_would_read_for_its_ending_is_refused(conf: Path, name: str) -> None:
    path = conf / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("speed: {watermark_delay: 1 hour}\n")
    assert refusal(conf) == f"{path}: expected a name that ends in .yml, got .yaml; rename the file"


def test_a_pipeline_is_not_left_out_for_the_ending_of_its_file(conf: Path) -> None:
    path = conf / "base/pipelines/weather.yaml"
    path.write_text(BASE)
    assert pipeline_names(conf, "local") == ["flights", "weather"], "load_config then says what is wrong"
    assert refusal(conf, name="weather").startswith(f"{path}: expected a name that ends in .yml")
    assert refusal(conf, name="flight").endswith("did you mean 'flights'?")


def test_an_unknown_environment_is_refused_with_those_that_exist(conf: Path) -> None:
    assert "--env takes one of: local, prod" in refusal(conf, env="staging")


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [\n", "just words\n"])
def test_a_file_that_is_no_mapping_is_refused_by_name(conf: Path, text: str) -> None:
    (conf / "local/oncelake.yml").write_text(text)
    assert refusal(conf).startswith(f"{conf}/local/oncelake.yml: ")


@pytest.mark.parametrize(
    ("value", "found"),
    [("", "nothing"), ("hush", "a str, not shown here"), ("[1]", "a list, not shown here")],
)
def test_a_section_that_is_no_mapping_is_refused_even_if_a_later_layer_has_one(
    conf: Path, value: str, found: str
) -> None:
    path = conf / "base/pipelines/flights.yml"
    (conf / "base/oncelake.yml").write_text("batch: {lookback_days: 30}\n")
    path.write_text(BASE + f"batch: {value}\n")
    (conf / "local/oncelake.yml").write_text(LOCAL + "batch: {seal_wait: 1 minute}\n")
    assert refusal(conf) == (
        f"{path}: batch: expected keys with values, got {found}; write some, or remove the key"
    )


def test_a_list_of_sections_is_a_list(conf: Path) -> None:
    (conf / "base/oncelake.yml").write_text(
        "audit: {known_gaps: [{partition: 0, first: 1, last: 2, why: x}]}\n"
    )
    assert [gap.last for gap in load_config("flights", conf_dir=conf, environ={}).audit.known_gaps] == [2]


def test_what_publishes_can_be_switched_off_by_a_later_layer(conf: Path) -> None:
    (conf / "base/oncelake.yml").write_text("publish: {topic: out}\n")
    config = load_config("flights", conf_dir=conf, settings=["publish=null"], environ={})
    assert config.publish is None


def test_a_variable_stands_for_the_environment_s_value(conf: Path) -> None:
    setting = "kafka.secrets.sasl.jaas.config=${JAAS}"
    config = load_config("flights", conf_dir=conf, settings=[setting], environ={"JAAS": "hush"})
    assert config.kafka.secrets["sasl.jaas.config"].get_secret_value() == "hush"
    assert "JAAS is not set" in refusal(conf, setting)
    command = load_config(
        "flights", conf_dir=conf, settings=["notify.command=['${TELL}', now]"], environ={"TELL": "/opt/tell"}
    ).notify.command
    assert command == ("/opt/tell", "now")


def test_settings_of_spark_and_kafka_are_passed_on_letter_by_letter(conf: Path) -> None:
    settings = ["spark.conf.spark.ui.enabled=true", "kafka.options.client.id=010"]
    config = load_config("flights", conf_dir=conf, settings=settings, environ={})
    assert config.spark.conf == {"spark.ui.enabled": "true"}
    assert config.kafka.options == {"client.id": "010"}
    (conf / "local/oncelake.yml").write_text(LOCAL + "spark: {conf: {spark.ui.port: 10}}\n")
    assert "expected text, got a number; write it in quotes" in refusal(conf)


@pytest.mark.parametrize(
    "key", ["spark.sql.session.timeZone", "spark.sql.shuffle.partitions", "spark.sql.variable.substitute"]
)
def test_what_the_results_depend_on_cannot_be_set(conf: Path, key: str) -> None:
    assert f"Oncelake sets {key} itself" in refusal(conf, f"spark.conf.{key}=x")


@pytest.mark.parametrize("setting", ["lake.root=a b", "lake.root=a`b", "lake.root=it's"])
def test_a_root_that_cannot_stand_in_sql_is_refused(conf: Path, setting: str) -> None:
    assert "lake.root" in refusal(conf, setting)


@pytest.mark.parametrize(
    "root",
    [
        *("/", "~/lake", "file:/tmp/x", "hdfs:/x", "s3a://AK:hush@b/x", "s3a://AK:hu/sh/hush@b/x"),
        *("s3a://", "s3a:///", "hdfs://", "://", "lake/*", "lake/{a}"),
    ],
)
def test_a_root_that_would_not_be_where_it_is_meant_is_refused(conf: Path, root: str) -> None:
    message = refusal(conf, f"lake.root={root}")
    assert "lake.root: expected" in message
    assert "hush" not in message


@pytest.mark.parametrize("env", ["", ".", "..", "base", "prod/pipelines", "x" * 300])
def test_an_environment_is_a_folder_of_its_own(conf: Path, env: str) -> None:
    assert "no such environment" in refusal(conf, env=env)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("kafka.bootstrap_servers=user:hush@b:1", "kafka.bootstrap_servers: expected host:port, several"),
        ("kafka.options.ssl.keystore.key.pem=hush", "move it to `secrets`"),
        ("kafka.options.sasl.oauthbearer.config=hush", "move it to `secrets`"),
        ("registry={url: 'http://r?token=hush'}", "registry.url: expected http:// or https://"),
        ("kafka.secret.sasl.password=*hush", "found an alias (*)"),
        ("kafka.secret.sasl.password=!hush", "a tag (!)"),
    ],
)
def test_a_secret_in_a_wrong_place_is_not_shown(conf: Path, setting: str, said: str) -> None:
    message = refusal(conf, setting)
    assert said in message
    assert "hush" not in message


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["quarantine.dead_letter_topic=flights"], "dead_letter_topic: expected another topic"),
        (
            ["kafka.bootstrap_servers=a:1,b:1", "publish={topic: flights, bootstrap_servers: 'b:1'}"],
            "expected topics of their own",
        ),
        (["kafka.options.kafka.security.protocol=SSL"], "without 'kafka.' before them"),
        (["kafka.topic=.."], "which Kafka refuses"),
        (["batch.lookback_days=1:30"], "batch.lookback_days: expected"),
    ],
)
def test_what_cannot_work_or_loops_is_refused(conf: Path, settings: list[str], said: str) -> None:
    assert said in refusal(conf, *settings)


def test_the_group_that_shows_offsets_has_the_names_of_environment_and_pipeline_or_is_none(
    conf: Path,
) -> None:
    groups = [
        load_config("flights", env="prod", conf_dir=conf, settings=settings, environ={}).offsets_group
        for settings in ((), ("ingest.offsets_group=mine-{env}",), ("ingest.offsets_group=null",))
    ]
    assert groups == ["oncelake.prod.flights.ingest", "mine-prod", None]
    assert "ingest.offsets_group: expected" in refusal(conf, "ingest.offsets_group=a{b}")


def test_numbers_are_decimal(conf: Path) -> None:
    config = load_config("flights", conf_dir=conf, settings=["batch.lookback_days=010"], environ={})
    assert config.batch.lookback_days == 10


def test_a_folder_that_cannot_be_read_is_told(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = os.listdir

    def refusing(folder: Path) -> list[str]:
        if Path(folder) == conf / "prod":
            # As root one reads everything.
            raise PermissionError(13, "Permission denied")
        return listed(folder)

    monkeypatch.setattr(os, "listdir", refusing)
    assert f"{conf}/prod: cannot be read: Permission denied" in refusal(conf, env="prod")


def test_a_key_that_stands_twice_is_refused(conf: Path) -> None:
    (conf / "local/oncelake.yml").write_text(LOCAL + "lake: {root: other}\n")
    assert "found a key twice in line 4" in refusal(conf)


def test_a_variable_that_a_later_layer_replaces_need_not_be_set(conf: Path) -> None:
    (conf / "local/oncelake.yml").write_text(LOCAL + "spark: {master: '${NOT_SET}'}\n")
    assert "spark.master: the environment variable NOT_SET is not set" in refusal(conf)
    config = load_config("flights", conf_dir=conf, settings=["spark.master=local[1]"], environ={})
    assert config.spark.master == "local[1]"


@pytest.mark.parametrize(
    "setting",
    [
        "kafka.secrets.ssl.key.password hush",
        "kafka.secrets.=hush",
        "kafka.options={sasl: {jaas: {config: hush}}}",
        "kafka.options={sasl.jaas.config: [hush]}",
        "kafka.options={ssl.key.password: 87654321}",
        "kafka.secrets={ssl.key.password: [hush]}",
        "registry.options.basic.auth.user.info=hush:hush",
        "registry.url=http://user:hush@registry",
        "registry.secrets={basic.auth.user.info: [hush]}",
        "notify.webhook=https://user:hush@hooks.example.internal/",
        "notify.webhook=ftp://hooks.example.internal/hush",
        "notify={webhook: [hush]}",
        "notify={headers: {Authorization: [hush]}}",
        'notify={headers: {Authorization: "hush\\nhush"}}',
    ],
)
def test_a_secret_in_the_wrong_place_is_refused_unseen(conf: Path, setting: str) -> None:
    message = refusal(conf, setting)
    assert "hush" not in message
    assert "87654321" not in message


def test_a_secret_is_never_shown(conf: Path) -> None:
    config = load_config(
        "flights", conf_dir=conf, settings=["kafka.secrets.ssl.key.password=hush"], environ={}
    )
    assert "hush" not in repr(config)
    assert "hush" not in config.model_dump_json()
    assert "move it to `secrets`" in refusal(conf, "kafka.options.sasl.jaas.config=hush")
    assert "hush" not in refusal(conf, "kafka.options.sasl.jaas.config=hush")


def test_the_project_s_own_configuration_is_sound() -> None:
    for name in ("flights", "weather"):
        load_config(name, environ={})
        load_config(name, env="prod", environ={"KAFKA_JAAS_CONFIG": "x"})


def test_a_root_with_dots_means_the_folder_that_it_leads_to(conf: Path, tmp_path: Path) -> None:
    root = f"{tmp_path}/inside/../lake"
    config = load_config("flights", conf_dir=conf, settings=[f"lake.root={root}"], environ={})
    assert config.root == f"{tmp_path}/lake"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("kafka.max_offsets_per_trigger=99999999999999999999", "less than or equal to 9223372036854775807"),
        ("kafka.bootstrap_servers=localhost:99999", "expected ports from 1 to 65535, got 'localhost:99999'"),
        ("registry.url=registry:8081", "expected http:// or https://"),
        ("registry.uri=http://registry", "did you mean 'url'?"),
        ("notify.command=/opt/tell.sh nightly", "expected a list of texts, the program and its arguments"),
        ("notify.command=[]", "expected a list of texts"),
        ("notify.when=[audit]", "expected 'audit_failed', 'source_error' or 'failed', got 'audit'"),
        ("notify.when=[]", "notify.when: "),
    ],
)
def test_a_value_that_would_fail_later_is_refused_at_once(conf: Path, setting: str, said: str) -> None:
    assert said in refusal(conf, setting)


@pytest.mark.parametrize(
    "settings",
    [
        ["publish.topic=flights"],
        ["publish.topic=out", "publish.progress_topic=out"],
        ["publish.topic=out", "publish.progress_topic=flights"],
        ["publish.topic=broken", "quarantine.dead_letter_topic=broken"],
    ],
)
def test_what_is_published_goes_to_a_topic_of_its_own(settings: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"publish: .*expected topics of their own"):
        load_config("flights", environ={}, settings=settings)
    elsewhere = ["publish.topic=flights", "publish.bootstrap_servers=other:9092"]
    assert load_config("flights", environ={}, settings=elsewhere).publish


@pytest.mark.parametrize("share", ["-0.1", "1.1", "much"])
def test_a_share_of_the_delay_is_between_none_and_all(conf: Path, share: str) -> None:
    message = refusal(conf, f"speed.state_eviction_share={share}")
    assert "speed.state_eviction_share: " in message
    assert share in message


def test_the_state_is_scanned_at_whole_milliseconds() -> None:
    settings = ["speed.watermark_delay=1 second", "speed.state_eviction_share=0.0017"]
    speed = load_config("flights", environ={}, settings=settings).speed
    assert speed.eviction_slack == timedelta(milliseconds=1)


@pytest.mark.parametrize("limit", ["0m", "9999999t", "9" * 5_000 + "b"])
def test_a_limit_of_nothing_or_of_more_than_java_holds_is_refused(limit: str) -> None:
    for key in ("publish.max_bytes_per_trigger", "speed.max_bytes_per_trigger"):
        with pytest.raises(ConfigError, match="max_bytes_per_trigger"):
            load_config("flights", environ={}, settings=["publish.topic=out", f"{key}={limit}"])


@pytest.mark.parametrize("name", ["KAFKA_BOOTSTRAP_SERVERS", "SECRET"])
def test_a_variable_that_is_no_text_is_refused_and_not_shown(conf: Path, name: str) -> None:
    settings = ["kafka.secrets.sasl.jaas.config=${SECRET}"]
    environ = {"SECRET": "x", name: "hush\udcff"}
    with pytest.raises(ConfigError) as refused:
        load_config("flights", conf_dir=conf, environ=environ, settings=settings)
    assert f"environment variable {name}: expected text in UTF-8" in str(refused.value)
    assert "hush" not in str(refused.value)


def test_a_secret_in_a_list_or_below_a_key_in_a_wrong_place_is_not_shown(conf: Path) -> None:
    assert "hush" not in refusal(conf, "contract={sasl.jaas.config: hush}", "kafka.topic=[hush]")


def test_a_root_within_a_folder_that_cannot_stand_in_sql_is_refused(
    conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("it's mine", "it`s mine"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "it's mine")
    assert load_config("flights", conf_dir=conf, environ={}).root == f"{tmp_path}/it's mine/.lake"
    monkeypatch.chdir(tmp_path / "it`s mine")
    assert f"lake.root: expected a path without a backtick, got '{tmp_path}/it`s mine/.lake'" in refusal(conf)


NEEDED = {
    **dict.fromkeys(("publish.options.a", "publish.secrets.a"), ("publish.topic=out",)),
    **dict.fromkeys(("registry.options.a", "registry.secrets.a"), ("registry.url=http://localhost:1",)),
}


@pytest.mark.parametrize(
    "name",
    [
        *(
            "kafka.options.a",
            "kafka.secrets.a",
            "publish.options.a",
            "publish.secrets.a",
            "spark.conf.spark.a",
        ),
        *("registry.options.a", "registry.secrets.a", "notify.headers.a"),
    ],
)
def test_settings_of_others_are_taken_letter_by_letter(name: str) -> None:
    # As YAML it would be a number.
    config = load_config("flights", environ={}, settings=[f"{name}=0123", *NEEDED.get(name, ())])
    section, key, rest = name.split(".", 2)
    found = getattr(getattr(config, section), key)[rest]
    assert (found.get_secret_value() if isinstance(found, SecretStr) else found) == "0123"


@pytest.mark.parametrize("name", ["kafka.secrets", "registry.secrets", "notify.headers", "notify.webhook"])
def test_a_value_of_the_wrong_kind_that_may_be_a_secret_is_not_shown(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config("flights", environ={}, settings=[f"{name}=hush", *NEEDED.get(f"{name}.a", ())])
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("chunk", "rate", "most"),
    [(500_000, None, 500_000), (500_000, 1_000, 5_000), (100, 1_000, 100), (9, 1, 5)],
)
def test_a_chunk_of_a_backfill_takes_five_seconds_at_most_where_its_rate_is_limited(
    chunk: int, rate: int | None, most: int
) -> None:
    assert BackfillConfig(chunk_offsets=chunk, max_offsets_per_second=rate).most_at_once == most
