"""One run at a time: a lease in a Delta table, taken by a conditional commit, and the epoch that it gives.

Delta is the one thing that every store Oncelake writes to can commit atomically, so the lease needs no
lock service. The lease keeps runs from working in vain; what keeps a run that lost it, and does not know,
from harm is its epoch, which every commit of it carries (`pipelines.delta.epochs`). The protocol itself is
in `pipelines.ledger.lease_terms`; here are the table and the thread that renews.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from pipelines.config.streams import Layer
from pipelines.delta.epochs import Stamp, application
from pipelines.delta.fenced_commits import claim, number_taken, replace_partition_fenced
from pipelines.delta.io import small_rows
from pipelines.delta.reader_position_check import versions_read_ahead
from pipelines.delta.small_tables import read_small
from pipelines.delta.tables import exists, small_frame
from pipelines.ledger.certifications import ensure_ledger
from pipelines.ledger.lease_holders import HeldLease, Holder, backfill_lease_name, this_process
from pipelines.ledger.lease_terms import LeaseLimits, LeaseTerm, take
from pipelines.ledger.ops_tables import BRONZE_INDEX, CERTIFICATIONS, LEASES, rows_named
from pipelines.spark.pipeline import Pipeline

# Where verdicts and batch table are put back from a backup, the others still know later epochs.
_FENCED: Final[tuple[Layer, ...]] = ("batch", "speed", "quarantine")


@dataclass(frozen=True)
class _DeltaLease:
    """The row of a lease in `ops/leases`, and the tables whose commits carry its epochs.

    Attributes:
        pipeline: The pipeline.
        name: The lease's name, which is the first column of its row.
        fenced: The tables.
        job: The command that takes it, for people; None if it is none.
    """

    pipeline: Pipeline
    name: str
    fenced: Sequence[str]
    job: str | None

    def number(self) -> int:
        return number_taken(self.pipeline.spark, LEASES.path(self.pipeline), application(self.name))

    def held(self) -> HeldLease | None:
        return _held(self.pipeline, self.name)

    def fenced_numbers(self) -> list[int]:
        spark, lease_application = self.pipeline.spark, application(self.name)
        there = [path for path in self.fenced if exists(spark, path)]
        return [number_taken(spark, path, lease_application) for path in there]

    def write(self, held: HeldLease, stamp: Stamp) -> None:
        row = small_frame(self.pipeline.spark, [replace(held, job=self.job).row(self.name)], LEASES.schema)
        replace_partition_fenced(row, LEASES.path(self.pipeline), {"pipeline": self.name}, stamp)


_at_work: Final[list[str]] = []
"""The runs of this process that take a lease, hold it or give it back; one by one for each lease."""


class _ThisMachine:
    """The machine that this process is on."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def process(self) -> Holder:
        return this_process()

    def is_gone(self, held: HeldLease) -> bool:
        # A run that could not give its lease back, as on a full disk, may leave a process that lives on: one
        # that runs several pipelines, or a notebook.
        has_ended = held.run_id not in _at_work and held.process.is_this_process()
        return has_ended or held.process.is_gone()


class Lease:
    """A pipeline's lease while it is held; it prolongs itself until it is given back.

    Not for ever: a run that hangs loses it `batch.max_duration` after it was taken.

    Args:
        term: The lease that was taken.
        renew_every_s: How often it is prolonged, in seconds.
    """

    def __init__(self, term: LeaseTerm, renew_every_s: float) -> None:
        self._term, self._renew_every_s = term, renew_every_s
        self._given_back = threading.Event()
        self._prolonging = threading.Thread(target=self._prolong, name="lease", daemon=True)
        self._prolonging.start()

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self._term.epoch

    @property
    def run_id(self) -> str:
        """The run that holds the lease."""
        return self._term.run_id

    def stamp(self, what: str) -> Stamp:
        """Return what the run's next commit to a table that others rely on carries.

        Args:
            what: What the commit does, in a word.
        """
        return self._term.stamp(what)

    def require(self) -> None:
        """Make sure that the lease is still this run's, before work that is in vain without it.

        This is a look and no fence: what others rely on is written with a `stamp`.

        Raises:
            InfrastructureError: Another run has taken the lease over.
        """
        self._term.require()

    def give_back(self) -> None:
        """Free the lease, if it is still this run's."""
        self._given_back.set()
        self._prolonging.join()
        self._term.give_back()

    def _prolong(self) -> None:
        while not self._given_back.wait(self._renew_every_s):
            if not self._term.renew():
                return


@contextmanager
def lease(pipeline: Pipeline, run_id: str, job: str | None = None) -> Iterator[Lease]:
    """Hold the pipeline's lease for as long as the block runs, in an epoch of its own.

    The ledger of verdicts is claimed for the epoch at once: what it says from then on changes by this run
    alone. A run that died frees its lease when `batch.lease_duration` is over, or at once when the next run
    can see that its process is gone, or that it has ended in the same process.

    Args:
        pipeline: The pipeline.
        run_id: The run.
        job: The command that the run is of, for people; None if it is none.

    Raises:
        InfrastructureError: Another run holds the lease. The message names it.
    """
    ledger = CERTIFICATIONS.path(pipeline)
    fenced = (ledger, BRONZE_INDEX.path(pipeline), *map(pipeline.table, _FENCED))
    with _holding(_DeltaLease(pipeline, pipeline.name, fenced, job), run_id) as taken:
        ensure_ledger(pipeline)
        claim(pipeline.spark, ledger, taken.stamp("claim"))
        yield taken


@contextmanager
def backfill_lease(pipeline: Pipeline, run_id: str, job: str | None = None) -> Iterator[Lease]:
    """Hold the right to say, beside ingest, what comes into bronze and from where ingest goes on.

    It has a row of its own in `ops/leases`, so a nightly run does not wait for a backfill. Bronze is claimed
    for the epoch at once, so that a run that has lost this lease writes no record any more.

    Args:
        pipeline: The pipeline.
        run_id: The run.
        job: As for `lease`.

    Raises:
        InfrastructureError: Another run holds it. The message names it.
    """
    bronze = pipeline.table("bronze")
    row = _DeltaLease(pipeline, backfill_lease_name(pipeline.name), (bronze,), job)
    with _holding(row, run_id) as taken:
        # A commit would bring a restored table to versions that its reader has read already.
        if exists(pipeline.spark, bronze) and not versions_read_ahead(pipeline, "bronze"):
            claim(pipeline.spark, bronze, taken.stamp("claim"))
        yield taken


@contextmanager
def _holding(row: _DeltaLease, run_id: str) -> Iterator[Lease]:
    """Hold a lease for as long as the block runs.

    Args:
        row: The lease.
        run_id: The run.

    Raises:
        InfrastructureError: Another run holds the lease. The message names it.
    """
    LEASES.ensure(row.pipeline)
    batch = row.pipeline.config.batch
    limits = LeaseLimits(batch.lease_duration, batch.max_duration)
    # Before it has the lease: another thread would take it for a run that has ended.
    _at_work.append(run_id)
    try:
        term = take(row, _ThisMachine(), limits, run_id)
        taken = Lease(term, batch.lease_duration.total_seconds() / 3)
        try:
            yield taken
        finally:
            taken.give_back()
    finally:
        _at_work.remove(run_id)


def held_lease(pipeline: Pipeline) -> HeldLease | None:
    """Return the lease of a pipeline if its time is not over; None if nobody holds it."""
    held = _held(pipeline, pipeline.name) if LEASES.exists(pipeline) else None
    return held if held is not None and held.until > datetime.now(UTC) else None


def _held(pipeline: Pipeline, name: str) -> HeldLease | None:
    rows = small_rows(read_small(pipeline.spark, LEASES.path(pipeline)).where(rows_named(name)))
    # A run that had looked at a table which was lost meanwhile has added its row beside another's.
    held = (HeldLease.of_row(row) for row in rows)
    return max(held, key=lambda each: each.epoch or 0, default=None)
