"""Sinks that share a progress topic: an open transaction of one holds up no other without need."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from pipelines.errors import InfrastructureError
from pipelines.publishing.cluster import asking, fence_slots, read_slot_progress, write_slot_progress
from pipelines.publishing.progress_check import publisher
from pipelines.publishing.progress_reader import progress
from pipelines.publishing.slots import SlotProducer, SlotProgress, send_progress
from pipelines.publishing.transactional_sink import TransactionalSink
from tests.support.kafka import fresh_topics

DONE = SlotProgress(6, "query", "topic", 2, partitions=4)
FOREVER = timedelta(minutes=10)


@pytest.fixture(scope="module")
def topics(broker: str, admin: AdminClient) -> Iterator[tuple[str, str, str]]:
    """The topics of two sinks, and the one that keeps the progress of both; the broker has a coordinator."""
    with fresh_topics(admin) as topic:
        first, second, shared = topic(4, "first"), topic(4, "second"), topic(4, "progress")
        sink = TransactionalSink(first, first, 4, {"bootstrap.servers": broker}, progress_topic=shared)
        with asking(sink) as cluster:
            # Waits for the coordinator of a broker that has just begun.
            read_slot_progress(cluster, sink)
        yield first, second, shared


@pytest.fixture
def sinks(broker: str, topics: tuple[str, str, str]) -> tuple[TransactionalSink, TransactionalSink]:
    """Two sinks of one cluster, with names of this test alone; the first has more slots."""
    first, second, shared = topics
    mine, client = os.urandom(4).hex(), {"bootstrap.servers": broker}
    a = TransactionalSink(
        f"{first}-{mine}", first, 4, client, progress_topic=shared, transaction_timeout=FOREVER
    )
    soon = timedelta(seconds=8)
    b = replace(a, name=f"{second}-{mine}", topic=second, slots=2, transaction_timeout=soon)
    return a, b


@pytest.fixture
def hang() -> Iterator[Callable[[TransactionalSink], None]]:
    """Leaves a transaction of each slot of a sink open until the test ends."""
    hanging: list[SlotProducer] = []

    def hangs(sink: TransactionalSink) -> None:
        consumer = sink.connection.consumer()
        for slot, producer in fence_slots(sink, {}).items():
            producer.begin_transaction()
            group = consumer.consumer_group_metadata()
            send_progress(producer, sink.connection, slot, replace(DONE, slots=sink.slots), group)
            assert not producer.flush(30)
            hanging.append(producer)
        consumer.close()

    yield hangs
    for producer in hanging:
        with suppress(KafkaException):
            producer.abort_transaction(30)


def test_a_sink_starts_and_ends_while_a_transaction_of_another_hangs(
    spark: SparkSession,
    sinks: tuple[TransactionalSink, TransactionalSink],
    hang: Callable[[TransactionalSink], None],
    tmp_path: Path,
) -> None:
    a, b = sinks
    hang(a)
    made = publisher(spark, b, str(tmp_path / "checkpoint"))
    with asking(b) as cluster:
        known = read_slot_progress(cluster, b, is_stable=True)
    assert {slot: mark.run for slot, mark in known.items()} == dict.fromkeys(range(2), made.run)


def test_progress_that_is_known_from_records_alone_does_not_wait_for_others(
    sinks: tuple[TransactionalSink, TransactionalSink],
    hang: Callable[[TransactionalSink], None],
    admin: AdminClient,
) -> None:
    a, b = sinks
    write_slot_progress(b, fence_slots(b, {}), dict.fromkeys(range(2), DONE))
    hang(a)
    admin.delete_consumer_groups([b.name])[b.name].result(30)
    with asking(b) as cluster:
        assert read_slot_progress(cluster, b, is_stable=True) == dict.fromkeys(range(2), DONE)


def test_progress_behind_a_transaction_of_another_is_waited_for_and_the_other_is_named(
    sinks: tuple[TransactionalSink, TransactionalSink],
    hang: Callable[[TransactionalSink], None],
    admin: AdminClient,
) -> None:
    a, b = sinks
    write_slot_progress(b, fence_slots(b, {}), {0: replace(DONE, next_batch=5), 1: DONE})
    hang(replace(a, slots=1))
    # Whether this was committed nobody can read before the other has ended.
    write_slot_progress(b, fence_slots(b, {}), {0: DONE})
    admin.delete_consumer_groups([b.name])[b.name].result(30)
    with asking(b) as cluster:
        # Partition 0 alone: of slot 1 all is known.
        held = rf"partition 0 of topic '{b.progress_topic}' .* a transaction of '{a.name}' .* offset \d+"
        # For as long as a transaction of its own may take.
        impatient = replace(b, transaction_timeout=timedelta(seconds=3))
        with pytest.raises(InfrastructureError, match=held) as refused:
            read_slot_progress(cluster, impatient, is_stable=True)
        assert "kafka-transactions.sh" in str(refused.value)
        # A look that decides nothing waits for nobody.
        assert read_slot_progress(cluster, b) == {0: replace(DONE, next_batch=5), 1: DONE}
    fence_slots(replace(a, slots=1), {})
    assert progress(b.connection, range(2), is_stable=True) == dict.fromkeys(range(2), DONE)


def test_slots_that_there_were_before_are_known_as_long_as_one_tells_of_them(
    sinks: tuple[TransactionalSink, TransactionalSink], admin: AdminClient
) -> None:
    a, _ = sinks
    four = replace(DONE, slots=4)
    write_slot_progress(a, fence_slots(a, {}), dict.fromkeys(range(4), four))
    fewer = replace(a, slots=1)
    with asking(fewer) as cluster:
        assert read_slot_progress(cluster, fewer) == dict.fromkeys(range(4), four)
        admin.delete_consumer_groups([a.name])[a.name].result(30)
        assert read_slot_progress(cluster, fewer, is_stable=True) == dict.fromkeys(range(4), four)
