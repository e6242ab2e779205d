"""Planted faults of publishing, see `simulation.planted`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import TopicPartition

from pipelines.publishing.slot_writer import SlotResult, SlotTask
from pipelines.publishing.slots import SlotProducer, SlotProgress, send_progress, what_to_do
from simulation.kafka import ModelCluster, ModelConsumer, ModelMessage, Transactional
from simulation.kernel import Schedule
from simulation.planted import Planted
from simulation.publishing import ModelConnection, ModelRows, ModelStart, PublishingWorld, new_producer
from simulation.runs import World


def _look(slot: int, task: SlotTask) -> SlotProgress | None:
    consumer = task.connection.consumer()
    place = TopicPartition(task.connection.progress_topic, slot)
    return SlotProgress.of(consumer.committed([place], timeout=task.connection.timeout_s)[0])


def _produce(producer: SlotProducer, slot: int, rows: ModelRows, task: SlotTask) -> int:
    batch = rows.of_slot(slot)
    keys, partitions = batch.column("key").to_pylist(), batch.column("partition").to_pylist()
    for key, partition in zip(keys, partitions, strict=True):
        producer.produce(task.topic, b"", key, partition)
    producer.flush(60)
    return len(keys)


@dataclass(frozen=True)
class _Wrong:
    """A way to publish a slot that is wrong.

    Attributes:
        looks_first: progress is read before the slot is taken.
        looks: progress is looked at, at all.
        order: what each transaction holds.
    """

    looks_first: bool = False
    looks: bool = True
    order: tuple[str, ...] = ("rows and progress",)

    def __call__(self, slot: int, rows: ModelRows, task: SlotTask) -> SlotResult:
        mark = _look(slot, task) if self.looks_first else None
        producer = task.connection.take(slot)
        mark = mark if self.looks_first else _look(slot, task)
        if self.looks and what_to_do(mark, task.done, is_new=task.is_new) == "skip":
            return SlotResult(slot, rows.count(), was_done=True)
        for content in self.order:
            producer.begin_transaction()
            if "rows" in content:
                _produce(producer, slot, rows, task)
            if "progress" in content:
                send_progress(producer, task.connection, slot, task.done, object())
            producer.commit_transaction(30)
        return SlotResult(slot, rows.count(), was_done=False)


def _kept_producer(world: PublishingWorld, connection: ModelConnection, slot: int) -> SlotProducer:
    """Return the producer that an executor has kept from the micro-batch before."""
    driver, _, task = connection.process.name.partition(".")
    if not task:
        return new_producer(world, connection, slot)
    kept: dict[Any, SlotProducer] = world.__dict__.setdefault("kept", {})
    if (driver, slot) not in kept:
        kept[driver, slot] = new_producer(world, connection, slot)
    return kept[driver, slot]


class _WithoutFencing(ModelCluster):
    """Whoever takes a slot shuts nobody out."""

    def init(self, transactional_id: str, timeout_s: float) -> int:
        known = self.ids.setdefault(transactional_id, Transactional(epoch=0))
        known.timeout_s = timeout_s
        return known.epoch

    def shut_out(self, known: Transactional) -> None:
        pass


class _OffsetsAlone(ModelConsumer):
    """The group's offsets are all that is looked at, and they expire."""

    def _next(self) -> list[ModelMessage]:
        return [message for message in super()._next() if message.record is None]


@dataclass(frozen=True)
class _OffsetsConnection(ModelConnection):
    """What tasks look at; a start looks at the records of the progress topic as well."""

    def consumer(self, *, is_stable: bool = True) -> Any:
        kind = _OffsetsAlone if "." in self.process.name else ModelConsumer
        return kind(self.world.cluster, self.timeout_s, is_stable=is_stable)


class _StartOfOwnSlots(ModelStart):
    """A start says nothing in slots that the sink had before and has no more."""

    def write(self, taken: Mapping[int, SlotProducer], marks: Mapping[int, SlotProgress]) -> None:
        super().write(taken, {slot: mark for slot, mark in marks.items() if slot < self.slots})


class _BlindRows(ModelRows):
    """Nobody compares the rows of a slot with those that it was published with."""

    def of_slot(self, slot: int) -> Any:
        batch = super().of_slot(slot)
        blind = pa.array([0] * batch.num_rows, pa.int64())
        return batch.set_column(3, "_hash_1", blind).set_column(4, "_hash_2", blind)


def _world(
    change: Callable[[PublishingWorld], None] | None, schedule: Schedule, setup: Random, **wrong: Any
) -> World:
    world = PublishingWorld(schedule, setup, **wrong)
    if change:
        change(world)
    return world


def _without_fencing(world: PublishingWorld) -> None:
    world.cluster = _WithoutFencing(world.kernel)


def _planted(
    name: str, seed: int, change: Callable[[PublishingWorld], None] | None = None, **wrong: Any
) -> Planted:
    return Planted(name, seed, partial(_world, change, **wrong))


PUBLISHING: Final = (
    _planted("no fencing of producers", 15, _without_fencing),
    _planted("progress is not read", 0, publish=_Wrong(looks=False)),
    _planted("progress is read before the slot is taken", 13, publish=_Wrong(looks_first=True)),
    _planted("progress is committed before the rows", 0, publish=_Wrong(order=("progress", "rows"))),
    _planted("progress is committed after the rows", 0, publish=_Wrong(order=("rows", "progress"))),
    _planted("a producer is kept, and its late EndTxn ends the next", 16, make_producer=_kept_producer),
    _planted("runs have no names of their own", 396, run_of=lambda process: "run"),
    _planted("tasks read offsets alone", 143, connect=_OffsetsConnection),
    _planted("former slots are left to the run before", 396, make_start=_StartOfOwnSlots),
    _planted("the content of a slot is not compared", 208, make_rows=_BlindRows, are_rules_known=False),
)
