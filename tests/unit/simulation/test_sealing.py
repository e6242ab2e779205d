"""What a seal must not pass over, by the code that seals, over models where all happens at once."""

from datetime import date
from random import Random

import pytest

from pipelines.errors import SourceError
from pipelines.nightly.seal_terms import wait_until_sealed
from simulation.kernel import Process
from simulation.schedules import Replay
from simulation.sealing import ModelSeal, SealingWorld
from tests.support.immediate_effects import Unscheduled

DAY = date(2013, 1, 5)


@pytest.fixture
def world() -> SealingWorld:
    world = SealingWorld(Replay([]), Random(0))  # noqa: S311 - it decides nothing here
    world.kernel.close()
    world.kernel = Unscheduled()
    world.topic.recreate(2)
    world.has_gaps = world.is_stamped = False
    return world


def send(world: SealingWorld, partition: int) -> None:
    world.topic.send(partition, world.time(), DAY)
    world.kernel.now += 1


def ingest(world: SealingWorld, name: str) -> None:
    world.make_query(world, Process(name, 0), True, world.make_ingest(world)).run(5)
    world.kernel.now += 1


def seal(world: SealingWorld) -> list[tuple[int, int]]:
    world.kernel.now = 100
    return [(each.partition, each.last) for each in wait_until_sealed(ModelSeal(world), DAY).offsets()]


def test_records_that_kafka_deletes_before_ingest_reads_the_first_of_a_partition_are_missed(
    world: SealingWorld,
) -> None:
    send(world, 0)
    ingest(world, "first")
    send(world, 1)
    world.topic.delete(1, 1)
    with pytest.raises(SourceError, match=r"deleted offsets that bronze lacks: flights-1: offsets 0 to 0\."):
        seal(world)


def test_the_first_records_of_a_partition_that_bronze_has_lost_are_missed(world: SealingWorld) -> None:
    send(world, 0)
    ingest(world, "first")
    send(world, 1)
    ingest(world, "second")
    world.restore(as_a_copy=False)
    world.topic.delete(1, 1)
    send(world, 1)
    # Ingest goes on behind what its checkpoint says was read: Kafka no longer says whether that were records.
    ingest(world, "third")
    with pytest.raises(SourceError, match=r"deleted offsets that bronze lacks: flights-1: offsets 0 to 0\."):
        seal(world)


def test_what_kafka_had_deleted_when_ingest_began_is_not_missed(world: SealingWorld) -> None:
    for partition in (0, 1):
        send(world, partition)
    world.topic.delete(1, 1)
    send(world, 1)
    ingest(world, "first")
    assert seal(world) == [(0, 0), (1, 1)]
