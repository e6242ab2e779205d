"""Planted faults of backfills, see `simulation.planted`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

from pipelines.kafka.missing_offsets import MissingRange
from pipelines.ledger.lease_holders import HeldLease
from pipelines.ledger.lease_terms import LeaseTerm, take
from pipelines.spark.ingest_plans import MicroBatchPlan
from simulation.backfill import LIMITS, BackfillWorld, LeaseRow, Machine, ModelBackfill, hold, lease_tables
from simulation.ingest import BronzeTransaction
from simulation.kernel import Process, Schedule
from simulation.planted import Planted
from simulation.runs import World
from simulation.topic import Sent


class _BehindTheBorder(ModelBackfill):
    """A backfill reads up to Kafka's end, and not up to where ingest goes on."""

    def plan(self, batch: int) -> MicroBatchPlan | None:
        plan = super().plan(batch)
        ends = {number: offsets.stop for number, offsets in self.world.topic.bounds().items()}
        return None if plan is None else replace(plan, ends=ends)


class _CountedEarly(ModelBackfill):
    """What bronze has is counted before it is known where ingest goes on."""

    def __init__(self, world: BackfillWorld) -> None:
        super().__init__(world)
        self._counted = super()._offsets("bronze: count early")

    def _offsets(self, label: str) -> list[tuple[int, int]]:
        return self._counted


class _ChunksNotCompared(ModelBackfill):
    """Of a range of which bronze has some records, all are written."""

    @contextmanager
    def lacking(self, chunk: Mapping[int, MissingRange]) -> Iterator[Sequence[Sent]]:
        whole = {number: replace(each, is_partial=False) for number, each in chunk.items()}
        with super().lacking(whole) as records:
            yield records


class _PlansNotAwaited(ModelBackfill):
    """A micro-batch that ingest has planned, and not written, is not waited for."""

    def plan(self, batch: int) -> MicroBatchPlan | None:
        return super().plan(batch) if batch in self.world.checkpoint.done else None


class _IngestIsNoConflict(ModelBackfill):
    """A commit of ingest while a chunk is committed is no conflict."""

    def begin(self) -> BronzeTransaction:
        class Transaction(BronzeTransaction):
            def number_taken(self, application: str) -> int:
                taken = super().number_taken(application)
                self._applications.discard("query")
                return taken

        return Transaction(self.world)


class _AnyLease(LeaseRow):
    """A lease that another run holds is free."""

    def held(self) -> HeldLease | None:
        return None


@contextmanager
def _unfenced(world: BackfillWorld, process: Process) -> Iterator[LeaseTerm]:
    """Give the lease to whoever asks, and do not claim bronze for its epoch."""
    yield take(_AnyLease(*lease_tables(world)), Machine(world, process), LIMITS, process.name)


@contextmanager
def _not_claimed(world: BackfillWorld, process: Process) -> Iterator[LeaseTerm]:
    """Do not claim bronze with the lease."""
    term = take(LeaseRow(*lease_tables(world)), Machine(world, process), LIMITS, process.name)
    try:
        yield term
    finally:
        term.give_back()


def _reset_without(world: BackfillWorld, process: Process) -> Any:
    """Reset ingest whoever has the lease of backfills."""
    return nullcontext() if process.name.startswith("reset") else hold(world, process)


def _backfill(schedule: Schedule, setup: Random, **wrong: Any) -> World:
    return BackfillWorld(schedule, setup, **wrong)


def _source(name: str, seed: int, make: type[ModelBackfill]) -> Planted:
    return Planted(name, seed, partial(_backfill, make_source=make))


def _hold(name: str, seed: int, wrong: Any) -> Planted:
    return Planted(name, seed, partial(_backfill, hold=wrong))


BACKFILL: Final = (
    _source("records are read behind the border", 2, _BehindTheBorder),
    _source("bronze is counted before the border is known", 0, _CountedEarly),
    _source("chunks are not compared with bronze", 23, _ChunksNotCompared),
    _source("planned micro-batches are not waited for", 45, _PlansNotAwaited),
    _source("a commit of ingest is no conflict", 91, _IngestIsNoConflict),
    _hold("anybody holds the lease", 0, _unfenced),
    _hold("bronze is not claimed", 105, _not_claimed),
    _hold("a reset without the lease", 8081, _reset_without),
    Planted("no fencing of chunks", 0, partial(_backfill, is_fenced=False)),
)
