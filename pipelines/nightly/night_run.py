"""What a nightly run writes, and by which versions: the protocol, without Spark.

The tables are behind `NightTables`. Jobs use Delta (`pipelines.steps.nightly`); `simulation` uses a model of
Delta's log. So what is simulated is what runs.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Protocol

from pipelines.audit.audit import Audit
from pipelines.audit.rebuild_diff import Changes
from pipelines.delta.epochs import Commit, Stamp, commits_of_others
from pipelines.errors import SourceError
from pipelines.fault_points import Point
from pipelines.ledger.certifications import Certified, Verdict
from pipelines.ledger.runs import Step
from pipelines.nightly.commit_order import stop_at
from pipelines.nightly.rebuild_plan import Due
from pipelines.nightly.verdicts import Run, days_text, decide_days

_log = logging.getLogger(__name__)


class NightLease(Protocol):
    """The lease that a run holds."""

    @property
    def epoch(self) -> int:
        """The number of its epoch."""

    def stamp(self, what: str) -> Stamp:
        """Return what the run's next commit carries."""


@dataclass(frozen=True)
class NightPlan:
    """What a run has found before it writes.

    Attributes:
        certified: What readers have of the batch layer; None if no day was ever certified.
        due: The days, and why they are rebuilt.
        bronze_version: The version of bronze that was sealed.
        bronze_id: Which bronze that is, see `pipelines.ledger.bronze_index.BronzeIndex`.
    """

    certified: Certified | None
    due: Due
    bronze_version: int
    bronze_id: str


class NightTables(Protocol):
    """The tables of a nightly run.

    What is written carries a stamp, and fails if a later run has taken over.
    """

    def hold(self) -> AbstractContextManager[NightLease]:
        """Take the lease and claim the ledger for its epoch; give the lease back at the end."""

    def step(self, name: Step) -> AbstractContextManager[list[str]]:
        """Record how a step ends; yields what is to be said of it."""

    def plan(self) -> NightPlan:
        """Read what is certified, seal bronze, judge replayed records again, and find which days are due."""

    def make_batch(self) -> None:
        """Make the batch table if there is none."""

    def to_certified(self, certified: Certified | None, stamp: Stamp) -> int:
        """Put the batch table back to what is certified, and claim it; return the version of that commit.

        Without a certified day the table is emptied.
        """

    def build(self, stamp: Stamp) -> int:
        """Write the days as one commit; return its version."""

    def audit(self, built: int) -> Audit:
        """Check the days at a version of the batch table, and record the outcome."""

    def take_back(self, base: int, days: Sequence[date], stamp: Stamp) -> int:
        """Give days the rows that they had at a version; return the version of that commit."""

    def changes(self, built: int) -> Mapping[date, Changes]:
        """Return what a version changes of days that were certified before."""

    def batch_since(self, base: int) -> list[Commit]:
        """Return the commits of the batch table after a version."""

    def hashes(self, kept: int) -> tuple[str | None, str | None]:
        """Return the hashes of the commits that made a version of the batch table, and that of bronze."""

    def record(self, decided: Sequence[Verdict], stamp: Stamp) -> None:
        """Append verdicts as one commit; from then on readers see the days that are certified."""

    def now(self) -> datetime:
        """Return the time, in UTC."""


@dataclass
class NightRun:
    """A nightly run, step by step; the order is that of `pipelines.nightly.commit_order`.

    Each step sets, once, what later ones go by: `hold` the lease, `plan_days` the plan, `audit` the audit,
    `certify` the run and its verdicts. Of the versions of the batch table `restore_base` sets the base,
    `build` the built one, and `restore_failed_days` the kept one, which is the built one if all days passed.

    Attributes:
        pipeline_name: The pipeline's name.
        run_id: Recorded with everything that the run decides.
        tables: What it reads and writes.
        batch: The path of the batch table, for messages.
    """

    pipeline_name: str
    run_id: str
    tables: NightTables
    batch: str
    _lease: NightLease = field(init=False)
    _plan: NightPlan = field(init=False)
    _base: int = field(init=False)
    _built: int = field(init=False)
    _day_audit: Audit = field(init=False)
    _kept: int = field(init=False)
    _run: Run = field(init=False)
    _decided: list[Verdict] = field(init=False)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the pipeline's lease."""
        with self.tables.hold() as self._lease:
            yield

    def plan_days(self) -> Iterator[Point]:
        """Seal the days, and find which are due."""
        yield from stop_at(Point.LEASE_HELD)
        self._plan = self.tables.plan()

    def restore_base(self) -> Iterator[Point]:
        """Put the batch table back to the certified state if a run died between writing and deciding."""
        self.tables.make_batch()
        yield from stop_at(Point.DAYS_DUE)
        self._base = self.tables.to_certified(self._plan.certified, self._lease.stamp("undo"))

    def build(self) -> Iterator[Point]:
        """Write the days from bronze."""
        yield from stop_at(Point.BATCH_CLAIMED)
        _log.info(
            "rebuilding %s from bronze version %d",
            *(days_text(self._plan.due.causes), self._plan.bronze_version),
        )
        with self.tables.step("build") as detail:
            self._built = self.tables.build(self._lease.stamp("build"))
            detail.append(f"batch version {self._built}")

    def audit(self) -> Iterator[Point]:
        """Audit the days as written."""
        with self.tables.step("audit") as detail:
            yield from stop_at(Point.DAYS_BUILT)
            self._day_audit = self.tables.audit(self._built)
            detail.append(
                f"{len(self._day_audit.checks)} checks;"
                f" Great Expectations took {self._day_audit.expectations_s:.1f} s of it"
            )

    def restore_failed_days(self) -> Iterator[Point]:
        """Take back the days that failed."""
        yield from stop_at(Point.DAYS_AUDITED)
        stamp = self._lease.stamp("keep")
        self._kept = self._built
        if failed := [day for day in self._plan.due.days if not self._day_audit.passed(day)]:
            self._kept = self.tables.take_back(self._base, failed, stamp)

    def certify(self) -> Iterator[Point]:
        """Write the verdicts.

        Raises:
            SourceError: Others wrote to the batch table since the run's base. No verdict is written.
        """
        plan = self._plan
        with self.tables.step("certify") as detail:
            changed = self.tables.changes(self._built)
            kept_commit, bronze_commit = self.tables.hashes(self._kept)
            self._run = Run(
                pipeline=self.pipeline_name,
                run_id=self.run_id,
                bronze_version=plan.bronze_version,
                bronze_id=plan.bronze_id,
                built=self._built,
                kept_version=self._kept,
                epoch=self._lease.epoch,
                kept_commit=kept_commit,
                bronze_commit=bronze_commit,
                decided_at=self.tables.now(),
            )
            decided = decide_days(self._run, self._day_audit, plan.due, plan.certified, changed)
            versions = sorted({self._base, self._built, self._kept})
            refuse_other_writers(self.batch, self.tables.batch_since(self._base), versions)
            yield from stop_at(Point.DAYS_KEPT)
            self.tables.record(decided, self._lease.stamp("certify"))
            yield from stop_at(Point.VERDICTS_WRITTEN)
            self._decided = decided
            detail.append(f"{sum(v.status == 'certified' for v in decided)} of {len(decided)} days")


def refuse_other_writers(table: str, commits: Iterable[Commit], versions: Sequence[int]) -> None:
    """Make sure that what is about to be certified was written by one run alone.

    Args:
        table: The path of the batch table, for the message.
        commits: Its commits since the first of the versions.
        versions: The versions that the run's commits made, in order: the one that it began with first, the
            one that it is about to certify last.

    Raises:
        SourceError: Others wrote between, or have put the table back.
    """
    base, *own = versions
    commits = list(commits)
    gone = sorted({*own} - {commit.version for commit in commits})
    others = [f"version {at}, which this run wrote, is gone" for at in gone]
    for commit in commits_of_others(commits, base, own[-1], own):
        others.append(f"version {commit.version} ({commit.operation})")
    if others:
        what = ", ".join(others)
        raise SourceError(
            f"{table}: others wrote to it while this run was at work: {what}; expected only commits of this"
            f" run after version {base}. Nothing is certified. Find out who wrote (DESCRIBE HISTORY"
            f" delta.`{table}`), then start nightly_batch again; it first restores the certified version"
        )
