"""A day is sealed when bronze has what Kafka had, and not before."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from delta.tables import DeltaTable

from pipelines.config import PipelineConfig
from pipelines.errors import InfrastructureError, SourceError
from pipelines.layers.ingest import ingest
from pipelines.ops.ingest_position import ends_since
from pipelines.ops.seal import seal
from pipelines.sinks.tables import set_table_property, version
from tests.support.kafka import MakeTopic
from tests.support.lakes import FLIGHT, Lake
from tests.support.nights import ONE, TWO

MakeLake = Callable[..., Lake]
SENT = datetime(2013, 1, 1, 12, tzinfo=UTC)


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


def sealed(lake: Lake, config: PipelineConfig | None = None) -> list[tuple[int, int]]:
    index = seal(lake.spark, config or lake.config, lake.contract, ONE)
    return [(row["partition"], row["last"]) for row in index.offsets()]


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
    ingest(lake.spark, lake.config, once=True)
    transaction(commit=True)
    with pytest.raises(
        SourceError,
        match=rf"2013-01-01 cannot be sealed yet: {name}-0 is in bronze up to offset 1, needed 4;",
    ):
        sealed(lake)
    # An aborted transaction leaves no record, only offsets, also of a partition that bronze has nothing of.
    transaction(commit=False)
    transaction(commit=False, partition=1)
    ingest(lake.spark, lake.config, once=True)
    assert sealed(lake) == [(0, 0), (0, 2)]
    assert seal(lake.spark, lake.config, lake.contract, TWO).total() == 2

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
    ingest(lake.spark, lake.config, once=True)
    send(broker, ahead, SENT)
    with pytest.raises(SourceError, match=r"-0 is in bronze up to offset 1, needed 2;"):
        sealed(lake)
    admin.delete_records([TopicPartition(ahead, 0, 2)])[TopicPartition(ahead, 0)].result(30)
    with pytest.raises(SourceError, match=r"Kafka has deleted offsets that bronze .*-0: offsets 1 to 1"):
        sealed(lake)

    stamped = topic(partitions=1, **{"message.timestamp.type": "LogAppendTime"})
    lake = lake_of(make_lake, broker, stamped, f"lake.root={lake.config.root}2")
    send(broker, stamped, SENT)
    ingest(lake.spark, lake.config, once=True)
    send(broker, stamped, SENT)
    assert sealed(lake) == [(0, 0)]


def test_where_ingest_begins_with_what_is_newest_only_that_is_asked_for(
    broker: str, topic: MakeTopic, make_lake: MakeLake
) -> None:
    name = topic(partitions=2)
    lake = lake_of(make_lake, broker, name, "kafka.starting_offsets=latest")
    send(broker, name, SENT)
    send(broker, name, SENT, partition=1)
    ingest(lake.spark, lake.config, once=True)
    send(broker, name, SENT)
    ingest(lake.spark, lake.config, once=True)
    assert sealed(lake) == [(0, 1)]
    send(broker, name, SENT, partition=1)
    with pytest.raises(SourceError, match=r"-1 is in bronze up to offset 1, needed 2;"):
        sealed(lake)


def test_what_comes_after_ingest_has_read_all_that_there_was_keeps_no_day_open(
    broker: str, topic: MakeTopic, make_lake: MakeLake
) -> None:
    name = topic(partitions=2)
    lake = lake_of(make_lake, broker, name)
    unbounded = lake.config.model_copy(
        update={"kafka": lake.config.kafka.model_copy(update={"max_offsets_per_trigger": None})}
    )
    send(broker, name, SENT)
    ingest(lake.spark, unbounded, once=True)
    send(broker, name, SENT)
    send(broker, name, SENT, partition=1)
    with pytest.raises(SourceError, match=r"-0 is in bronze up to offset 1, needed 2;"):
        sealed(lake)
    assert sealed(lake, unbounded) == [(0, 0)]
    # A micro-batch of before the day's end says nothing of it.
    today = datetime.now(UTC).date()
    assert ends_since(lake.spark, unbounded, SENT) == {0: 1, 1: 0}
    assert ends_since(lake.spark, unbounded, datetime(today.year + 1, 1, 1, tzinfo=UTC)) == {}
