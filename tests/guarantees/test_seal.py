"""A day is sealed when bronze has what Kafka had, and not before."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from delta.tables import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from pipelines.config.audit import KnownGap
from pipelines.config.model import PipelineConfig
from pipelines.delta.first_complete_day import first_complete_day
from pipelines.delta.idempotent_writer import IdempotentWriter
from pipelines.delta.record_tables import ensure_bronze
from pipelines.delta.table_properties import (
    REMOVED_BELOW,
    WHOLE_FROM,
    set_table_properties,
    set_table_property,
)
from pipelines.delta.tables import version
from pipelines.errors import ConfigError, InfrastructureError, SourceError
from pipelines.kafka.backfill_plan import BackfillSpan
from pipelines.kafka.ingest_position import end_offsets_after
from pipelines.kafka.ingest_state import SparkIngestState
from pipelines.kafka.topics import find_topic
from pipelines.ledger.leases import Lease, lease
from pipelines.ledger.retention_properties import require_complete_days
from pipelines.nightly.seal import seal
from pipelines.spark.checkpoints import query_files
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.streams import Trigger, each_batch
from pipelines.steps.backfill import backfill
from pipelines.steps.checkpoints import reset_checkpoint
from pipelines.steps.ingest import IngestJob, ingest
from pipelines.steps.reconcile import RecordsMissing, reconcile
from testbed.waiting import wait_until
from tests.support.changes_by_hand import change_by_hand
from tests.support.kafka import MakeTopic, ordered_producer
from tests.support.lakes import FLIGHT, Lake
from tests.support.nights import ONE, TWO

MakeLake = Callable[..., Lake]
SENT = datetime(2013, 1, 1, 12, tzinfo=UTC)


def lake_of(make_lake: MakeLake, broker: str, name: str, *settings: str) -> Lake:
    return make_lake(
        "batch.seal_by=kafka",
        "batch.seal_wait=0 seconds",
        "kafka.connect_timeout=5 seconds",
        "ingest.trigger_interval=100 milliseconds",
        # Its micro-batches then say nothing of where Kafka's partitions ended.
        "kafka.max_offsets_per_trigger=1000",
        f"kafka.bootstrap_servers={broker}",
        f"kafka.topic={name}",
        *settings,
    )


def send(broker: str, name: str, sent: datetime, partition: int = 0, times: int = 1) -> None:
    producer = ordered_producer(broker)
    at = int(sent.timestamp() * 1000)
    for _ in range(times):
        producer.produce(name, json.dumps(FLIGHT).encode(), partition=partition, timestamp=at)
    assert producer.flush(30) == 0


def unbounded(config: PipelineConfig) -> PipelineConfig:
    kafka = config.kafka.model_copy(update={"max_offsets_per_trigger": None})
    return config.model_copy(update={"kafka": kafka})


def started(lake: Lake, config: PipelineConfig, writer: IdempotentWriter, *, once: bool) -> StreamingQuery:
    job = IngestJob(replace(lake.pipeline, config=config), writer, once)
    trigger, checkpoint = Trigger(once, config.ingest.trigger_interval), config.checkpoint("ingest")
    return each_batch(job.plan(), job.write, name="ingest", checkpoint=checkpoint, trigger=trigger)


@contextmanager
def streaming(lake: Lake, config: PipelineConfig, writer: IdempotentWriter) -> Iterator[StreamingQuery]:
    """Ingest as a stream that goes on, for the length of a block."""
    query = started(lake, config, writer, once=False)
    try:
        yield query
    finally:
        query.stop()


def wait_for(lake: Lake, batches: int) -> None:
    wait_until(
        lambda: query_files(lake.spark, lake.config.checkpoint("ingest")).next_batch == batches,
        f"{batches} micro-batches are done",
    )


class _Dies(IdempotentWriter):
    def append(self, rows: DataFrame, batch: int, count: int, **said: int | None) -> bool:
        raise RuntimeError("died")


@dataclass
class _Looks(IdempotentWriter):
    """Writes down when it was given a micro-batch, whose ends Kafka had told before."""

    given: dict[int, datetime] = field(default_factory=dict)

    def append(self, rows: DataFrame, batch: int, count: int, **said: int | None) -> bool:
        # What is noted of a moment is noted in whole milliseconds.
        self.given[batch] = datetime.now(UTC) + timedelta(milliseconds=1)
        wait_until(lambda: datetime.now(UTC) > self.given[batch], "the next millisecond")
        return super().append(rows, batch, count, **said)


def known_ends(pipeline: Pipeline, moment: datetime) -> Mapping[int, int]:
    topic = find_topic(pipeline.spark, pipeline.config.kafka)
    return end_offsets_after(SparkIngestState(pipeline, topic), moment)


def sealed(lake: Lake, held: Lease, config: PipelineConfig | None = None) -> list[tuple[int, int]]:
    index = seal(replace(lake.pipeline, config=config or lake.config), ONE, held)
    return [(offsets.partition, offsets.last) for offsets in index.offsets()]


def test_a_day_is_sealed_once_bronze_has_the_records_that_kafka_had(
    broker: str, topic: MakeTopic, make_lake: MakeLake
) -> None:
    name = topic(partitions=2)
    lake = lake_of(make_lake, broker, name)
    producer = Producer({"bootstrap.servers": broker, "transactional.id": f"seal-{name}"})
    producer.init_transactions()

    def transaction(*, commit: bool, partition: int = 0) -> None:
        producer.begin_transaction()
        at = int(SENT.timestamp() * 1000)
        producer.produce(name, json.dumps(FLIGHT).encode(), partition=partition, timestamp=at)
        producer.flush()
        (producer.commit_transaction if commit else producer.abort_transaction)()

    transaction(commit=True)
    ingest(lake.pipeline, once=True)
    transaction(commit=True)
    with lease(lake.pipeline, "seal") as held:
        with pytest.raises(
            SourceError,
            match=rf"2013-01-01 cannot be sealed yet: {name}-0: bronze lacks records in offsets 1\.\.3;",
        ):
            sealed(lake, held)
        # An aborted transaction leaves no record, only offsets, also of a partition that bronze lacks.
        transaction(commit=False)
        transaction(commit=False, partition=1)
        ingest(lake.pipeline, once=True)
        index = seal(lake.pipeline, TWO, held)
        assert ([(each.partition, each.last) for each in index.offsets()], index.total()) == ([(0, 2)], 2)

        # What ingest has looked at counts for nothing where bronze has lost it.
        bronze = lake.config.table("bronze")
        set_table_property(lake.spark, bronze, "delta.appendOnly", "false")
        DeltaTable.forPath(lake.spark, bronze).restoreToVersion(version(lake.spark, bronze) - 2)
        with pytest.raises(SourceError):
            sealed(lake, held)

        nowhere = {"bootstrap_servers": "localhost:1", "connect_timeout": timedelta(seconds=1)}
        away = lake.config.kafka.model_copy(update=nowhere)
        with pytest.raises(InfrastructureError, match="no answer within"):
            sealed(lake, held, lake.config.model_copy(update={"kafka": away}))


def test_neither_a_clock_that_is_ahead_nor_what_kafka_has_deleted_seals_a_day_unless_its_loss_is_accepted(
    broker: str, admin: AdminClient, topic: MakeTopic, make_lake: MakeLake
) -> None:
    name = topic(partitions=2)
    lake = lake_of(make_lake, broker, name)
    send(broker, name, SENT + timedelta(days=1))
    ingest(lake.pipeline, once=True)
    # Ingest stands still; of the other partition bronze has nothing.
    send(broker, name, SENT)
    send(broker, name, SENT, partition=1)
    with lease(lake.pipeline, "seal") as held:
        lacking = ("-0: bronze lacks records in offsets 1..1", "-1: bronze lacks records in offsets 0..0;")
        with pytest.raises(SourceError, match=f"; {name}".join(map(re.escape, lacking))):
            sealed(lake, held)
        ends = [TopicPartition(name, 0, 2), TopicPartition(name, 1, 1)]
        for deleted in admin.delete_records(ends).values():
            deleted.result(30)
        gone = rf"deleted offsets that bronze lacks: {name}-0: offsets 1 to 1; {name}-1: offsets 0 to 0\."
        with pytest.raises(SourceError, match=rf"{gone}.*audit\.known_gaps"):
            sealed(lake, held)
        gap = "{{partition: {}, first: {}, last: {}, why: retention}}"

        def accepting(*gaps: tuple[int, int, int]) -> Lake:
            accepted = ", ".join(gap.format(*each) for each in gaps)
            return lake_of(make_lake, broker, name, f"audit.known_gaps=[{accepted}]")

        with pytest.raises(SourceError, match=rf"bronze lacks: {name}-1: offsets 0 to 0\. "):
            sealed(accepting((0, 1, 1)), held)
        assert sealed(accepting((0, 1, 1), (1, 0, 0)), held) == [(0, 0)]
        # What is to come cannot be accepted.
        to_come = r"found partition 0, 1\.\.2; expected offsets less than 2, where topic .* ends"
        with pytest.raises(ConfigError, match=to_come):
            sealed(accepting((0, 1, 2)), held)


def test_a_reset_hides_no_loss_of_a_partition_of_which_bronze_has_nothing(
    broker: str, admin: AdminClient, topic: MakeTopic, make_lake: MakeLake
) -> None:
    name = topic(partitions=2)
    lake = lake_of(make_lake, broker, name)
    send(broker, name, SENT + timedelta(days=1))
    ingest(lake.pipeline, once=True)
    send(broker, name, SENT, partition=1)
    for deleted in admin.delete_records([TopicPartition(name, 1, 1)]).values():
        deleted.result(30)
    with pytest.raises(RecordsMissing, match=rf"1 offsets of {name}-1 \(deleted\)"):
        reconcile(lake.pipeline)
    with pytest.raises(SourceError, match="records were deleted from Kafka before they were read"):
        ingest(lake.pipeline, once=True)
    # As the runbook says, and once more. Until it goes on, nothing is sealed.
    for _ in range(2):
        begins = reset_checkpoint(lake.pipeline, "reset", "ingest").begins
        assert begins
        assert begins.deleted == {1: range(1)}
        with (
            lease(lake.pipeline, "seal") as held,
            pytest.raises(SourceError, match=rf"{name}-1: offsets 0 to"),
        ):
            sealed(lake, held)
    ingest(lake.pipeline, once=True)
    send(broker, name, SENT + timedelta(days=1), partition=1)
    ingest(lake.pipeline, once=True)
    # Nobody knows when the records were sent that are gone.
    today = datetime.now(UTC).date()
    whole_from = first_complete_day(lake.pipeline)
    assert whole_from
    assert whole_from > today
    with pytest.raises(ConfigError, match="records of it are gone"):
        require_complete_days(lake.pipeline, [today])
    # A further reset does not ask for them again.
    again = reset_checkpoint(lake.pipeline, "reset", "ingest").begins
    assert again
    assert again.deleted == {}
    assert not reconcile(lake.pipeline).missing


def test_records_before_the_first_one_in_bronze_are_missed(
    broker: str, topic: MakeTopic, make_lake: MakeLake
) -> None:
    name = topic(partitions=2)
    lake = lake_of(make_lake, broker, name)
    send(broker, name, SENT, times=10)
    ingest(lake.pipeline, once=True)
    change_by_hand(lake.spark, lake.config.table("bronze"), lambda rows: rows.delete("_offset < 4"))
    with lease(lake.pipeline, "seal") as held:
        with pytest.raises(
            SourceError, match=r"-0: offsets 0 to 3\. .*oncelake backfill .*--offsets 0:0\.\.3"
        ):
            sealed(lake, held)
        # Retention removed two of them. It does not explain the others.
        properties = {WHOLE_FROM: "2013-01-02", REMOVED_BELOW: f"2013-01-02 {name}-0@2"}
        set_table_properties(lake.spark, lake.config.table("bronze"), properties)
        with pytest.raises(SourceError, match=r"-0: offsets 2 to 3\. .*--offsets 0:2\.\.3"):
            sealed(lake, held)
        with pytest.raises(RecordsMissing, match=rf"2 offsets of {name}-0 \(skipped\)"):
            reconcile(lake.pipeline)
        gap = KnownGap(partition=0, first=0, last=3, why="deleted by hand")
        audit = lake.config.audit.model_copy(update={"known_gaps": (gap,)})
        assert sealed(lake, held, lake.config.model_copy(update={"audit": audit})) == [(0, 9)]
    # What the message says.
    backfill(lake.pipeline, "backfill", BackfillSpan(offsets={0: range(2, 4)}), lambda _: None)
    assert not reconcile(lake.pipeline).missing
    with lease(lake.pipeline, "seal") as held:
        assert sealed(lake, held) == [(0, 9)]
        set_table_property(lake.spark, lake.config.table("bronze"), WHOLE_FROM, "2013-01-01")
        with pytest.raises(SourceError, match=r"whole_from: found 2013-01-01, expected 2013-01-02 or later"):
            sealed(lake, held)


@pytest.mark.thorough
def test_log_append_time_seals_a_day(broker: str, topic: MakeTopic, make_lake: MakeLake) -> None:
    stamped = topic(partitions=1, **{"message.timestamp.type": "LogAppendTime"})
    lake = lake_of(make_lake, broker, stamped)
    send(broker, stamped, SENT)
    ingest(lake.pipeline, once=True)
    send(broker, stamped, SENT)
    with lease(lake.pipeline, "seal") as held:
        assert sealed(lake, held) == [(0, 0)]


@pytest.mark.thorough
def test_what_came_before_ingest_began_and_after_it_had_read_all_is_not_asked_for(
    broker: str, topic: MakeTopic, make_lake: MakeLake
) -> None:
    # The third stays empty until the last.
    name = topic(partitions=3)
    accepted = "accept_risks=[starting_offsets_latest]"
    lake = lake_of(make_lake, broker, name, "kafka.starting_offsets=latest", accepted)
    send(broker, name, SENT)
    send(broker, name, SENT, partition=1)
    ingest(lake.pipeline, once=True)
    send(broker, name, SENT)
    ingest(lake.pipeline, once=True)
    with lease(lake.pipeline, "seal") as held:
        assert sealed(lake, held) == [(0, 1)]
        send(broker, name, SENT, partition=1)
        with pytest.raises(SourceError, match=r"-1: bronze lacks records in offsets 1\.\.1;"):
            sealed(lake, held)

        ingest(replace(lake.pipeline, config=unbounded(lake.config)), once=True)
        for partition in range(3):
            send(broker, name, SENT, partition=partition)
        # By what ingest's commit says, whatever the configuration of the night.
        assert sealed(lake, held) == sealed(lake, held, unbounded(lake.config)) == [(0, 1), (1, 1)]
    # A micro-batch of before the day's end says nothing of it.
    today = datetime.now(UTC).date()
    assert known_ends(lake.pipeline, SENT) == {0: 2, 1: 2, 2: 0}
    assert known_ends(lake.pipeline, datetime(today.year + 1, 1, 1, tzinfo=UTC)) == {}


def bounded_stream(lake: Lake, config: PipelineConfig) -> None:
    """One micro-batch of a stream whose micro-batches are bounded: it is not taken for the end of Kafka."""
    kafka = config.kafka.model_copy(update={"max_offsets_per_trigger": 5})
    once = config.ingest.model_copy(update={"trigger_interval": timedelta(hours=1)})
    bounded = config.model_copy(update={"kafka": kafka, "ingest": once})
    ensure_bronze(replace(lake.pipeline, config=bounded))
    with streaming(lake, bounded, IdempotentWriter(lake.config.table("bronze"), None)):
        wait_for(lake, 1)
    assert lake.count("bronze") == 5
    # The night's own configuration has no bound.
    assert known_ends(replace(lake.pipeline, config=config), SENT) == {}
    with (
        lease(lake.pipeline, "seal") as held,
        pytest.raises(SourceError, match=r"-0: bronze lacks records in offsets 5\.\.19;"),
    ):
        sealed(lake, held, config)


def test_a_micro_batch_tells_of_the_ends_of_kafka_only_if_it_went_to_them_and_as_old_as_the_question(
    broker: str, topic: MakeTopic, make_lake: MakeLake
) -> None:
    name = topic(partitions=1)
    lake = lake_of(make_lake, broker, name)
    everything = unbounded(lake.config)
    send(broker, name, SENT, times=20)
    bounded_stream(lake, everything)

    # It dies after the plan, before it has written: what it planned says nothing of the run that does it.
    query = started(lake, everything, _Dies(lake.config.table("bronze"), None), once=True)
    with pytest.raises(StreamingQueryException, match="died"):
        query.awaitTermination()
    looks = _Looks(lake.config.table("bronze"), None)
    with streaming(lake, everything, looks):
        wait_for(lake, 2)
        assert lake.count("bronze") == 20
        assert known_ends(lake.pipeline, SENT) == {}
        before = looks.given[1]
        send(broker, name, SENT)
        wait_for(lake, 3)
    assert known_ends(lake.pipeline, before) == {0: 21}
    # Between the answer of Kafka and the commit.
    assert known_ends(lake.pipeline, looks.given[2]) == {}
