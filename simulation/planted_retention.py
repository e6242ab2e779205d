"""Planted faults of upkeep, see `simulation.planted`."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import date, datetime
from functools import partial
from random import Random
from typing import Any, Final

from pipelines.config.streams import Layer
from pipelines.delta.epochs import Stamp
from pipelines.delta.fencing import Restored
from pipelines.ledger.certifications import Certified, Verdict
from pipelines.ledger.lease_terms import LeaseTerm
from pipelines.retention.removal_terms import Removal
from pipelines.retention.upkeep_run import Looked
from simulation.kernel import Schedule
from simulation.planted import Planted
from simulation.retention import RetentionTables, RetentionWorld
from simulation.retention_lake import KeptLog
from simulation.retention_overtaken import OvertakenUpkeepWorld
from simulation.runs import World
from simulation.upkeep import ModelUpkeep


class _UnreadGo(ModelUpkeep):
    """Nobody asks how far the speed stream has read bronze."""

    def first_unread(self) -> datetime | None:
        return None


class _UnresolvedGo(ModelUpkeep):
    """Nobody asks for unresolved records."""

    def first_unresolved(self) -> datetime | None:
        return None


class _UncertifiedGo(ModelUpkeep):
    """Nobody asks whether days are certified."""

    def records_of_days(self) -> Mapping[date, int]:
        return {}

    def verdicts(self) -> Sequence[Verdict]:
        return []


class _CountsNotCompared(ModelUpkeep):
    """A day that was certified is taken for one that has got no record since."""

    def records_of_days(self) -> Mapping[date, int]:
        known = {verdict.day: verdict.records for verdict in self.verdicts()}
        return {day: known.get(day, n) for day, n in super().records_of_days().items()}

    def days_with_later_records(self) -> Collection[date]:
        return ()


class _BesideBackfills(ModelUpkeep):
    """Records leave bronze while a backfill brings some."""

    def hold_backfills(self) -> AbstractContextManager[LeaseTerm]:
        return nullcontext(self.term)


class _SaidAfterwards(ModelUpkeep):
    """Bronze says from when on it is whole when the records are gone."""

    def _delete_bronze(self, removal: Removal, stamps: Callable[[str], Stamp]) -> None:
        told = dict(removal.properties)
        super()._delete_bronze(Removal(removal.rows, removal.condition), stamps)
        self._set(self.world.bronze_log, told)


class _SaidAsDecided(ModelUpkeep):
    """The first complete day becomes the one that was decided on, whatever bronze says by now."""

    def _delete_bronze(self, removal: Removal, stamps: Callable[[str], Stamp]) -> None:
        self._set(self.world.bronze_log, removal.properties)
        super()._delete_bronze(removal, stamps)


class _SaidWithoutEpoch(ModelUpkeep):
    """What bronze says of its first complete day carries no epoch, as before deletions were fenced."""

    def _delete_bronze(self, removal: Removal, stamps: Callable[[str], Stamp]) -> None:
        self._set(self.world.bronze_log, removal.properties)
        super()._delete_bronze(replace(removal, properties={}), stamps)


class _NotRestored(ModelUpkeep):
    """The batch table is left as a run that died has left it."""

    def restore_certified(self) -> Restored | None:
        return Restored(self.version("batch"), has_differed=False)


class _ReadersNotAsked(ModelUpkeep):
    """Files go whether or not a stream has read them."""

    def is_behind(self, layer: Layer) -> bool:
        return False


class _AllRemovedGo(ModelUpkeep):
    """Files go at once that were removed after it was looked at what is certified, and read."""

    def _old(self, log: KeptLog, looked: Looked) -> set[str]:
        return super()._old(log, Looked(len(log.versions) - 1, looked.at))


class _CountedFromVacuum(ModelUpkeep):
    """For how long files stay counts from when `VACUUM` begins, however long the process stood still."""

    def _old(self, log: KeptLog, looked: Looked) -> set[str]:
        return super()._old(log, Looked(looked.version, self.now()))


class _EarlierAreCertified(ModelUpkeep):
    """All days before the last certified one are taken for certified when rows of the speed layer go."""

    def certified(self) -> Certified | None:
        state = super().certified()
        if state is None:
            return None
        days = {date.fromisoformat(file["day"]) for file in self.world.speed.newest.files.values()}
        return replace(state, days=tuple(sorted({*state.days, *(d for d in days if d < state.days[-1])})))


class _Cut(RetentionTables):
    """A nightly run rebuilds days of which records are gone."""

    def _whole_from(self) -> date | None:
        return None


def _world(schedule: Schedule, setup: Random, **wrong: Any) -> World:
    return RetentionWorld(schedule, setup, **wrong)


def _upkeep(name: str, seed: int, make: type[ModelUpkeep]) -> Planted:
    return Planted(name, seed, partial(_world, make_upkeep=make))


def _overtaken(schedule: Schedule, setup: Random, **wrong: Any) -> World:
    return OvertakenUpkeepWorld(schedule, setup, **wrong)


UPKEEP: Final = (
    Planted(
        "the first complete day is set without an epoch",
        453,
        partial(_overtaken, make_upkeep=_SaidWithoutEpoch),
    ),
)
RETENTION: Final = (
    _upkeep("unread records go", 0, _UnreadGo),
    _upkeep("unresolved records go", 19, _UnresolvedGo),
    _upkeep("days that are not certified go", 14, _UncertifiedGo),
    _upkeep("records are not compared with verdicts", 202, _CountsNotCompared),
    _upkeep("records go while a backfill brings some", 105, _BesideBackfills),
    _upkeep("the first complete day is set when records are gone", 0, _SaidAfterwards),
    _upkeep("the first complete day is set as it was decided", 208, _SaidAsDecided),
    _upkeep("the certified version is not restored", 22, _NotRestored),
    _upkeep("readers are not asked before files go", 0, _ReadersNotAsked),
    _upkeep("files go that were removed since readers were asked", 328, _AllRemovedGo),
    _upkeep("the age of files counts from VACUUM", 225, _CountedFromVacuum),
    _upkeep("all earlier days are taken for certified", 0, _EarlierAreCertified),
    Planted("days are rebuilt of which records are gone", 441, partial(_world, tables=_Cut)),
)
