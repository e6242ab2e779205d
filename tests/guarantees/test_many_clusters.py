"""One stream from two clusters: producers fail over with overlap, a broker is killed, and no day is wrong."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.delta.first_complete_day import first_complete_day
from pipelines.delta.idempotent_writer import IdempotentWriter
from pipelines.delta.tables import version
from pipelines.errors import ConfigError, InfrastructureError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.kafka.backfill_plan import BackfillSpan
from pipelines.kafka.backfill_run import Backfill
from pipelines.lag.stages import stages
from pipelines.ledger.ops_tables import CERTIFICATIONS
from pipelines.runtime.local_broker import EmbeddedBroker
from pipelines.spark.checkpoints import query_files
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.streams import Trigger, each_batch
from pipelines.steps.backfill import backfill
from pipelines.steps.doctor import ChecksFailed, diagnose
from pipelines.steps.ingest import IngestJob, ingest
from pipelines.steps.reconcile import reconcile
from testbed.waiting import wait_until
from tests.support.accidents import once
from tests.support.changes_by_hand import change_by_hand
from tests.support.kafka import MakeTopic, make_topic, start_brief_broker
from tests.support.lakes import Lake
from tests.support.nights import ONE, TWO, flights_of, on, run, stream

MakeLake = Callable[..., Lake]


@dataclass
class Regions:
    """A lake whose pipeline reads a topic from two clusters; the second may be killed."""

    lake: Lake
    topic: str
    first: str
    eu: EmbeddedBroker

    def source(self, cluster: str | None = None) -> Pipeline:
        return next(each for each in self.lake.pipeline.sources() if each.config.cluster == cluster)

    def send(self, servers: str, day: int, numbers: range) -> None:
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        for number in numbers:
            record = on(day, number, partition=number % 2)
            at = int(record.sent.timestamp() * 1000)
            producer.produce(self.topic, record.value, partition=record.partition, timestamp=at)
        assert producer.flush(30) == 0

    @property
    def eu_servers(self) -> str:
        return self.lake.config.kafka.clusters["eu"].bootstrap_servers

    def configured(self, *, without: str | None = None, **changes: object) -> None:
        """Change what the configuration says of the second cluster, or leave it out."""
        kafka = self.lake.config.kafka
        clusters = {name: each.model_copy(update=changes) for name, each in kafka.clusters.items()}
        clusters = {name: each for name, each in clusters.items() if name != without}
        kafka = kafka.model_copy(update={"clusters": clusters})
        self.lake.config = self.lake.config.model_copy(update={"kafka": kafka})

    def kill(self) -> None:
        assert self.eu.pid is not None
        process = psutil.Process(self.eu.pid)
        process.kill()
        process.wait(30)
        self.eu.stop()

    def restart(self) -> None:
        assert self.eu.folder is not None
        self.eu = start_brief_broker(self.eu.folder)
        address = self.lake.config.kafka.clusters["eu"].bootstrap_servers
        assert self.eu.bootstrap_servers == address, "another process took the port"


@pytest.fixture
def regions(
    make_lake: MakeLake, contract: DataContract, broker: str, topic: MakeTopic, tmp_path: Path
) -> Iterator[Regions]:
    name = topic(partitions=2)
    eu = start_brief_broker(tmp_path / "eu")
    found: Regions | None = None
    try:
        make_topic(AdminClient({"bootstrap.servers": eu.bootstrap_servers}), NewTopic(name, 2, 1))
        lake = make_lake(
            "batch.seal_by=kafka",
            "batch.seal_wait=0 seconds",
            "kafka.connect_timeout=5 seconds",
            "ingest.trigger_interval=100 milliseconds",
            # Its micro-batches then say nothing of where Kafka's partitions ended.
            "kafka.max_offsets_per_trigger=1000",
            "ingest.offsets_group=null",
            f"kafka.bootstrap_servers={broker}",
            f"kafka.topic={name}",
            f"kafka.clusters.eu.bootstrap_servers={eu.bootstrap_servers}",
            # A stream whose broker is killed is then stopped soon.
            "kafka.clusters.eu.options.default.api.timeout.ms=5000",
            "kafka.clusters.eu.options.request.timeout.ms=4000",
            contract=replace(contract, day_rules=()),
        )
        found = Regions(lake, name, broker, eu)
        yield found
    finally:
        (eu if found is None else found.eu).stop()


@contextmanager
def streaming(source: Pipeline) -> Iterator[None]:
    """Ingest one cluster as a stream that goes on, for the length of a block."""
    checkpoint = source.checkpoint("ingest")
    writer = IdempotentWriter(source.table("bronze"), query_files(source.spark, checkpoint).in_flight)
    job = IngestJob(source, writer, once=False)
    trigger = Trigger(False, source.config.ingest.trigger_interval)
    query = each_batch(job.plan(), job.write, name="ingest", checkpoint=checkpoint, trigger=trigger)
    try:
        yield
        assert query.isActive, query.exception()
    finally:
        query.stop()


def backfilled(regions: Regions, cluster: str | None) -> Backfill:
    """Fill what bronze lacks of a cluster."""
    asked = BackfillSpan(since=datetime(2000, 1, 1, tzinfo=UTC), cluster=cluster)
    return backfill(regions.lake.pipeline, "run", asked, lambda _: None)


def drop(regions: Regions, condition: str) -> None:
    """Take records out of bronze, as an accident does."""
    bronze = regions.lake.config.table("bronze")
    change_by_hand(regions.lake.spark, bronze, lambda rows: rows.delete(condition))


def moments_of_commits(lake: Lake, since: int) -> list[tuple[int, datetime]]:
    """The commits that brought records to bronze since a version, and when these were ingested."""
    feed = lake.spark.read.format("delta").option("readChangeFeed", "true")
    came = feed.option("startingVersion", since).load(lake.config.table("bronze"))
    rows = came.where("_change_type = 'insert'").select("_commit_version", "_ingested_at").distinct()
    return sorted((row[0], row[1]) for row in rows.collect())


def held(regions: Regions, topic: str) -> int:
    return regions.lake.table("bronze").where(F.col("_topic") == topic).count()


def certified_days(lake: Lake) -> set[date]:
    if not CERTIFICATIONS.exists(lake.pipeline):
        return set()
    rows = CERTIFICATIONS.rows(lake.pipeline).where("status = 'certified'").select("day").collect()
    return {row["day"] for row in rows}


def numbers_of(lake: Lake, day: date) -> list[int]:
    return [number for number, _ in flights_of(lake.table("batch"), day)]


@pytest.mark.thorough
def test_producers_fail_over_with_overlap_while_a_broker_is_killed(regions: Regions) -> None:
    lake, eu_topic = regions.lake, f"eu/{regions.topic}"
    regions.send(regions.first, 1, range(1, 45))
    regions.send(regions.eu.bootstrap_servers, 1, range(30, 60))
    ingest(regions.source(), once=True)
    with pytest.raises(SourceError, match=f"ingest has not started for {eu_topic}"):
        run(lake, ONE)
    ingest(regions.source("eu"), once=True)
    stream(lake)
    assert run(lake, ONE).days == {ONE: "certified"}
    assert numbers_of(lake, ONE) == [*range(1, 60)]

    with streaming(regions.source("eu")):
        regions.send(regions.eu.bootstrap_servers, 2, range(100, 120))
        wait_until(lambda: held(regions, eu_topic) == 50, "bronze has what came before the kill", 60)
        regions.send(regions.eu.bootstrap_servers, 2, range(120, 140))
        regions.kill()
    # Producers go over to the first cluster, and send what was not acknowledged in time once more.
    regions.send(regions.first, 2, range(110, 180))
    ingest(regions.source(), once=True)
    stream(lake)
    with pytest.raises(InfrastructureError, match=r"kafka\.clusters\.eu\.bootstrap_servers"):
        run(lake, TWO)
    assert certified_days(lake) == {ONE}
    first, eu, _ = stages(lake.pipeline)
    assert (first.name, first.unreachable, eu.name) == ("ingest", None, "ingest@eu")
    assert "kafka.clusters.eu" in (eu.unreachable or "")

    regions.restart()
    regions.send(regions.eu.bootstrap_servers, 2, range(170, 190))
    with pytest.raises(SourceError, match=f"cannot be sealed yet: {eu_topic}-0"):
        run(lake, TWO)
    ingest(regions.source("eu"), once=True)
    stream(lake)
    assert run(lake, TWO).days == {TWO: "certified"}
    assert numbers_of(lake, TWO) == [*range(100, 190)]
    assert numbers_of(lake, ONE) == [*range(1, 60)]
    assert held(regions, eu_topic) == 90
    assert [reconcile(source).missing for source in lake.pipeline.sources()] == [0, 0]


def examined(regions: Regions) -> dict[tuple[str, str], set[str]]:
    """By severity and cluster, the names of the checks of doctor that found something; `-` is no cluster."""
    try:
        report = diagnose(regions.lake.config, lambda: regions.lake.pipeline, "error")
    except ChecksFailed as failed:
        report = failed.checkup
    found = dict[tuple[str, str], set[str]]()
    for check, finding in report.findings():
        name = (finding.cluster.name or "first") if finding.cluster else "-"
        found.setdefault((finding.severity, name), set()).add(check.name)
    asked = {each.cluster.servers for each in report.results if each.cluster}
    assert asked == {regions.first, regions.eu_servers}
    return found


def test_doctor_looks_at_each_cluster_and_one_that_was_killed_hides_nothing_of_the_other(
    regions: Regions,
) -> None:
    for servers in (regions.first, regions.eu_servers):
        regions.send(servers, 1, range(10))
    for cluster in (None, "eu"):
        ingest(regions.source(cluster), once=True)
    assert [each for each in examined(regions) if each[0] == "error"] == []
    # Records of the one are gone before they were read, and of the other the broker is.
    regions.send(regions.first, 1, range(10, 20))
    read = [TopicPartition(regions.topic, partition, 10) for partition in range(2)]
    admin = AdminClient({"bootstrap.servers": regions.first})
    for deleted in admin.delete_records(read).values():
        deleted.result(30)
    regions.kill()
    found = examined(regions)
    assert found["error", "first"] == {"unread_records_are_there"}
    assert found["error", "eu"] == {"cluster_answers"}
    assert ("error", "-") not in found


def test_a_cluster_is_left_out_only_by_name_and_never_forgotten(regions: Regions) -> None:
    lake = regions.lake
    # Producers went over to the other cluster, and sent some events to both.
    regions.send(regions.first, 1, range(1, 7))
    regions.send(regions.eu.bootstrap_servers, 1, range(4, 10))
    for source in lake.pipeline.sources():
        ingest(source, once=True)
    stream(lake)
    with pytest.raises(ConfigError, match="--cluster europe: no such cluster"):
        backfilled(regions, "europe")
    both = lake.config

    # Swapped, renamed, and left out: the topic of each is known.
    eu = both.kafka.clusters["eu"]
    swapped = both.kafka.model_copy(
        update={
            "bootstrap_servers": eu.bootstrap_servers,
            "clusters": {"eu": eu.model_copy(update={"bootstrap_servers": regions.first})},
        }
    )
    lake.config = both.model_copy(update={"kafka": swapped})
    for source in lake.pipeline.sources():
        with pytest.raises(SourceError, match="clusters were renamed or swapped"):
            ingest(source, once=True)
    lake.config = both.model_copy(
        update={"kafka": both.kafka.model_copy(update={"clusters": {"europe": eu}})}
    )
    with pytest.raises(SourceError, match="knows as that of eu"):
        ingest(regions.source("europe"), once=True)
    with pytest.raises(SourceError, match="found eu, expected europe"):
        run(lake, ONE)
    lake.config = both
    regions.configured(without="eu")
    with pytest.raises(SourceError, match="found eu, expected none"):
        run(lake, ONE)
    assert certified_days(lake) == set()

    lake.config = both
    regions.kill()
    regions.configured(retired=True)
    night = run(lake, ONE)
    assert night.days == {ONE: "certified"}
    assert any("not asked: eu" in each for each in night.warnings)
    assert numbers_of(lake, ONE) == [*range(1, 10)]
    with pytest.raises(ConfigError, match=r"kafka\.clusters\.eu\.retired"):
        ingest(regions.source("eu"), once=True)
    with pytest.raises(ConfigError, match=r"kafka\.clusters\.eu\.retired"):
        backfilled(regions, "eu")


@pytest.mark.thorough
def test_what_a_new_cluster_had_deleted_keeps_days_from_being_certified(regions: Regions) -> None:
    lake = regions.lake
    regions.send(regions.first, 1, range(1, 5))
    ingest(regions.source(), once=True)
    regions.send(regions.eu.bootstrap_servers, 1, range(5, 9))
    eu = AdminClient({"bootstrap.servers": regions.eu.bootstrap_servers})
    deleted = eu.delete_records([TopicPartition(regions.topic, 0, 1)])
    assert [each.result(30).low_watermark for each in deleted.values()] == [1]
    ingest(regions.source("eu"), once=True)
    stream(lake)
    # The first record that is left was sent on the first of January, for a day later at most.
    assert first_complete_day(lake.pipeline) == date(2013, 1, 3)
    with pytest.raises(ConfigError, match="2013-01-01 cannot be rebuilt or audited"):
        run(lake, ONE)


@pytest.mark.thorough
def test_a_backfill_reads_one_cluster_while_both_ingests_go_on_and_the_night_is_exact(
    regions: Regions,
) -> None:
    lake, eu_topic = regions.lake, f"eu/{regions.topic}"
    first, eu = regions.source(), regions.source("eu")
    regions.send(regions.first, 1, range(1, 31))
    regions.send(regions.eu.bootstrap_servers, 1, range(21, 61))
    ingest(first, once=True)
    with pytest.raises(SourceError, match=f"ingest has not started for {eu_topic}"):
        backfilled(regions, "eu")
    ingest(eu, once=True)
    drop(regions, f"_topic = '{eu_topic}' AND _offset BETWEEN 3 AND 12")
    drop(regions, f"_topic = '{regions.topic}' AND _offset IN (2, 7)")
    before = version(lake.spark, lake.config.table("bronze"))

    def other_commits() -> None:
        # What it brings was planned after the chunk was, which may not come behind it.
        regions.send(regions.first, 1, range(61, 71))
        ingest(first, once=True)

    def both_commit() -> None:
        other_commits()
        regions.send(regions.eu.bootstrap_servers, 1, range(71, 81))
        ingest(eu, once=True)

    with armed(Point.OFFSETS_PLANNED, both_commit), armed(Point.CHUNK_DRAFTED, once(other_commits)):
        done = backfilled(regions, "eu")
    assert (done.topic, done.progress.records) == (eu_topic, 20)
    assert held(regions, regions.topic) == 30 - 4 + 20
    commits = moments_of_commits(lake, before + 1)
    assert [at for _, at in commits] == sorted({at for _, at in commits})
    assert backfilled(regions, None).progress.records == 4
    assert [backfilled(regions, cluster).progress.total for cluster in (None, "eu")] == [0, 0]

    assert (held(regions, regions.topic), held(regions, eu_topic)) == (50, 50)
    assert [reconcile(source).missing for source in lake.pipeline.sources()] == [0, 0]
    stream(lake)
    assert run(lake, ONE).days == {ONE: "certified"}
    assert numbers_of(lake, ONE) == [*range(1, 81)]
