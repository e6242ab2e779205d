"""Planted faults of nightly runs, see `simulation.planted`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from functools import partial
from random import Random
from typing import Any, Final

from delta.exceptions import ConcurrentTransactionException

from pipelines.audit.audit import Audit
from pipelines.delta.conflicts import CONFLICTS
from pipelines.delta.epochs import Commit, Stamp, application
from pipelines.errors import OncelakeError
from pipelines.fault_points import Point
from pipelines.ledger.certifications import Certified, Verdict
from pipelines.ledger.lease_holders import HeldLease
from pipelines.ledger.lease_terms import LeaseTerm
from pipelines.nightly.night_run import NightPlan, NightRun
from simulation.delta import Change
from simulation.kernel import Schedule
from simulation.nightly import ModelLeases, ModelTables, NightlyWorld
from simulation.planted import Planted
from simulation.runs import World


class _LeaseWithoutCondition(ModelTables):
    """The row of the lease is written whoever has written it since it was read."""

    def leases(self) -> ModelLeases:
        world = self.world

        class Leases(ModelLeases):
            def write(self, held: HeldLease, stamp: Stamp) -> None:
                table = world.table(world.leases)
                transaction = table.begin()
                actions = [transaction.removed(file) for file in transaction.files.values()]
                actions.append(transaction.added(table.log.file(self.name, held)))
                world.kernel.effect(
                    "leases: overwrite", lambda: table.log.overwrite(Change(actions, "WRITE"))
                )

        return Leases(world)


class _EpochOfTheLeaseAlone(ModelTables):
    """An epoch is one above that in the lease, whatever the fenced tables know."""

    def leases(self) -> ModelLeases:
        class Leases(ModelLeases):
            def fenced_numbers(self) -> list[int]:
                return [-1]

        return Leases(self.world)


class _LookAtTheLease(ModelTables):
    """Before each commit the run looks at its lease, and the commit carries no epoch."""

    _term: LeaseTerm

    @contextmanager
    def hold(self) -> Iterator[LeaseTerm]:
        with super().hold() as self._term:
            yield self._term

    def _newest(self, stamp: Stamp) -> Stamp:
        self._term.require()
        numbers = (table.number_taken(application("flights")) for table in (self.batch, self.ledger))
        return replace(stamp, number=max(numbers) + 1)

    def to_certified(self, certified: Certified | None, stamp: Stamp) -> int:
        return super().to_certified(certified, self._newest(stamp))

    def build(self, stamp: Stamp) -> int:
        return super().build(self._newest(stamp))

    def take_back(self, base: int, days: Sequence[date], stamp: Stamp) -> int:
        return super().take_back(base, days, self._newest(stamp))

    def append_verdicts(self, decided: Sequence[Verdict], stamp: Stamp) -> None:
        super().append_verdicts(decided, self._newest(stamp))


class _LedgerNotClaimed(ModelTables):
    """The ledger of verdicts is not claimed with the lease."""

    def claim_ledger(self, term: LeaseTerm) -> None:
        pass


class _ReadBeforeTheLease(ModelTables):
    """What is certified is read before the lease is taken."""

    _before: list[Verdict]

    @contextmanager
    def hold(self) -> Iterator[LeaseTerm]:
        self._before = super().read_ledger()
        with super().hold() as term:
            yield term

    def read_ledger(self) -> list[Verdict]:
        return self._before


class _NoLookAtTheHistory(ModelTables):
    """Nobody asks who else wrote to the batch table."""

    def batch_since(self, base: int) -> list[Commit]:
        return []


class _VerdictsNotLookedFor(ModelTables):
    """A commit of verdicts that Delta leaves out silently is taken for made."""

    def append_verdicts(self, decided: Sequence[Verdict], stamp: Stamp) -> None:
        self.ledger.saver(stamp, [], lambda: [self.ledger.log.file("verdicts", tuple(decided))])()


class _FailedDaysStay(ModelTables):
    """Days that failed their audit are not taken back."""

    _built: int

    def audit(self, built: int) -> Audit:
        self._built = built
        return super().audit(built)

    def take_back(self, base: int, days: Sequence[date], stamp: Stamp) -> int:
        return self._built


class _NothingIsUndone(ModelTables):
    """What a run that died has left in the batch table stays there."""

    def to_certified(self, certified: Certified | None, stamp: Stamp) -> int:
        return self.batch.begin().commit([], stamp)


class _BaseIsTheNewestVersion(ModelTables):
    """Verdicts say that they were built on the table as it was, and not on what is certified."""

    def plan(self) -> NightPlan:
        plan = super().plan()
        if plan.certified:
            plan = replace(plan, certified=replace(plan.certified, version=self.batch.version()))
        self._plan = plan
        return plan


class _VerdictBeforeBuild(NightRun):
    """Verdicts are written before the days, which nobody has audited then."""

    def build(self) -> Iterator[Point]:
        self._built = self._kept = self._base + 1
        self._day_audit = self.tables.audit(self._base)
        passed = tuple(replace(check, status="passed") for check in self._day_audit.checks)
        self._day_audit = replace(self._day_audit, checks=passed)
        yield from super().certify()
        yield from super().build()

    def certify(self) -> Iterator[Point]:
        yield from ()


class _VerdictOfTheNewestVersion(NightRun):
    """A verdict names the version that is the newest when it is written, whoever made it."""

    def restore_failed_days(self) -> Iterator[Point]:
        yield from super().restore_failed_days()
        self._kept = max(
            (commit.version for commit in self.tables.batch_since(self._kept)), default=self._kept
        )


def _nightly(schedule: Schedule, setup: Random, **wrong: Any) -> World:
    world = NightlyWorld(schedule, setup, **wrong)
    # What is wrong is to show in what readers get, and not in how a run ends.
    world.kernel.expected = (OncelakeError, *CONFLICTS, ConcurrentTransactionException)
    return world


def _tables(name: str, seed: int, tables: type[ModelTables]) -> Planted:
    return Planted(name, seed, partial(_nightly, tables=tables))


def _night(name: str, seed: int, night: type[NightRun]) -> Planted:
    return Planted(name, seed, partial(_nightly, night=night))


NIGHTLY: Final = (
    Planted("no fencing", 9, partial(_nightly, is_fenced=False)),
    _tables("lease written without a condition", 9, _LeaseWithoutCondition),
    _tables("epoch of the lease alone", 13, _EpochOfTheLeaseAlone),
    _tables("the lease is checked before the commit, instead of the epoch", 2969, _LookAtTheLease),
    _tables("ledger not claimed", 261, _LedgerNotClaimed),
    _tables("verdicts read before the lease is taken", 32, _ReadBeforeTheLease),
    _tables("the history is not checked", 0, _NoLookAtTheHistory),
    _tables("a commit of verdicts is not checked", 152, _VerdictsNotLookedFor),
    _tables("failed days stay", 141, _FailedDaysStay),
    _tables("nothing is undone", 106, _NothingIsUndone),
    _tables("base is the newest version", 2, _BaseIsTheNewestVersion),
    _night("verdict before build", 0, _VerdictBeforeBuild),
    _night("verdict of the newest version", 13, _VerdictOfTheNewestVersion),
)
