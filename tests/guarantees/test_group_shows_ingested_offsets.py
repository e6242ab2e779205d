"""Kafka shows how far ingest is, by a consumer group that is never ahead of bronze and never in its way."""

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import SparkSession

from pipelines.config.kafka import KafkaConfig
from pipelines.errors import InfrastructureError
from pipelines.fault_points import Point, armed
from pipelines.kafka.offsets_group import OffsetsGroup, offsets_group
from pipelines.kafka.topics import find_topic
from pipelines.steps.checkpoints import reset_checkpoint
from pipelines.steps.ingest import ingest
from testbed.waiting import wait_until
from tests.support.accidents import dying
from tests.support.delta_rows import rows_in
from tests.support.kafka import MakeTopic, described_by_kafka, ordered_producer
from tests.support.lakes import Lake, flight


class Shown:
    """A topic, the lake that is filled from it, and what its cluster shows of that."""

    def __init__(self, broker: str, topic: str, make_lake: Callable[..., Lake]) -> None:
        # All tests share a cluster.
        self.group = f"shown-{topic}"
        self.topic, self.broker = topic, broker
        self.admin = AdminClient({"bootstrap.servers": broker})
        settings = (f"kafka.topic={topic}", f"ingest.offsets_group={self.group}")
        self.lake = make_lake(f"kafka.bootstrap_servers={broker}", *settings)

    def send(self, count: int, partition: int = 0) -> None:
        # A producer of its own knows of all partitions.
        producer = ordered_producer(self.broker)
        for number in range(count):
            producer.produce(self.topic, flight(flight=number + 1), partition=partition)
        assert producer.flush(60) == 0

    def ingest(self) -> None:
        ingest(self.lake.pipeline, once=True)

    def offsets(self) -> dict[int, int]:
        """What any lag tool reads."""
        asked = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.group)])
        return {each.partition: each.offset for each in asked[self.group].result(30).topic_partitions}

    def state(self) -> ConsumerGroupState:
        state: ConsumerGroupState = (
            self.admin.describe_consumer_groups([self.group])[self.group].result(30).state
        )
        return state

    def widen(self, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(self.topic, partitions)])[self.topic].result(30)
        kafka = self.lake.config.kafka
        wait_until(
            lambda: find_topic(self.lake.spark, kafka).partitions == partitions, "it has more partitions", 30
        )


@pytest.fixture
def shown(broker: str, topic: MakeTopic, make_lake: Callable[..., Lake]) -> Shown:
    return Shown(broker, topic(partitions=2), make_lake)


def test_the_group_has_what_bronze_has_through_restarts_failures_and_more_partitions(shown: Shown) -> None:
    shown.send(20)
    shown.ingest()
    assert shown.offsets() == {0: 20, 1: 0}
    assert shown.state() is ConsumerGroupState.EMPTY

    shown.send(5, partition=1)
    _kafkas_own_tool_shows_the_lag_of_a_group_without_members(shown)
    with (
        armed(Point.BATCH_LOOKED_FOR, dying(InfrastructureError("dies"))),
        pytest.raises(InfrastructureError),
    ):
        shown.ingest()
    assert shown.offsets() == {0: 20, 1: 0}

    shown.widen(3)
    shown.send(7, partition=2)
    shown.ingest()
    assert shown.offsets() == {0: 20, 1: 5, 2: 7}

    # Lost, as after a week in which nothing ran: a run that has nothing to read shows them again.
    shown.admin.delete_consumer_groups([shown.group])[shown.group].result(30)
    assert shown.offsets() == {}
    shown.ingest()
    assert shown.offsets() == {0: 20, 1: 5, 2: 7}

    shown.admin.delete_consumer_groups([shown.group])[shown.group].result(30)
    reset_checkpoint(shown.lake.pipeline, "reset", "ingest")
    shown.ingest()
    assert shown.offsets() == {0: 20, 1: 5, 2: 7}


def _kafkas_own_tool_shows_the_lag_of_a_group_without_members(shown: Shown) -> None:
    rows = described_by_kafka(shown.broker, shown.group)
    assert {int(row["PARTITION"]): row["CURRENT-OFFSET"] for row in rows} == {0: "20", 1: "0"}
    assert {int(row["PARTITION"]): row["LAG"] for row in rows} == {0: "0", 1: "5"}
    assert {(row["GROUP"], row["TOPIC"], row["CONSUMER-ID"]) for row in rows} == {
        (shown.group, shown.topic, "-")
    }


def test_a_commit_that_is_refused_is_told_and_stops_nothing(
    shown: Shown, caplog: pytest.LogCaptureFixture
) -> None:
    shown.send(20)
    member = Consumer({"bootstrap.servers": shown.broker, "group.id": shown.group})
    member.subscribe([shown.topic])
    try:
        wait_until(lambda: member.poll(0.2) is not None or bool(member.assignment()), "it is a member", 60)
        with caplog.at_level(logging.WARNING):
            shown.ingest()
    finally:
        member.close()
    assert len(rows_in(shown.lake.config.table("bronze"), "_offset")) == 20
    (told,) = (record for record in caplog.records if "offsets of ingest are not committed" in record.message)
    assert f"consumer group {shown.group}" in told.message
    shown.ingest()
    assert shown.offsets()[0] == 20


@contextmanager
def working(group: OffsetsGroup, shown: Shown) -> Iterator[None]:
    """Lets a group commit for the length of a block."""
    thread = threading.Thread(target=group.work, args=(shown.lake.spark, shown.lake.config.kafka))
    thread.start()
    try:
        yield
    finally:
        group.close()
        thread.join(60)


def test_a_failure_that_lasts_is_told_once_and_its_end_as_well(
    shown: Shown, caplog: pytest.LogCaptureFixture
) -> None:
    tries = []

    def ends() -> dict[int, int]:
        tries.append(1)
        return {0: 1}

    member = Consumer({"bootstrap.servers": shown.broker, "group.id": shown.group})
    member.subscribe([shown.topic])
    group = OffsetsGroup(shown.group, shown.topic, retry_after_s=0.1)
    try:
        wait_until(lambda: member.poll(0.2) is not None or bool(member.assignment()), "it is a member", 60)
        with caplog.at_level(logging.INFO), working(group, shown):
            group.request_commit(ends)
            wait_until(lambda: len(tries) > 3, "three tries have failed", 60)
            member.close()
            wait_until(lambda: "offsets are committed again" in caplog.text, "a commit is taken", 60)
    finally:
        member.close()
    assert caplog.text.count("offsets of ingest are not committed") == 1
    assert shown.offsets() == {0: 1}
    assert (group.counts.made, group.counts.failed >= 3) == (1, True)
    assert group.counts.last_at is not None


def test_offsets_are_committed_again_before_brokers_forget_them(shown: Shown) -> None:
    group = OffsetsGroup(shown.group, shown.topic, again_after_s=0.1)
    with working(group, shown):
        group.request_commit(lambda: {0: 1})
        wait_until(lambda: shown.offsets() == {0: 1}, "they are committed", 60)
        shown.admin.delete_consumer_groups([shown.group])[shown.group].result(30)
        wait_until(lambda: shown.offsets() == {0: 1}, "they are committed again", 60)


# Less than the time that the cluster is given to answer.
@pytest.mark.timeout(90)
def test_a_cluster_that_does_not_answer_holds_nobody_up(spark: SparkSession) -> None:
    with socket.socket() as silent:
        # It takes connections, and says nothing.
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        kafka = KafkaConfig(
            bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}",
            topic="nowhere",
            connect_timeout=timedelta(minutes=3),
        )
        with offsets_group(spark, kafka, "nobody") as group:
            assert group
            group.request_commit(lambda: {0: 1})
