"""A run with another number of slots is shut out of all of them, by the code that drivers run."""

from collections.abc import Mapping
from random import Random

import pytest
from confluent_kafka import KafkaError, KafkaException

from pipelines.publishing.progress_check import RunStart, start_run
from pipelines.publishing.slot_writer import SlotTask
from pipelines.publishing.slots import ProgressError, SlotProducer, SlotProgress, transactional_id
from simulation.kafka import ModelCluster, kafka_refusal
from simulation.kernel import Process
from simulation.publishing import ModelConnection, ModelRows, ModelSink, ModelStart, PublishingWorld, publish
from simulation.schedules import Replay
from tests.support.immediate_effects import Unscheduled


class Driver:
    """A driver of a stream whose effects happen at once."""

    def __init__(self, world: PublishingWorld, name: str, slots: int) -> None:
        self.connection = ModelConnection(world, Process(name, 0))
        self.sink = ModelSink("sink", "out", slots, {}, reached=self.connection)
        self.rows = ModelRows(world, name, (0, 1), 0, slots)
        self.effects = ModelStart(world, self.sink)

    def start(self) -> RunStart:
        return start_run(self.effects, self.sink, self.connection.process.name)

    def publish(self, slot: int, done: SlotProgress) -> None:
        publish(slot, self.rows, SlotTask(self.connection, "out", done, True, {}, "begin anew"))


@pytest.fixture
def world() -> PublishingWorld:
    world = PublishingWorld(Replay([]), Random(0))  # noqa: S311 - it decides nothing here
    world.kernel.close()
    world.kernel = world.cluster.kernel = Unscheduled()
    return world


def done(start: RunStart) -> SlotProgress:
    return SlotProgress(1, "query", "topic", start.ours.slots, run=start.ours.run, partitions=2)


def test_a_run_that_had_more_slots_than_the_next_one_publishes_none_of_them(world: PublishingWorld) -> None:
    """Rows of a slot that is no more are in another slot."""
    before, after = Driver(world, "before", 2), Driver(world, "after", 1)
    was, now = before.start(), after.start()
    after.publish(0, done(now))
    for slot in range(2):
        with pytest.raises(ProgressError):
            before.publish(slot, done(was))
    assert world.published() == {0: 1, 1: 1}


def test_a_run_with_more_slots_that_begins_meanwhile_is_shut_out_of_all(world: PublishingWorld) -> None:
    before, after = Driver(world, "before", 2), Driver(world, "after", 1)

    class Beside(ModelStart):
        """The other run takes its slots, and is about to say so, when this one has looked."""

        has_begun = False

        def fence_slots(self, marks: Mapping[int, SlotProgress]) -> Mapping[int, SlotProducer]:
            if not self.has_begun:
                self.has_begun = True
                was.append(before.start())
            return super().fence_slots(marks)

    was = list[RunStart]()
    now = start_run(Beside(world, after.sink), after.sink, "after")
    after.publish(0, done(now))
    for slot in range(2):
        with pytest.raises((ProgressError, KafkaException)):
            before.publish(slot, done(was[0]))
    assert world.published() == {0: 1, 1: 1}


def test_a_slot_whose_transaction_cannot_begin_leaves_none_open(world: PublishingWorld) -> None:
    """Else readers of its progress wait until the transaction has timed out."""

    class Refusing(ModelCluster):
        """The group can be written to until the run has begun."""

        has_begun = False

        def commit_offsets(
            self, transactional_id: str, epoch: int, offsets: Mapping[int, tuple[int, str]]
        ) -> None:
            if self.has_begun:
                raise kafka_refusal(KafkaError.GROUP_AUTHORIZATION_FAILED)
            super().commit_offsets(transactional_id, epoch, offsets)

    world.cluster = cluster = Refusing(world.kernel)
    driver = Driver(world, "driver", 1)
    start = driver.start()
    cluster.has_begun = True
    with pytest.raises(KafkaException):
        driver.publish(0, done(start))
    assert cluster.ids[transactional_id(driver.connection.name, 0)].state == "aborted"
