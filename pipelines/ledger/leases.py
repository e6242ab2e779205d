"""One run at a time: a lease in a Delta table, taken by a conditional commit, and the epoch that it gives.

Delta is the one thing that every store Oncelake writes to can commit atomically, so the lease needs no
lock service. The lease keeps runs from working in vain; what keeps a run that lost it, and does not know,
from harm is its epoch, which every commit of it carries (`pipelines.delta.epochs`).
"""

import logging
import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import psutil

from pipelines.delta.epochs import Epoch, Stamp, application, is_free, lease_end, next_epoch
from pipelines.delta.fenced_commits import claim, number_taken, replace_fenced
from pipelines.delta.io import read, small_rows
from pipelines.delta.read_ahead import versions_read_ahead
from pipelines.delta.tables import exists, small_frame
from pipelines.delta.transaction import StaleEpoch
from pipelines.errors import InfrastructureError
from pipelines.fault_points import Point, reach
from pipelines.ledger.catalog import BRONZE_INDEX, CERTIFICATIONS, LEASES, rows_named
from pipelines.ledger.certifications import ensure_ledger
from pipelines.spark.failures import first_line
from pipelines.spark.pipeline import Pipeline

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/pid")


@dataclass(frozen=True)
class Holder:
    """A process.

    Attributes:
        host: the name of its machine or container, for people.
        boot: what the kernel calls the machine's run since it was switched on; None where it does not say.
        pid_namespace: the namespace of `pid`; None if there is none.
        pid: the process id.
        process_started: seconds from the machine's start to the process's.
    """

    host: str
    boot: str | None
    pid_namespace: str | None
    pid: int
    process_started: float

    def is_gone(self) -> bool:
        """Return whether the process is known to have ended.

        That is known only of a process of this boot and this PID namespace. Host names are no proof: two
        containers may have the same, and a process of the one cannot be seen from the other.
        """
        current = this_process()
        if None in (self.boot, self.pid_namespace):
            return False
        if (self.boot, self.pid_namespace, self.host) != (current.boot, current.pid_namespace, current.host):
            return False
        try:
            process = psutil.Process(self.pid)
            # One that has ended keeps its number until its parent asks how; some parents never do.
            is_zombie = process.status() == psutil.STATUS_ZOMBIE
            return is_zombie or abs(started(process) - self.process_started) >= 1
        except psutil.NoSuchProcess:
            return True


def this_process() -> Holder:
    """Return the process that asks."""
    process = psutil.Process()
    return Holder(
        socket.gethostname(),
        _BOOT.read_text().strip() if _BOOT.exists() else None,
        os.readlink(_NAMESPACE) if _NAMESPACE.exists() else None,  # noqa: PTH115 - it names no file
        process.pid,
        started(process),
    )


def started(process: psutil.Process) -> float:
    """Return seconds from the machine's start to the process's.

    Setting the clock changes nothing about it.
    """
    return float(process.create_time() - psutil.boot_time())


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HeldLease:
    """What `ops/leases` says of a pipeline's lease.

    Attributes:
        run_id: the run that holds it, or held it last.
        process: the process of that run.
        since: when the run took it, in UTC.
        until: until when the run holds it, in UTC.
        epoch: the epoch of the run; None in rows of code that had none.
    """

    run_id: str
    process: Holder
    since: datetime
    until: datetime
    epoch: int | None

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "HeldLease":
        """Return the lease that a row of the table describes."""
        process = Holder(**{field.name: row[field.name] for field in fields(Holder)})
        since, until = (row[name].astimezone(UTC) for name in ("since", "until"))
        return cls(row["holder"], process, since, until, row["epoch"])

    def row(self, name: str) -> dict[str, Any]:
        """Return the row of the table, for the lease of a name."""
        return {
            "pipeline": name,
            "holder": self.run_id,
            "since": self.since,
            "until": self.until,
            "epoch": self.epoch,
            **asdict(self.process),
        }


class _Taken(InfrastructureError):
    """Somebody else has written the lease since it was looked at."""


class Lease:
    """A pipeline's lease while it is held; it prolongs itself until it is given back.

    Not for ever: a run that hangs loses it `batch.max_duration` after it was taken.
    """

    def __init__(self, pipeline: Pipeline, epoch: Epoch, number: int) -> None:
        self._pipeline = pipeline
        self._epoch, self._number = epoch, number
        self._since = datetime.now(UTC)
        self._given_back = threading.Event()
        self._prolonging = threading.Thread(target=self._prolong, name="lease", daemon=True)
        self._write(pipeline.config.batch.lease_duration)
        self._prolonging.start()

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self._epoch.epoch

    @property
    def run_id(self) -> str:
        """The run that holds the lease."""
        return self._epoch.run_id

    def stamp(self, what: str) -> Stamp:
        """Return what the run's next commit to a table that others rely on carries.

        Args:
            what: what the commit does, in a word.
        """
        self._epoch, stamp = self._epoch.after(what)
        return stamp

    def require(self) -> None:
        """Make sure that the lease is still this run's, before work that is in vain without it.

        This is a look and no fence: what others rely on is written with a `stamp`.

        Raises:
            InfrastructureError: another run has taken the lease over.
        """
        held = self._row()
        if not self._is_mine(held):
            raise InfrastructureError(
                f"{self._epoch.pipeline}: this run lost its lease"
                + (f" to {held.run_id}" if held else ", of which ops/leases has no row any more")
                + ", so it certifies nothing and changes nothing more. Run the command again when no other"
                " run is at work. If the lake is unavailable for long, raise batch.lease_duration"
            )

    def give_back(self) -> None:
        """Free the lease, if it is still this run's."""
        self._given_back.set()
        self._prolonging.join()
        if not self._is_mine(self._row()):
            return
        try:
            self._write(timedelta())
        except _Taken:
            _log.warning("the lease was not released: another run has taken it over")

    def _prolong(self) -> None:
        every = self._pipeline.config.batch.lease_duration.total_seconds() / 3
        while not self._given_back.wait(every):
            if datetime.now(UTC) >= self._since + self._pipeline.config.batch.max_duration:
                _log.error(
                    "this run has worked for longer than batch.max_duration: it no longer renews its lease,"
                    " so another run may take over"
                )
                return
            try:
                self.require()
                self._write(self._pipeline.config.batch.lease_duration)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next try may do better
                _log.warning("the lease was not renewed: %s", first_line(str(error)))

    def _row(self) -> HeldLease | None:
        return _held(self._pipeline, self._epoch.pipeline)

    def _is_mine(self, held: HeldLease | None) -> bool:
        return held is not None and (held.run_id, held.epoch) == (self._epoch.run_id, self.epoch)

    def _write(self, duration: timedelta) -> None:
        """Write the lease, if nobody else has since this one wrote it, or looked at it.

        A commit of this run whose answer was lost, as in an outage of the store, is not somebody else's.

        Raises:
            _Taken: somebody has.
        """
        until = lease_end(self._since, datetime.now(UTC), duration, self._pipeline.config.batch.max_duration)
        held = HeldLease(self._epoch.run_id, this_process(), self._since, until, self.epoch)
        try:
            self._commit(held)
        except StaleEpoch:
            # Before the row, as where the lease is taken.
            number = number_taken(
                self._pipeline.spark,
                LEASES.path(self._pipeline),
                application(self._epoch.pipeline),
            )
            if not self._is_mine(self._row()):
                raise _Taken("another run has taken the lease over") from None
            self._number = number
            try:
                self._commit(held)
            except StaleEpoch:
                raise _Taken("another run has taken the lease over") from None

    def _commit(self, held: HeldLease) -> None:
        following = self._number + 1
        stamp = Stamp(
            application(self._epoch.pipeline),
            following,
            f"lease {self._epoch.run_id} ({self.epoch}, {following})",
        )
        replace_fenced(
            small_frame(self._pipeline.spark, [held.row(self._epoch.pipeline)], LEASES.schema),
            LEASES.path(self._pipeline),
            rows_named(self._epoch.pipeline),
            stamp,
        )
        reach(Point.LEASE_WRITTEN)
        self._number = following


@contextmanager
def lease(pipeline: Pipeline, run_id: str) -> Iterator[Lease]:
    """Hold the pipeline's lease for as long as the block runs, in an epoch of its own.

    The ledger of verdicts is claimed for the epoch at once: what it says from then on changes by this run
    alone. A run that died frees its lease when `batch.lease_duration` is over, or at once when the next run
    can see that its process is gone (`pipelines.ledger.leases`).

    Raises:
        InfrastructureError: another run holds the lease. The message names it.
    """
    ledger = CERTIFICATIONS.path(pipeline)
    fenced = (pipeline.table("batch"), ledger, BRONZE_INDEX.path(pipeline))
    with _holding(pipeline, run_id, pipeline.name, fenced) as taken:
        ensure_ledger(pipeline)
        claim(pipeline.spark, ledger, taken.stamp("claim"))
        yield taken


@contextmanager
def backfill_lease(pipeline: Pipeline, run_id: str) -> Iterator[Lease]:
    """Hold the right to say, beside ingest, what comes into bronze and from where ingest goes on.

    It has a row of its own in `ops/leases`, so a nightly run does not wait for a backfill. Bronze is claimed
    for the epoch at once, so that a run that has lost this lease writes no record any more.

    Raises:
        InfrastructureError: another run holds it. The message names it.
    """
    bronze = pipeline.table("bronze")
    with _holding(pipeline, run_id, f"{pipeline.name}@backfill", (bronze,)) as taken:
        # A commit would bring a restored table to versions that its reader has read already.
        if exists(pipeline.spark, bronze) and not versions_read_ahead(pipeline, "bronze"):
            claim(pipeline.spark, bronze, taken.stamp("claim"))
        yield taken


@contextmanager
def _holding(pipeline: Pipeline, run_id: str, name: str, fenced: Sequence[str]) -> Iterator[Lease]:
    """Hold a lease for as long as the block runs.

    Args:
        pipeline: The pipeline.
        run_id: the run.
        name: the lease's name, which is the first column of its row.
        fenced: the tables whose commits carry its epochs.

    Raises:
        InfrastructureError: another run holds the lease. The message names it.
    """
    spark = pipeline.spark
    LEASES.ensure(pipeline)
    # Before the row, so that whoever writes the row from here on makes this run's commit fail.
    number = number_taken(spark, LEASES.path(pipeline), application(name))
    held = _held(pipeline, name)
    if held is not None and not _may_be_taken(held):
        raise _refusal(name, held)
    reach(Point.LEASE_LOOKED_AT)
    numbers = [number_taken(spark, path, application(name)) for path in fenced if exists(spark, path)]
    epoch = next_epoch(held.epoch if held else None, numbers)
    try:
        taken = Lease(pipeline, Epoch(name, run_id, epoch), number)
    except _Taken:
        raise _refusal(name, _held(pipeline, name)) from None
    try:
        yield taken
    finally:
        taken.give_back()


def held_lease(pipeline: Pipeline) -> HeldLease | None:
    """Return the lease of a pipeline if its time is not over; None if nobody holds it."""
    held = _held(pipeline, pipeline.name) if LEASES.exists(pipeline) else None
    return held if held is not None and held.until > datetime.now(UTC) else None


def _held(pipeline: Pipeline, name: str) -> HeldLease | None:
    rows = small_rows(read(pipeline.spark, LEASES.path(pipeline)).where(rows_named(name)).limit(1))
    return HeldLease.of_row(rows[0]) if rows else None


def _may_be_taken(held: HeldLease) -> bool:
    return is_free(held.until, datetime.now(UTC), is_gone=held.process.is_gone())


def _refusal(name: str, held: HeldLease | None) -> InfrastructureError:
    who, until = "another run", ""
    if held is not None:
        who = f"run {held.run_id} on {held.process.host} (pid {held.process.pid})"
        until = f" It holds the lease until {held.until:%Y-%m-%d %H:%M:%S} UTC at most."
    return InfrastructureError(
        f"{name}: {who} is at work on this pipeline now; this run has changed nothing.{until}"
        " Start again when it has ended"
    )
