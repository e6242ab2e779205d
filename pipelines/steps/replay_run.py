"""What a replay reads, commits and marks, and in which order: the protocol, without Spark.

The tables are behind `ReplayLake`. The job uses Delta (`pipelines.steps.replay`); `simulation` uses models of
the tables. So what is simulated is what runs.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from typing import Generic, Protocol, TypeVar

from pipelines.delta.epochs import Stamp
from pipelines.fault_points import Point, reach
from pipelines.ledger.certifications import Certified
from pipelines.steps.rebuild import Rebuild

Records = TypeVar("Records")


@dataclass(frozen=True)
class ReplayCounts:
    """What became of records that were decoded again: `records` is the sum of the others.

    Attributes:
        records: Records that were decoded again.
        still_broken: Records that still break the contract.
        rows: Rows that are new in the speed layer.
        closed: Events of certified days.
        copies: Copies of events that readers have.
    """

    records: int
    still_broken: int
    rows: int
    closed: int
    copies: int


@dataclass(frozen=True)
class Replay(Generic[Records]):
    """What a replay has done so far, and what a rebuild has to complete.

    Attributes:
        counts: What became of the records.
        days: Certified days that must be rebuilt to take records in.
        gone: Certified days that cannot be, since bronze no longer holds all their records.
        of_certified_days: The coordinates of the records of certified days, and their `_event_date`.
    """

    counts: ReplayCounts
    days: tuple[date, ...]
    gone: tuple[date, ...]
    of_certified_days: Records


@dataclass(frozen=True)
class ReplayResult(Generic[Records]):
    """What was replayed, and what became of the certified days that got events.

    Attributes:
        done: What was put where it belongs.
        rebuild: The rebuild of the days.
        warnings: What people should know of the rebuild, and what keeps the view from the current state.
    """

    done: Replay[Records]
    rebuild: Rebuild
    warnings: list[str]


class ReplayLease(Protocol):
    """The lease that a replay holds."""

    def stamp(self, what: str) -> Stamp:
        """Return what the run's next commit carries."""


class ReplayLake(Protocol[Records]):
    """The tables of a pipeline, and the unresolved records of the quarantine that were chosen.

    What is written with a stamp fails if a later run has taken over.
    """

    def hold(self) -> AbstractContextManager[ReplayLease]:
        """Take the lease and claim the ledger for its epoch; give the lease back at the end."""

    def claim_speed(self, stamp: Stamp) -> None:
        """Make the speed layer refuse the commits of all earlier epochs."""

    def claim_ledger(self, stamp: Stamp) -> None:
        """Make the ledger of verdicts refuse them once more.

        Raises:
            StaleEpoch: A later run has taken the lease since.
        """

    def decoded(self) -> AbstractContextManager[Records]:
        """Decode the records, as the quarantine has them now; they are the same while the block runs."""

    def certified(self) -> Certified | None:
        """Return what is certified; None if no day ever was."""

    def broken(self, records: Records) -> Records:
        """Return the records that still break the contract."""

    def by_verdict(self, records: Records, certified: Certified | None) -> tuple[Records, Records]:
        """Return the events of days that are not certified, and those of certified days."""

    def unknown(self, events: Records, certified: Certified | None) -> Records:
        """Return the winners among events whose keys no reader has within the horizon."""

    def count(self, records: Records) -> int:
        """Return how many records these are."""

    def days(self, events: Records) -> Sequence[date]:
        """Return the event days of events, in order."""

    def first_rebuildable(self) -> date | None:
        """Return the first day that can be rebuilt; None for any."""

    def kept(self, events: Records) -> Records:
        """Return events that stay the same, whatever becomes of the tables that they were read from."""

    def add(self, rows: Records, stamp: Stamp) -> None:
        """Append rows to the speed layer, by a commit that carries a stamp."""

    def mark_replayed(self, events: Records, days: Sequence[date] | None = None) -> None:
        """Mark the records of events that are still unresolved as replayed; of some days, or all."""

    def mark_broken(self, records: Records) -> None:
        """Give records that are still unresolved the reason for which they are broken now."""

    def rebuild(self, days: Sequence[date]) -> Rebuild:
        """Rebuild and audit certified days from bronze, as a nightly run does."""

    def refresh_readers(self) -> list[str]:
        """Let readers have what is certified; return what keeps them from it."""


def run_replay(lake: ReplayLake[Records]) -> ReplayResult[Records]:
    """Replay, then rebuild the certified days that get events, and mark the records of those that passed."""
    done = replay_under_lease(lake)
    if not done.days:
        return ReplayResult(done, Rebuild({}), [])
    of_days = lake.rebuild(done.days)
    warnings = [*of_days.warnings, *lake.refresh_readers()]
    mark_rebuilt(lake, done, of_days.certified(done.days))
    return ReplayResult(done, of_days, warnings)


def replay_under_lease(lake: ReplayLake[Records]) -> Replay[Records]:
    """Put records back that pass, while no nightly run and no other replay is at work.

    Raises:
        InfrastructureError: Another run holds the lease, or has taken it over.
    """
    with lake.hold() as run_lease:
        lake.claim_speed(run_lease.stamp("claim"))
        return put_back(lake, run_lease)


def put_back(lake: ReplayLake[Records], run_lease: ReplayLease | None) -> Replay[Records]:
    """Add events of days that are not certified to the speed layer, and mark them; count those of the others.

    A record is marked when readers have its event, so a replay that died is simply done again.

    Args:
        lake: The tables.
        run_lease: The lease; None to count, and change nothing.
    """
    with lake.decoded() as records:
        state = lake.certified()
        broken = lake.broken(records)
        waiting, closed = lake.by_verdict(records, state)
        new = lake.unknown(waiting, state)
        days, whole = lake.days(closed), lake.first_rebuildable() or date.min
        counts = _counts(lake, records, broken, new, closed)
        if run_lease:
            reach(Point.RECORDS_JUDGED)
            if counts.rows:
                lake.add(new, run_lease.stamp("replay"))
                # A run that has begun since may have certified their days, and readers do not have them. One
                # that begins from now on finds them.
                lake.claim_ledger(run_lease.stamp("confirm"))
            lake.mark_replayed(waiting)
            lake.mark_broken(broken)
        return Replay(
            counts,
            tuple(day for day in days if day >= whole),
            tuple(day for day in days if day < whole),
            lake.kept(closed),
        )


def _counts(
    lake: ReplayLake[Records], records: Records, broken: Records, new: Records, closed: Records
) -> ReplayCounts:
    total, still_broken, rows, of_closed = map(lake.count, (records, broken, new, closed))
    copies = total - still_broken - rows - of_closed
    return ReplayCounts(total, still_broken, rows, of_closed, copies)


def mark_rebuilt(lake: ReplayLake[Records], done: Replay[Records], days: Sequence[date]) -> None:
    """Mark the records of these days, which were rebuilt and certified, as replayed."""
    if days:
        lake.mark_replayed(done.of_certified_days, days)
