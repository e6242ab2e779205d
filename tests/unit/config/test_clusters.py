"""A pipeline with several clusters: each source is a view of the configuration, and the first is as ever."""

from datetime import timedelta
from pathlib import Path

import pytest

from pipelines.config.clusters import NOT_SUPPORTED, cluster_of, micros_of, qualified
from pipelines.config.commands import command
from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig
from pipelines.config.taken_risks import taken
from pipelines.delta.stream_check import reset_command
from pipelines.errors import ConfigError

EU = "kafka.clusters.eu.bootstrap_servers=eu:9092"


def config(*settings: str) -> PipelineConfig:
    return load_config("flights", settings=settings, environ={})


def test_one_cluster_is_its_own_source() -> None:
    only = config()
    assert only.sources() == (only,)
    assert only.sources()[0] is only


def test_the_first_cluster_keeps_its_names() -> None:
    alone, first = config(), config(EU).sources()[0]
    assert first.kafka.source_topic == alone.kafka.topic
    assert first.checkpoint("ingest") == alone.checkpoint("ingest")
    assert first.offsets_group == alone.offsets_group
    assert first.kafka.model_dump() == alone.kafka.model_dump()
    assert [each.kafka.has_others for each in (alone, first, config(EU))] == [False, True, True]


def test_a_further_cluster_has_names_of_its_own() -> None:
    first, eu = config(EU).sources()
    assert (eu.kafka.topic, eu.kafka.source_topic) == (first.kafka.topic, f"eu/{first.kafka.topic}")
    assert eu.kafka.bootstrap_servers == "eu:9092"
    assert eu.checkpoint("ingest") == first.checkpoint("ingest") + "_eu"
    assert eu.checkpoint("speed") == first.checkpoint("speed")
    assert eu.offsets_group == f"{first.offsets_group}.eu"
    assert eu.table("bronze") == first.table("bronze")
    assert command(eu, "ingest_stream", "--once") == (
        "oncelake ingest_stream --pipeline flights --cluster eu --once"
    )
    assert command(eu, "nightly_batch") == "oncelake nightly_batch --pipeline flights"
    assert [reset_command(eu, "ingest"), reset_command(eu, "speed")] == [
        "oncelake checkpoint reset --pipeline flights --cluster eu --query ingest",
        "oncelake checkpoint reset --pipeline flights --query speed",
    ]


def test_what_a_cluster_leaves_out_is_as_in_kafka_but_for_options_and_secrets() -> None:
    _, eu = config(
        EU,
        "kafka.starting_offsets=latest",
        "kafka.rack.mode=client",
        "kafka.options.security.protocol=SSL",
        "kafka.secrets.ssl.key.password=of-the-first",
        "kafka.clusters.eu.connect_timeout=5 seconds",
        "kafka.clusters.eu.options.client.id=true",
        "kafka.clusters.eu.secrets.sasl.jaas.config=of-eu",
    ).sources()
    assert eu.kafka.starting_offsets == "latest"
    assert eu.kafka.rack.mode == "client"
    assert eu.kafka.connect_timeout == timedelta(seconds=5)
    assert eu.kafka.options == {"client.id": "true"}
    assert {name: value.get_secret_value() for name, value in eu.kafka.secrets.items()} == {
        "sasl.jaas.config": "of-eu"
    }


def test_known_gaps_belong_to_one_cluster() -> None:
    gap = "{partition: 0, first: 1, last: 2, why: disk"
    both = config(EU, f"audit.known_gaps=[{gap}}}, {gap}, cluster: eu}}]")
    first, eu = both.sources()
    assert [each.cluster for each in first.audit.known_gaps] == [None]
    assert [each.cluster for each in eu.audit.known_gaps] == ["eu"]


@pytest.mark.parametrize("name", ["EU", "eu_west", "eu/west", "-eu", "eu-", "a" * 41])
def test_names_that_would_not_stand_in_a_topic_or_a_path_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.clusters"):
        config(f"kafka.clusters={{{name}: {{bootstrap_servers: 'eu:9092'}}}}")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ("kafka.bootstrap_servers=a:1,eu:9092",),
            "kafka.clusters.eu.bootstrap_servers: expected another cluster",
        ),
        (
            ("kafka.retired=true", "kafka.clusters.eu.retired=true"),
            "expected a cluster that is not, got none",
        ),
        (("batch.seal_by=bronze",), "batch.seal_by: not supported with kafka.clusters"),
        (
            ("audit.known_gaps=[{partition: 0, first: 1, last: 2, why: disk, cluster: us}]",),
            r"expected a cluster of kafka.clusters \(eu\), got us",
        ),
        (("kafka.retired=true", "quarantine.dead_letter_topic=broken"), "quarantine.dead_letter_topic uses"),
        (
            ("kafka.clusters.eu.rack.mode=client", "kafka.clusters.eu.options.client.rack=a"),
            "kafka.clusters.eu.options has client.rack",
        ),
        (("kafka.clusters.eu.topics=other",), "unknown key; did you mean 'topic'"),
        (("kafka.clusters.eu.options.group.id=mine",), "Oncelake sets group.id itself"),
        (
            ("publish.topic=out", "publish.bootstrap_servers=eu:9092", "kafka.clusters.eu.topic=out"),
            "topics of",
        ),
    ],
)
def test_what_does_not_fit_several_clusters_is_refused(settings: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(EU, *settings)


def test_one_cluster_cannot_be_retired_and_gaps_name_no_other() -> None:
    with pytest.raises(ConfigError, match="nothing would be read"):
        config("kafka.retired=true")
    with pytest.raises(ConfigError, match=r"expected a cluster of kafka.clusters \(none\), got eu"):
        config("audit.known_gaps=[{partition: 0, first: 1, last: 2, why: disk, cluster: eu}]")


def test_a_topic_that_was_recreated_is_read_under_another_name() -> None:
    again = "kafka.clusters.eu2.bootstrap_servers=eu:9092"
    with pytest.raises(ConfigError, match="each record would be read twice"):
        config(EU, again)
    named = [each.cluster for each in config(EU, again, "kafka.clusters.eu.retired=true").sources()]
    assert named == [None, "eu", "eu2"]


def test_the_same_address_with_another_topic_is_another_source() -> None:
    _, eu = config("kafka.bootstrap_servers=eu:9092", EU, "kafka.clusters.eu.topic=mirrored").sources()
    assert eu.kafka.source_topic == "eu/mirrored"


def test_two_names_with_the_same_ingestion_times_are_refused() -> None:
    names = {micros_of(f"c{number}"): f"c{number}" for number in range(2_000)}
    other = next(name for number in range(2_000) if names[micros_of(name := f"c{number}")] != name)
    twin = names[micros_of(other)]
    with pytest.raises(ConfigError, match="choose another name"):
        config(
            f"kafka.clusters.{other}.bootstrap_servers=x:1", f"kafka.clusters.{twin}.bootstrap_servers=y:1"
        )


def test_ingestion_times_of_a_cluster_are_no_whole_milliseconds() -> None:
    assert micros_of(None) == timedelta()
    assert all(0 < micros_of(f"c{n}").microseconds < 1_000 for n in range(100))


def test_a_secret_of_a_cluster_in_plain_text_is_refused_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "base/pipelines").mkdir(parents=True)
    (tmp_path / "local").mkdir()
    (tmp_path / "base/pipelines/flights.yml").write_text(
        "kafka: {clusters: {eu: {secrets: {sasl.password: hunter22}}}}\n"
    )
    with pytest.raises(ConfigError, match=r"kafka\.clusters\.eu\.secrets\.sasl\.password") as refused:
        load_config("flights", conf_dir=tmp_path, environ={})
    assert "hunter22" not in str(refused.value)


def test_a_misplaced_secret_of_a_cluster_is_not_shown() -> None:
    with pytest.raises(ConfigError) as refused:
        config("kafka.clusters={eu: hunter22}")
    assert "hunter22" not in str(refused.value)


def test_risks_of_each_cluster_are_found() -> None:
    (risk,) = taken(config(EU, "kafka.clusters.eu.options.session.timeout.ms=8999"))
    assert risk.setting == "kafka.clusters.eu.options.session.timeout.ms"


def test_backfills_of_each_cluster_have_a_client_id_and_a_command_of_their_own() -> None:
    first, eu = config(EU).sources()
    own = [each.backfill_kafka.options["client.id"] for each in (first, eu)]
    assert own == ["oncelake.local.flights.backfill", "oncelake.local.flights.backfill.eu"]
    assert "--cluster" not in command(first, "backfill")
    assert command(eu, "backfill") == "oncelake backfill --pipeline flights --cluster eu"


def test_the_cluster_is_in_the_name_of_the_topic() -> None:
    assert (qualified(None, "flights"), qualified("eu", "flights")) == ("flights", "eu/flights")
    assert (cluster_of("flights"), cluster_of("eu/flights")) == (None, "eu")


def test_the_page_for_operators_names_all_that_is_not_supported() -> None:
    page = Path("docs/clusters.md").read_text(encoding="utf-8")
    section = page.partition("## What is not supported")[2]
    assert [what for what in NOT_SUPPORTED if f"`{what}" not in section] == []
