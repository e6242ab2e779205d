"""What `oncelake doctor` finds on a real cluster and in a lake: nothing, and what was done to them."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from pyspark.sql import SparkSession

from pipelines.config.client_templates import SOURCE_TEMPLATES
from pipelines.config.loader import load_config
from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError, SourceError
from pipelines.ledger.leases import lease
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.ingest import ingest
from pipelines.steps.publish import publish
from tests.support.cli_calls import outcome
from tests.support.kafka import MakeTopic, fresh_topics, ordered_producer
from tests.support.lakes import Lake, flight
from tests.support.nights import ONE, run, stream

WEEK = {"retention.ms": str(7 * 86_400_000)}


@dataclass(frozen=True)
class Patient:
    """A pipeline that runs: what was sent is read, published and certified."""

    lake: Lake
    topic: str
    settings: tuple[str, ...]

    @property
    def root(self) -> Path:
        return Path(self.lake.config.root)

    def examined(self, *settings: str, options: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
        """The exit code of doctor, and its summary."""
        given = (f"--set={setting}" for setting in (*self.settings, *settings))
        return outcome("doctor", "--pipeline", "flights", *given, *options)

    def copied(self, folder: Path) -> "Patient":
        """The same with a lake of its own."""
        shutil.copytree(self.root, folder / "lake")
        others = tuple(each for each in self.settings if not each.startswith("lake.root="))
        return Patient(self.lake, self.topic, (*others, f"lake.root={folder}/lake"))


@pytest.fixture(scope="module")
def patient(
    spark: SparkSession,
    small: DataContract,
    broker: str,
    admin: AdminClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Patient]:
    with fresh_topics(admin) as topic:
        name, output = topic(2, "flights", **WEEK), topic(2, "events", **{"cleanup.policy": "compact"})
        settings = (
            f"lake.root={tmp_path_factory.mktemp('doctor')}/lake",
            f"kafka.bootstrap_servers={broker}",
            f"kafka.topic={name}",
            f"publish.topic={output}",
            "publish.slots=2",
            f"publish.progress_topic={topic(2, 'progress', **{'cleanup.policy': 'compact'})}",
            "publish.template=realtime",
            "kafka.template=realtime",
        )
        lake = Lake(Pipeline(spark, load_config("flights", environ={}, settings=settings), small))
        send(broker, name, 20)
        ingest(lake.pipeline, once=True)
        stream(lake)
        publish(lake.pipeline, once=True)
        run(lake, ONE)
        yield Patient(lake, name, settings)


def send(broker: str, topic: str, count: int) -> None:
    producer = ordered_producer(broker)
    for number in range(count):
        producer.produce(topic, flight(flight=number), partition=0)
    assert producer.flush(60) == 0


def set_topic(admin: AdminClient, topic: str, **settings: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)


def found(summary: dict[str, Any]) -> dict[str, str]:
    """The severity of what each check has found."""
    return {each["check"]: each["severity"] for each in summary["findings"]}


def files(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if path.is_file()}


def test_of_a_pipeline_that_runs_nothing_is_found_and_nothing_is_changed(patient: Patient) -> None:
    before = files(patient.root)
    code, summary = patient.examined(options=("--fail-on", "warning"))
    assert (code, summary["findings"]) == (0, [])
    assert summary["lines"] == ["nothing found"]
    assert {each["status"] for each in summary["checks"]} == {"passed", "not_applicable"}
    # It has no dead-letter topic; all else was looked at.
    lacks = [each["name"] for each in summary["checks"] if each["status"] == "not_applicable"]
    assert lacks == ["dead_letters_fit"]
    assert files(patient.root) == before


def test_what_was_done_to_topic_settings_and_stream_is_found(
    patient: Patient, admin: AdminClient, broker: str
) -> None:
    set_topic(admin, patient.topic, unclean_leader_election_enable="true", retention_bytes="1000000000")
    send(broker, patient.topic, 5)
    at = TopicPartition(patient.topic, 0, 22)
    admin.delete_records([at])[at].result(30)
    try:
        code, summary = patient.examined(
            "publish.slots=3", "speed.watermark_delay=1 hour", "quarantine.dead_letter_topic=nobody-made-it"
        )
        assert found(summary) == {
            "dead_letter_topic_is_there": "error",
            "unread_records_are_there": "error",
            "rules_are_those_of_the_tables": "error",
            "no_unclean_election": "warning",
            "retention_is_by_time": "warning",
            "slots_have_partitions": "warning",
        }
        assert (code, summary["status"]) == (3, "failed")
        (lost,) = (each for each in summary["findings"] if each["check"] == "unread_records_are_there")
        assert lost["found"].endswith(f"{patient.topic}-0: 2")
        assert lost["runbook"] == "docs/runbook.md#offsets-are-gone"
    finally:
        set_topic(admin, patient.topic, unclean_leader_election_enable="false", retention_bytes="-1")


def test_a_cluster_that_does_not_answer_is_one_finding(patient: Patient) -> None:
    code, summary = patient.examined("kafka.bootstrap_servers=localhost:1", "kafka.connect_timeout=1 second")
    assert code == 3
    assert found(summary) == {"cluster_answers": "error"}
    assert "no answer within 1 s" in summary["findings"][0]["found"]
    assert "Traceback" not in str(summary)
    statuses = {each["name"]: each["status"] for each in summary["checks"]}
    assert statuses["retention_covers_runs"] == statuses["progress_agrees"] == "skipped"
    # The lake was looked at all the same.
    assert statuses["tables_fit_checkpoints"] == "passed"


def test_each_of_several_clusters_is_looked_at_and_one_that_is_down_hides_no_other(
    patient: Patient,
    contract: DataContract,
    topic: MakeTopic,
    admin: AdminClient,
    broker: str,
    tmp_path: Path,
) -> None:
    """Two topics are as two clusters are, as long as nothing is asked of brokers alone; a third is down."""
    first, eu = topic(1, "first", **WEEK), topic(1, "eu", **WEEK)
    settings = (
        f"lake.root={tmp_path}/lake",
        f"kafka.bootstrap_servers={broker}",
        f"kafka.topic={first}",
        f"kafka.clusters.eu.bootstrap_servers={broker}",
        f"kafka.clusters.eu.topic={eu}",
        "kafka.clusters.gone.bootstrap_servers=localhost:1",
        "kafka.clusters.gone.connect_timeout=1 second",
        f"quarantine.dead_letter_topic={topic(1, 'broken', **{'max.message.bytes': '2000000'})}",
    )
    config = load_config("flights", environ={}, settings=settings)
    sources = Pipeline(patient.lake.spark, config, contract).sources()
    for source in sources[:2]:
        send(broker, source.config.kafka.topic, 5)
        ingest(source, once=True)
    set_topic(admin, eu, retention_bytes="1000000000")
    send(broker, eu, 4)
    at = TopicPartition(eu, 0, 7)
    admin.delete_records([at])[at].result(30)

    def told(*options: str, more: tuple[str, ...] = ()) -> tuple[int, dict[str, Any], set[tuple[str, Any]]]:
        given = (f"--set={setting}" for setting in (*settings, *more))
        code, summary = outcome("doctor", "--pipeline", "flights", *given, *options)
        return code, summary, {(each["check"], each["cluster"]) for each in summary["findings"]}

    code, summary, found = told("--fail-on", "warning")
    assert code == 3
    assert found == {
        ("cluster_answers", "gone"),
        ("unread_records_are_there", "eu"),
        ("retention_is_by_time", "eu"),
    }
    assert {each["servers"] for each in summary["findings"]} == {broker, "localhost:1"}
    (lost,) = (each for each in summary["findings"] if each["check"] == "unread_records_are_there")
    assert lost["found"].endswith(f"{eu}-0: 2")
    assert lost["fix"].startswith(
        "find out what is missing: oncelake reconcile --pipeline flights --cluster eu"
    )
    statuses = {
        cluster: {each["name"]: each["status"] for each in summary["checks"] if each["cluster"] == cluster}
        for cluster in (None, "eu", "gone")
    }
    of_ingest = ("tables_fit_checkpoints", "streams_ended_well", "topic_is_that_of_bronze")
    assert {statuses[cluster][name] for cluster in (None, "eu") for name in of_ingest} == {"passed"}
    assert (
        statuses["gone"]["retention_covers_runs"] == statuses["gone"]["topic_is_that_of_bronze"] == "skipped"
    )
    assert statuses[None]["dead_letters_fit"] == statuses[None]["put_if_absent"] == "passed"

    # One alone is asked, and the rest of the pipeline is looked at all the same.
    code, summary, found = told("--cluster", "eu")
    assert code == 3
    assert found == {
        ("unread_records_are_there", "eu"),
        ("retention_is_by_time", "eu"),
        ("clusters_not_looked_at", None),
    }
    assert "the first cluster, gone" in str(summary["findings"])
    # Bronze was filled from the topics of before.
    other = topic(1, "other", **WEEK)
    code, summary, found = told(more=(f"kafka.clusters.eu.topic={other}", "kafka.clusters.gone.retired=true"))
    assert {("topic_is_that_of_bronze", "eu"), ("clusters_not_looked_at", None)} <= found
    assert ("topic_is_that_of_bronze", None) not in found
    assert not [each for each in found if each[1] == "gone"]
    code, summary = patient.examined(options=("--cluster", "us"))
    assert (code, "there are: none" in summary["error"]) == (2, True)


def test_what_was_done_to_the_lake_is_found(patient: Patient, tmp_path: Path) -> None:
    broken = patient.copied(tmp_path)
    config = load_config("flights", environ={}, settings=broken.settings)
    shutil.rmtree(config.checkpoint("speed"))
    shutil.rmtree(config.ops_table("certifications"))
    code, summary = broken.examined()
    assert code == 3
    errors = [each["check"] for each in summary["findings"] if each["severity"] == "error"]
    assert {"tables_fit_checkpoints", "certified_version_is_there"} <= {*errors}

    log = Path(config.table("quarantine"), "_delta_log")
    newest = max(log.glob("*.json"))
    newest.write_text("")
    code, summary = broken.examined()
    assert code == 3
    assert found(summary)["commits_are_whole"] == "error"
    assert str(newest) in str(summary["findings"])
    statuses = {each["name"]: each["status"] for each in summary["checks"]}
    assert statuses["certified_version_is_there"] == "skipped"


def test_a_run_at_work_is_told_and_fails_nothing(patient: Patient) -> None:
    with lease(patient.lake.pipeline, "night"):
        code, summary = patient.examined(options=("--fail-on", "warning"))
    told = {check: severity for check, severity in found(summary).items() if severity == "info"}
    assert told == {"lease_is_not_left_over": "info"}
    assert "run night" in str(summary["findings"])
    # Records that another test has deleted.
    assert code == (3 if "unread_records_are_there" in found(summary) else 0)


def test_a_first_start_that_would_skip_records_is_refused_and_accepted_by_name(
    spark: SparkSession,
    contract: DataContract,
    patient: Patient,
    topic: MakeTopic,
    broker: str,
    tmp_path: Path,
) -> None:
    name = topic(partitions=1)
    send(broker, name, 3)
    own = (f"lake.root={tmp_path}/lake", f"kafka.topic={name}", "kafka.starting_offsets=latest")
    settings = (*patient.settings, *own)

    def records(*more: str) -> int:
        config = load_config("flights", environ={}, settings=(*settings, *more))
        return ingest(Pipeline(spark, config, contract), once=True).records

    with pytest.raises(
        ConfigError, match=r"latest on a first start, expected earliest.*add starting_offsets"
    ):
        records()
    assert not (tmp_path / "lake/bronze").exists()
    code, summary = patient.examined(*own)
    assert code == 3
    assert found(summary)["first_start_reads_all"] == "error"
    # A start that died before it knew where to begin leaves an id alone.
    checkpoint = tmp_path / "lake/ops/checkpoints/flights/ingest"
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"5b4f2f0e-0e0c-4a41-9f55-4a7d34d5a8d1"}')
    with pytest.raises(ConfigError, match="latest on a first start"):
        records()
    assert found(patient.examined(*own)[1])["first_start_reads_all"] == "error"
    assert records("accept_risks=[starting_offsets_latest]") == 0
    # It has begun, so nothing is skipped from now on.
    send(broker, name, 2)
    assert records("kafka.template=backfill") == 2
    assert records("kafka.template=nightly") == 0


def test_a_stream_that_has_not_begun_refuses_slots_without_a_partition(
    patient: Patient, contract: DataContract, topic: MakeTopic, tmp_path: Path
) -> None:
    own = (f"publish.progress_topic={topic(partitions=1)}", f"lake.root={tmp_path}/lake", "publish.slots=3")
    config = load_config("flights", environ={}, settings=(*patient.settings, *own))
    with pytest.raises(
        ConfigError, match=r"publish\.slots: found 3, expected 2 at most.*add slots_over_part"
    ):
        publish(Pipeline(patient.lake.spark, config, contract), once=True)


def test_a_stream_whose_checkpoint_was_moved_aside_has_begun(
    patient: Patient, contract: DataContract, tmp_path: Path
) -> None:
    settings = (*patient.copied(tmp_path).settings, "publish.slots=3")
    config = load_config("flights", environ={}, settings=settings)
    Path(config.checkpoint("publish")).rename(tmp_path / "aside")
    # Refused not for its slots, but for progress without a checkpoint: `publish reset` is the way out.
    with pytest.raises(SourceError, match=r"its checkpoint .* does not exist"):
        publish(Pipeline(patient.lake.spark, config, contract), once=True)


def test_kafkas_client_knows_the_settings_of_the_templates(spark: SparkSession) -> None:
    java: Any = spark.sparkContext._jvm
    known = {*java.java.util.ArrayList(java.org.apache.kafka.clients.consumer.ConsumerConfig.configNames())}
    assert {each.name for template in SOURCE_TEMPLATES.values() for each in template} <= known
