"""The model of Kafka's transactions does what a broker does, for the same requests in the same order."""

import os
from collections.abc import Sequence
from contextlib import closing, suppress
from random import Random
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from pipelines.publishing.slot_connections import Connection
from pipelines.publishing.slots import SlotConnection, SlotProducer, SlotProgress, send_progress
from simulation.kafka import ModelCluster, ModelConsumer, ModelProducer
from simulation.publishing import ModelClients
from tests.support.immediate_effects import Unscheduled
from tests.support.kafka import MakeTopic
from tests.support.readers import messages_of

CLIENTS = ("A", "B")
Operation = tuple[str, str]


class ModelConnection:
    """How a slot is reached in the model, where all happens at once."""

    name, progress_topic, timeout_s, transaction_timeout_ms = "sink", "progress", 30.0, 60_000

    def __init__(self) -> None:
        self.cluster = ModelCluster(Unscheduled())

    def take(self, slot: int) -> SlotProducer:
        return ModelProducer(self.cluster, f"{self.name}-{slot}", 60.0)

    def consumer(self, *, is_stable: bool = True) -> Any:
        return ModelConsumer(self.cluster, self.timeout_s, is_stable=is_stable)

    def clients(self, slot: int) -> ModelClients:
        return ModelClients(self, slot)


class Clients:
    """Two producers of a slot, one after the other or both at once, and what readers get."""

    def __init__(self, connection: SlotConnection, topic: str) -> None:
        self.connection, self.topic = connection, topic
        self._producers = dict[str, SlotProducer]()
        self._begun = set[str]()
        self._sent = 0

    def do(self, what: str, who: str) -> str:
        """Does one thing; returns what came of it."""
        if what == "take":
            # Of another process: a client ends what it has begun when it is closed.
            with closing(self.connection.clients(0)) as clients:
                self._producers[who] = clients.take()
            self._begun.discard(who)
            return "taken"
        if who not in self._producers or (what != "begin" and who not in self._begun):
            return "nothing to do"
        try:
            return self._done(what, who)
        except KafkaException:
            # One that was refused has to take the slot again.
            self._producers.pop(who)
            self._begun.discard(who)
            return "refused"

    def _done(self, what: str, who: str) -> str:
        producer = self._producers[who]
        self._sent += 1
        match what:
            case "begin" if who not in self._begun:
                producer.begin_transaction()
                self._begun.add(who)
                self._progress(producer, self._sent)
            case "send":
                # A client that was refused says so at once or when it ends.
                with suppress(KafkaException):
                    producer.produce(self.topic, b"", f"{who} {self._sent}".encode(), 0)
                    producer.flush(30)
            case "progress":
                self._progress(producer, self._sent)
                producer.flush(30)
            case "commit" | "abort":
                ends = producer.commit_transaction if what == "commit" else producer.abort_transaction
                ends(30)
                self._begun.discard(who)
                # A producer has one transaction.
                self._producers.pop(who)
        return "done"

    def _progress(self, producer: SlotProducer, batch: int) -> None:
        with closing(self.connection.consumer()) as consumer:
            mark = SlotProgress(batch, "query", "topic", 1)
            send_progress(producer, self.connection, 0, mark, consumer.consumer_group_metadata())

    def progress(self) -> int:
        """What progress says, without waiting."""
        with closing(self.connection.consumer(is_stable=False)) as consumer:
            (place,) = consumer.committed([TopicPartition(self.connection.progress_topic, 0)], timeout=30)
            return max(place.offset, -1)


def random_operations(seed: int, count: int) -> list[Operation]:
    random = Random(seed)  # noqa: S311 - nothing here is secret
    kinds = ("take", "begin", "begin", "send", "send", "progress", "commit", "commit", "abort")
    return [(random.choice(kinds), random.choice(CLIENTS)) for _ in range(count)]


def compare(broker: str, topic: str, progress_topic: str, operations: Sequence[Operation]) -> None:
    name = f"sink-{os.urandom(4).hex()}"
    connection = Connection(name, progress_topic, {"bootstrap.servers": broker}, None, 30.0, 60_000)
    model = ModelConnection()
    real, modelled = Clients(connection, topic), Clients(model, topic)
    ends = 0
    for at, operation in enumerate(operations):
        came = real.do(*operation)
        assert (at, operation, modelled.do(*operation)) == (at, operation, came)
        if operation[0] in ("take", "commit", "abort"):
            ends += 1
            assert (at, modelled.progress()) == (at, real.progress())
    for clients in (real, modelled):
        # What is open ends.
        clients.do("take", "last")
    found = [message.key for message in messages_of(broker, topic)]
    assert [record.key for _, record in model.cluster.committed((topic, 0))] == found
    assert modelled.progress() == real.progress()
    assert ends > 3


@pytest.fixture
def topics(admin: AdminClient, topic: MakeTopic) -> tuple[str, str]:
    return topic(partitions=1, name="out"), topic(partitions=1, name="progress")


def test_who_takes_the_slot_decides_what_becomes_of_the_one_before(
    broker: str, topics: tuple[str, str]
) -> None:
    compare(
        broker,
        *topics,
        [
            *(("take", "A"), ("begin", "A"), ("send", "A"), ("take", "B"), ("commit", "A")),
            *(("begin", "B"), ("send", "B"), ("progress", "B"), ("commit", "B")),
            *(("take", "A"), ("begin", "A"), ("send", "A"), ("abort", "A")),
            *(("take", "A"), ("begin", "A"), ("take", "B"), ("begin", "B"), ("send", "A"), ("commit", "A")),
            *(("send", "B"), ("commit", "B"), ("take", "A"), ("begin", "A"), ("progress", "A")),
            *(("take", "B"), ("abort", "A"), ("begin", "B"), ("commit", "B")),
        ],
    )


@pytest.mark.parametrize(
    "seed", [pytest.param(0), *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 10))]
)
def test_random_requests_have_the_same_outcomes(broker: str, topics: tuple[str, str], seed: int) -> None:
    compare(broker, *topics, random_operations(seed, 40))
