"""A day is sealed when bronze has what Kafka had, and not before."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from delta.tables import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from demo.waiting import wait_until
from pipelines.config.model import PipelineConfig
from pipelines.delta.idempotent_writer import OnceWriter
from pipelines.delta.tables import ensure_bronze, set_table_property, version
from pipelines.errors import ConfigError, InfrastructureError, SourceError
from pipelines.kafka.ingest_position import ends_since
from pipelines.ledger.leases import lease
from pipelines.nightly.seal import seal
from pipelines.spark.checkpoints import query_files
from pipelines.steps.ingest import IngestJob, ingest
from tests.support.kafka import MakeTopic
from tests.support.lakes import FLIGHT, Lake
from tests.support.nights import ONE, TWO

MakeLake = Callable[..., Lake]
SENT = datetime(2013, 1, 1, 12, tzinfo=UTC)
STANDS_STILL_S = 5.0


def lake_of(make_lake: MakeLake, broker: str, name: str, *settings: str) -> Lake:
    return make_lake(
        "batch.seal_by=kafka",
        "batch.seal_wait=0 seconds",
        "kafka.connect_timeout=5 seconds",
        # Its micro-batches then say nothing of where Kafka's partitions ended.
        "kafka.max_offsets_per_trigger=1000",
        f"kafka.bootstrap_servers={broker}",
        f"kafka.topic={name}",
        *settings,
    )


def send(broker: str, name: str, sent: datetime, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker})
    at = int(sent.timestamp() * 1000)
    producer.produce(name, json.dumps(FLIGHT).encode(), partition=partition, timestamp=at)
    assert producer.flush(30) == 0


def unbounded(config: PipelineConfig) -> PipelineConfig:
    kafka = config.kafka.model_copy(update={"max_offsets_per_trigger": None})
    return config.model_copy(update={"kafka": kafka})


def first_micro_batch(lake: Lake, config: PipelineConfig, *, stands_still: bool = False) -> None:
    """What ingest does in one micro-batch of a stream that goes on."""
    ensure_bronze(replace(lake.pipeline, config=config))
    writer = OnceWriter(config.table("bronze"), None)
    if stands_still:
        writer = _StandsStill(config.table("bronze"), None)
    query = IngestJob(replace(lake.pipeline, config=config), writer).start(once=False)
    try:
        wait_until(
            lambda: query_files(lake.spark, config.checkpoint("ingest")).next_batch == 1,
            "a micro-batch is done",
        )
    finally:
        query.stop()


class _Dies(OnceWriter):
    def append(self, rows: DataFrame, batch: int, count: int, **said: int | None) -> bool:
        raise RuntimeError("died")


class _StandsStill(OnceWriter):
    def append(self, rows: DataFrame, batch: int, count: int, **said: int | None) -> bool:
        time.sleep(STANDS_STILL_S)
        return super().append(rows, batch, count, **said)


def sealed(lake: Lake, config: PipelineConfig | None = None) -> list[tuple[int, int]]:
    config = config or lake.config
    with lease(replace(lake.pipeline, config=config), "seal") as held:
        index = seal(replace(lake.pipeline, config=config), ONE, held)
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
    with pytest.raises(
        SourceError,
        match=rf"2013-01-01 cannot be sealed yet: {name}-0 is in bronze up to offset 1, needed 4;",
    ):
        sealed(lake)
    # An aborted transaction leaves no record, only offsets, also of a partition that bronze has nothing of.
    transaction(commit=False)
    transaction(commit=False, partition=1)
    ingest(lake.pipeline, once=True)
    assert sealed(lake) == [(0, 2)]
    with lease(lake.pipeline, "seal") as held:
        assert seal(lake.pipeline, TWO, held).total() == 2

    # What ingest has looked at counts for nothing where bronze has lost it.
    bronze = lake.config.table("bronze")
    set_table_property(lake.spark, bronze, "delta.appendOnly", "false")
    DeltaTable.forPath(lake.spark, bronze).restoreToVersion(version(lake.spark, bronze) - 2)
    with pytest.raises(SourceError):
        sealed(lake)

    away = lake.config.kafka.model_copy(update={"bootstrap_servers": "localhost:1"})
    with pytest.raises(InfrastructureError, match="no answer within"):
        sealed(lake, lake.config.model_copy(update={"kafka": away}))


def test_a_producer_whose_clock_is_ahead_seals_nothing_and_the_brokers_clock_does(
    broker: str, admin: AdminClient, topic: MakeTopic, make_lake: MakeLake
) -> None:
    ahead = topic(partitions=1)
    lake = lake_of(make_lake, broker, ahead)
    send(broker, ahead, SENT + timedelta(days=1))
    ingest(lake.pipeline, once=True)
    send(broker, ahead, SENT)
    with pytest.raises(SourceError, match=r"-0 is in bronze up to offset 1, needed 2;"):
        sealed(lake)
    admin.delete_records([TopicPartition(ahead, 0, 2)])[TopicPartition(ahead, 0)].result(30)
    with pytest.raises(SourceError, match=r"Kafka has deleted offsets that bronze .*-0: offsets 1 to 1"):
        sealed(lake)

    stamped = topic(partitions=1, **{"message.timestamp.type": "LogAppendTime"})
    lake = lake_of(make_lake, broker, stamped, f"lake.root={lake.config.root}2")
    send(broker, stamped, SENT)
    ingest(lake.pipeline, once=True)
    send(broker, stamped, SENT)
    assert sealed(lake) == [(0, 0)]


def test_where_ingest_begins_with_what_is_newest_only_that_is_asked_for(
    broker: str, topic: MakeTopic, make_lake: MakeLake
) -> None:
    name = topic(partitions=2)
    lake = lake_of(make_lake, broker, name, "kafka.starting_offsets=latest")
    send(broker, name, SENT)
    send(broker, name, SENT, partition=1)
    ingest(lake.pipeline, once=True)
    send(broker, name, SENT)
    ingest(lake.pipeline, once=True)
    assert sealed(lake) == [(0, 1)]
    send(broker, name, SENT, partition=1)
    with pytest.raises(SourceError, match=r"-1 is in bronze up to offset 1, needed 2;"):
        sealed(lake)


def test_what_kafka_has_deleted_seals_once_it_is_accepted_and_what_is_to_come_cannot_be(
    broker: str, admin: AdminClient, topic: MakeTopic, make_lake: MakeLake
) -> None:
    name = topic(partitions=1)
    lake = lake_of(make_lake, broker, name)
    send(broker, name, SENT)
    ingest(lake.pipeline, once=True)
    send(broker, name, SENT)
    admin.delete_records([TopicPartition(name, 0, 2)])[TopicPartition(name, 0)].result(30)
    with pytest.raises(SourceError, match=r"-0: offsets 1 to 1\..*audit\.known_gaps"):
        sealed(lake)
    gap = "audit.known_gaps=[{{partition: 0, first: 1, last: {}, why: retention}}]"
    assert sealed(lake_of(make_lake, broker, name, gap.format(1))) == [(0, 0)]
    with pytest.raises(
        ConfigError, match=r"found partition 0, 1\.\.2; expected offsets less than 2, where topic .* ends"
    ):
        sealed(lake_of(make_lake, broker, name, gap.format(2)))


def test_what_comes_after_ingest_has_read_all_that_there_was_keeps_no_day_open(
    broker: str, topic: MakeTopic, make_lake: MakeLake
) -> None:
    name = topic(partitions=2)
    lake = lake_of(make_lake, broker, name)
    send(broker, name, SENT)
    ingest(replace(lake.pipeline, config=unbounded(lake.config)), once=True)
    send(broker, name, SENT)
    send(broker, name, SENT, partition=1)
    # By what ingest's commit says, whatever the configuration of the night.
    assert sealed(lake) == sealed(lake, unbounded(lake.config)) == [(0, 0)]
    # A micro-batch of before the day's end says nothing of it.
    today = datetime.now(UTC).date()
    assert ends_since(lake.pipeline, SENT) == {0: 1, 1: 0}
    assert ends_since(lake.pipeline, datetime(today.year + 1, 1, 1, tzinfo=UTC)) == {}


def test_a_micro_batch_that_was_bounded_is_not_taken_for_the_end_of_kafka(
    broker: str, topic: MakeTopic, make_lake: MakeLake
) -> None:
    name = topic(partitions=1)
    lake = lake_of(make_lake, broker, name, "ingest.trigger_interval=1 hour")
    for _ in range(20):
        send(broker, name, SENT)
    kafka = lake.config.kafka.model_copy(update={"max_offsets_per_trigger": 5})
    bounded = lake.config.model_copy(update={"kafka": kafka})
    first_micro_batch(lake, bounded)
    assert lake.count("bronze") == 5
    # The night's own configuration has no bound.
    assert ends_since(replace(lake.pipeline, config=unbounded(lake.config)), SENT) == {}
    with pytest.raises(SourceError, match=r"-0 is in bronze up to offset 5, needed 20;"):
        sealed(lake, unbounded(lake.config))


def test_the_ends_of_kafka_are_as_old_as_the_question(
    broker: str, topic: MakeTopic, make_lake: MakeLake
) -> None:
    name = topic(partitions=1)
    lake = lake_of(make_lake, broker, name, "ingest.trigger_interval=1 hour")
    send(broker, name, SENT)
    before = datetime.now(UTC)
    # The stream stands still between the answer of Kafka and the commit.
    first_micro_batch(lake, unbounded(lake.config), stands_still=True)
    after = datetime.now(UTC)
    assert ends_since(lake.pipeline, before) == {0: 1}
    assert ends_since(lake.pipeline, after - timedelta(seconds=STANDS_STILL_S)) == {}


def test_a_micro_batch_that_an_earlier_run_planned_says_nothing_of_now(
    broker: str, topic: MakeTopic, make_lake: MakeLake
) -> None:
    name = topic(partitions=1)
    lake = lake_of(make_lake, broker, name)
    send(broker, name, SENT)
    everything = unbounded(lake.config)
    ensure_bronze(replace(lake.pipeline, config=everything))
    # It dies after the plan, before it has written.
    query = IngestJob(
        replace(lake.pipeline, config=everything), _Dies(lake.config.table("bronze"), None)
    ).start(once=True)
    with pytest.raises(StreamingQueryException, match="died"):
        query.awaitTermination()
    first_micro_batch(lake, everything)
    assert lake.count("bronze") == 1
    assert ends_since(lake.pipeline, SENT) == {}
