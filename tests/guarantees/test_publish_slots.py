"""A slot holds back its own partitions alone, ends what it has begun, and belongs to one run."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config.loader import load_config
from pipelines.contracts.contract import DataContract
from pipelines.errors import InfrastructureError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.publishing.cluster import (
    asking,
    end_transactions,
    fence_slots,
    read_slot_progress,
    write_slot_progress,
)
from pipelines.publishing.progress_check import partitions_of, publisher
from pipelines.publishing.settings import sink_of
from pipelines.publishing.slots import SlotProducer, SlotProgress
from pipelines.publishing.transactional_sink import TransactionalSink, in_slots, publish_rows
from pipelines.spark.checkpoints import QueryFiles
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.publish import publish, publishing_status
from pipelines.steps.publish_reset import reset_publishing
from testbed.waiting import wait_until
from tests.support.accidents import dying, once
from tests.support.kafka import MakeTopic, fresh_topics
from tests.support.lakes import Lake, flight
from tests.support.publish_faults import Fault, Victim, striking
from tests.support.publish_stops import stop_in_the_middle
from tests.support.readers import is_open, messages_of

ROWS, PARTITIONS = 40, 4
DONE = SlotProgress(6, "query", "topic", 2, partitions=PARTITIONS)


@pytest.fixture(scope="module")
def progress_topic(broker: str, admin: AdminClient) -> Iterator[str]:
    """A progress topic for all sinks, on a broker that has a coordinator by now."""
    with fresh_topics(admin) as topic:
        name = topic(2, "progress")
        first = TransactionalSink(name, name, 2, {"bootstrap.servers": broker}, progress_topic=name)
        with asking(first) as cluster:
            # Waits for the coordinator of a broker that has just begun.
            read_slot_progress(cluster, first)
        yield name


@pytest.fixture
def sink(broker: str, topic: MakeTopic, progress_topic: str) -> TransactionalSink:
    name = topic(partitions=PARTITIONS, name="slots")
    return TransactionalSink(name, name, 2, {"bootstrap.servers": broker}, progress_topic=progress_topic)


@pytest.fixture
def make(
    spark: SparkSession, contract: DataContract, broker: str, sink: TransactionalSink, tmp_path: Path
) -> Callable[..., Lake]:
    def made(lake: str = "lake", slots: int = 2) -> Lake:
        given = (
            f"lake.root={tmp_path}/{lake}",
            f"kafka.bootstrap_servers={broker}",
            f"publish.slots={slots}",
        )
        config = load_config("flights", environ={}, settings=(*given, f"publish.topic={sink.topic}"))
        return Lake(Pipeline(spark, config.model_copy(update={"env": sink.name}), contract))

    return made


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(ROWS).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")


def enter(lake: Lake, *numbers: int) -> None:
    lake.enter([flight(flight=number) for number in numbers])


def send(lake: Lake) -> int:
    return publish(lake.pipeline, once=True).rows


def fault(tmp_path: Path, point: Point, victim: Victim) -> Fault:
    return Fault(DONE.next_batch - 1, 1, point, victim, f"{tmp_path}/fault")


def test_a_slow_slot_holds_back_its_own_partitions_alone(
    spark: SparkSession, sink: TransactionalSink, broker: str, tmp_path: Path
) -> None:
    slow = fault(tmp_path, Point.SLOT_SENT, "straggler")
    with striking(slow), ThreadPoolExecutor(1) as beside:
        publishing = beside.submit(publish_rows, rows(spark), sink, DONE, is_new=True)
        try:
            wait_until(Path(slow.marker).exists, "slot 1 waits before its commit")
            wait_until(
                lambda: len(messages_of(broker, sink.topic, "read_uncommitted")) == ROWS, "all rows are sent"
            )
            sent = messages_of(broker, sink.topic, "read_uncommitted")
            every = Counter(message.partition for message in sent)
            assert set(every) == set(range(PARTITIONS))
            own = {number: count for number, count in every.items() if number % 2 == 0}
            wait_until(
                lambda: Counter(message.partition for message in messages_of(broker, sink.topic)) == own,
                "readers have all rows of the other slot",
            )
        finally:
            Path(f"{slow.marker}.done").touch()
        assert publishing.result(60).rows == ROWS
    assert len(messages_of(broker, sink.topic)) == ROWS


def test_a_task_that_fails_ends_its_transaction(
    spark: SparkSession, sink: TransactionalSink, broker: str, tmp_path: Path
) -> None:
    fails = fault(tmp_path, Point.ROWS_PRODUCED, "task")
    with striking(fails), pytest.raises(PythonException, match="a fault of the test"):
        publish_rows(rows(spark), sink, DONE, is_new=True)
    wait_until(lambda: not is_open(broker, sink.topic), "readers wait for nobody", 30)


def test_a_stream_that_is_told_to_stop_ends_its_transactions(
    make: Callable[..., Lake], broker: str, sink: TransactionalSink, tmp_path: Path
) -> None:
    lake = make()
    enter(lake, *range(1, 9))
    slow = replace(fault(tmp_path, Point.SLOT_SENT, "straggler"), batch=0)
    stop_in_the_middle(lake, slow, Path(slow.marker).exists)
    wait_until(lambda: not is_open(broker, sink.topic), "readers wait for nobody", 30)
    assert send(lake) == 8
    assert len(messages_of(broker, sink.topic)) == 8


def test_a_start_that_a_late_task_of_another_run_fences_takes_the_slots_again(
    make: Callable[..., Lake], broker: str, sink: TransactionalSink
) -> None:
    lake = make()
    enter(lake, 1, 2)
    own = sink_of(lake.config)
    with armed(Point.SLOTS_FENCED, once(lambda: own.connection.take(0))):
        assert send(lake) == 2
    enter(lake, 3)
    with (
        armed(Point.SLOTS_FENCED, lambda: own.connection.take(1)),
        pytest.raises(SourceError, match=r"taken the slots each time .*leave one driver running"),
    ):
        send(lake)
    assert send(lake) == 1
    assert len(messages_of(broker, sink.topic)) == 3


def test_two_runs_of_one_checkpoint_notice_each_other_and_one_notices_more_partitions_of_the_topic(
    make: Callable[..., Lake], admin: AdminClient, broker: str, sink: TransactionalSink
) -> None:
    lake = make()
    enter(lake, 1, 2)
    send(lake)
    enter(lake, 3, 4)
    clone = make("clone")
    shutil.copytree(lake.config.root, clone.config.root)

    def the_clone() -> None:
        assert send(clone) == 2

    with (
        armed(Point.PROGRESS_AGREES, once(the_clone)),
        pytest.raises(SourceError, match=r"another run has taken the slots.*leave one driver running"),
    ):
        send(lake)
    assert len(messages_of(broker, sink.topic)) == 4
    # The one that is left goes on, but for a topic that has changed until somebody says that it may.
    admin.create_partitions([NewPartitions(sink.topic, PARTITIONS + 1)])[sink.topic].result(30)
    enter(clone, 5)
    with pytest.raises(SourceError, match=r"found 5 partitions, expected the 4 .* reset .*--to checkpoint"):
        send(clone)
    assert publishing_status(clone.pipeline).problem
    reset_publishing(clone.pipeline, "checkpoint", None)
    assert send(clone) == 1
    assert len(messages_of(broker, sink.topic)) == 5


def test_a_micro_batch_of_which_nothing_is_committed_is_published_in_another_number_of_slots(
    make: Callable[..., Lake], broker: str, sink: TransactionalSink, tmp_path: Path
) -> None:
    lake, died = make(), RuntimeError("a fault of the test")
    enter(lake, *range(1, 9))
    for slots in (2, 3, 1):
        with armed(Point.PART_DUE, dying(died)), pytest.raises(InfrastructureError):
            send(make(slots=slots))
    slow = replace(fault(tmp_path, Point.SLOT_SENT, "straggler"), batch=0)
    four = make(slots=4)
    # Some slots are published now, and slot 1 is not.
    stop_in_the_middle(four, slow, lambda: len(messages_of(broker, sink.topic)) > 0)
    with pytest.raises(SourceError, match=r"found 2, but micro-batch 0 was begun with 4\. Finish"):
        send(make(slots=2))
    assert send(four) == 8
    sent = Counter(message.key for message in messages_of(broker, sink.topic))
    assert (len(sent), {*sent.values()}) == (8, {1})


def test_another_run_that_has_the_slots_keeps_its_transactions(
    spark: SparkSession, sink: TransactionalSink
) -> None:
    ours, theirs = replace(DONE, next_batch=5, run="ours"), replace(DONE, next_batch=5, run="theirs")
    write_slot_progress(sink, fence_slots(sink, {}), {0: ours, 1: ours})
    has = fence_slots(sink, {})
    write_slot_progress(sink, has, {0: theirs, 1: theirs})
    with pytest.raises(PythonException, match="another run has taken the slots: found theirs"):
        publish_rows(rows(spark), sink, replace(DONE, run="ours"), is_new=False)
    end_transactions(sink, "ours")
    # A producer that was fenced could not.
    write_slot_progress(sink, has, {0: theirs, 1: theirs})


@pytest.mark.thorough
def test_a_run_that_was_replaced_is_refused_also_when_the_offsets_of_the_group_have_expired(
    spark: SparkSession, sink: TransactionalSink, broker: str, admin: AdminClient
) -> None:
    """A driver has planned a micro-batch, and stood still until another had published it."""
    theirs = replace(DONE, run="theirs")
    write_slot_progress(sink, fence_slots(sink, {}), dict.fromkeys(range(2), replace(theirs, next_batch=5)))
    publish_rows(rows(spark), sink, theirs, is_new=False)
    admin.delete_consumer_groups([sink.name])[sink.name].result(30)
    with pytest.raises(PythonException, match="another run has taken the slots: found theirs"):
        publish_rows(rows(spark), sink, replace(DONE, run="ours"), is_new=True)
    assert set(Counter(message.key for message in messages_of(broker, sink.topic)).values()) == {1}


@pytest.mark.thorough
def test_a_run_that_had_more_slots_than_the_next_one_is_shut_out_of_all_of_them(
    spark: SparkSession, sink: TransactionalSink, broker: str, tmp_path: Path
) -> None:
    """The rows of a slot that is no more are in another slot, so both runs would publish them."""
    before = publisher(spark, sink, f"{tmp_path}/checkpoint")
    publisher(spark, replace(sink, slots=1), f"{tmp_path}/checkpoint")
    ours = SlotProgress(1, "query", before.topic_id, 2, run=before.run, partitions=PARTITIONS)
    with pytest.raises(PythonException, match=r"another run has taken the slots|belongs to another stream"):
        publish_rows(rows(spark), sink, ours, is_new=True)
    assert messages_of(broker, sink.topic) == []


def test_progress_that_is_not_committed_is_rolled_back(sink: TransactionalSink, broker: str) -> None:
    write_slot_progress(sink, fence_slots(sink, {}), dict.fromkeys(range(2), DONE))

    class Refused:
        """A producer whose commit the cluster refuses."""

        def __init__(self, producer: SlotProducer) -> None:
            self._producer = producer

        def __getattr__(self, name: str) -> Any:
            return getattr(self._producer, name)

        def commit_transaction(self, timeout_s: float) -> None:
            # What was sent is there, and hides what follows from readers of what is committed.
            assert not self._producer.flush(timeout_s)
            assert is_open(broker, sink.progress_topic)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    taken: Any = {slot: Refused(producer) for slot, producer in fence_slots(sink, {}).items()}
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        write_slot_progress(sink, taken, {0: replace(DONE, next_batch=7)})
    # The producers are still there, and have their slots: nobody else has ended anything.
    assert not is_open(broker, sink.progress_topic)
    with asking(sink) as cluster:
        assert read_slot_progress(cluster, sink, is_stable=True) == dict.fromkeys(range(2), DONE)


@pytest.mark.thorough
def test_a_topic_of_which_a_broker_does_not_know_yet_has_no_number_of_partitions(
    sink: TransactionalSink,
) -> None:
    unknown = replace(sink, topic=f"{sink.topic}-later")
    new = QueryFiles("/lake/checkpoint", None, 0, None)
    with asking(sink) as cluster:
        assert partitions_of(cluster, sink, new) == PARTITIONS
        with pytest.raises(InfrastructureError, match="-later' has no partitions yet; start again"):
            partitions_of(cluster, unknown, new)


@pytest.mark.thorough
def test_what_was_begun_with_slots_by_a_hash_is_finished_so(
    spark: SparkSession, sink: TransactionalSink, broker: str
) -> None:
    publish_rows(rows(spark), sink, replace(DONE, partitions=0), is_new=True)
    first = Counter(message.key for message in messages_of(broker, sink.topic))
    assert set(first.values()) == {1}
    write_slot_progress(sink, fence_slots(sink, {}), {1: replace(DONE, next_batch=5, partitions=0)})
    done = publish_rows(rows(spark), sink, DONE, is_new=False)
    assert (done.rows, done.slots_done_before) == (ROWS, 1)
    twice = Counter(message.key for message in messages_of(broker, sink.topic))
    # Slot 1 was published before as well, and nothing else is.
    by_hash = in_slots(rows(spark), sink, 0).where(F.spark_partition_id() == 1).collect()
    slot_one = {bytes(row["key"]) for row in by_hash}
    assert twice == first + Counter(slot_one)
    assert 0 < len(slot_one) < ROWS
