"""Planted faults of replays, see `simulation.planted`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from functools import partial
from random import Random
from typing import Any, Final

from pipelines.delta.epochs import Stamp
from pipelines.ledger.certifications import Certified
from pipelines.steps.rebuild import Rebuild
from pipelines.steps.replay_run import mark_rebuilt, replay_under_lease
from simulation.delta import Action, Change
from simulation.kernel import Process, Schedule
from simulation.nightly import ModelLeases
from simulation.planted import Planted
from simulation.replay import ReplayWorld
from simulation.replay_lake import Entry
from simulation.replay_tables import ModelReplay, Records, ReplayTables, ReplayUpkeep
from simulation.runs import World


class _MarkedBeforeAdded(ModelReplay):
    """Records are marked before their events are in the speed layer."""

    def add(self, rows: Records, stamp: Stamp) -> None:
        self.mark_replayed(rows)
        super().add(rows, stamp)


def _marked_before_the_rebuild(lake: ModelReplay) -> object:
    """Mark records of certified days before these days are rebuilt."""
    done = replay_under_lease(lake)
    mark_rebuilt(lake, done, done.days)
    return lake.rebuild(done.days) if done.days else None


def _rebuilt_without_marks(lake: ModelReplay) -> object:
    """Rebuild certified days, and do not mark their records."""
    done = replay_under_lease(lake)
    return lake.rebuild(done.days) if done.days else None


class _FailedDaysMarked(ModelReplay):
    """Records of days that did not pass are marked like those of days that did."""

    def rebuild(self, days: Sequence[date]) -> Rebuild:
        super().rebuild(days)
        return Rebuild(dict.fromkeys(days, "certified"))


class _NoLease(ModelReplay):
    """A replay takes no lease."""

    @contextmanager
    def hold(self) -> Iterator[Any]:
        yield _Anybody()

    def claim_speed(self, stamp: Stamp) -> None:
        pass

    def claim_ledger(self, stamp: Stamp) -> None:
        pass

    def add(self, rows: Records, stamp: Stamp) -> None:
        by_day = {day: [n for n in sorted(rows) if self.world.day(n) == day] for day in self.days(rows)}
        for day, numbers in by_day.items():
            append = partial(self.world.speed.append_blindly, day, tuple(map(self.world.row, numbers)))
            self.world.kernel.effect(f"speed: append {day}", append, is_write=True)


class _Anybody:
    """A lease that nobody holds."""

    def stamp(self, what: str) -> Stamp:
        return Stamp("nobody", 0, f"replay {what}")


class _SpeedNotClaimed(ModelReplay):
    """The speed layer is not claimed before it is read."""

    def claim_speed(self, stamp: Stamp) -> None:
        pass


class _LedgerNotClaimed(ModelReplay):
    """Nobody asks whether another run has begun before the records are marked."""

    def claim_ledger(self, stamp: Stamp) -> None:
        pass


class _EpochOfVerdictsAlone(ReplayTables):
    """An epoch is one above those of verdicts and batch table, whatever the speed layer knows."""

    def leases(self) -> ModelLeases:
        return ModelLeases(self.world)


class _MarkedByReason(ModelReplay):
    """Whatever keeps the contract by now is marked, and not the records that the replay has judged."""

    def by_verdict(self, records: Records, certified: Certified | None) -> tuple[Records, Records]:
        self._certified = certified.days if certified else ()
        return super().by_verdict(records, certified)

    def mark_replayed(self, events: Records, days: Sequence[date] | None = None) -> None:
        def is_chosen(entry: Entry) -> bool:
            day = self.world.day(entry.number)
            is_of_days = day not in self._certified if days is None else day in days
            return is_of_days and self.world.is_valid(entry.row)

        self.mark(is_chosen)


class _WrittenAsRead(ModelReplay):
    """The quarantine is written anew from what the replay has read, without what was added since."""

    @contextmanager
    def decoded(self) -> Iterator[Records]:
        with super().decoded() as records:
            self._read = self.world.entries.newest
            yield records

    def mark_replayed(self, events: Records, days: Sequence[date] | None = None) -> None:
        super().mark_replayed(events, days)
        log = self.world.entries
        late = [
            path
            for path, file in log.newest.files.items()
            if {e.number for e in file["rows"]}.isdisjoint(events)
        ]
        gone = list[Action](
            ("remove", log.newest.files[path]) for path in late if path not in self._read.files
        )
        if gone:
            self.world.kernel.effect(
                "quarantine: overwrite", lambda: log.overwrite(Change(gone, "WRITE")), is_write=True
            )


class _CopiesAdded(ModelReplay):
    """Nobody asks which keys the speed layer has."""

    def unknown(self, events: Records, certified: Certified | None) -> Records:
        return events


class _CertifiedDaysAdded(ModelReplay):
    """Events of certified days go to the speed layer, from which nobody reads these days."""

    def by_verdict(self, records: Records, certified: Certified | None) -> tuple[Records, Records]:
        return super().by_verdict(records, None)


class _NeededRecordsGo(ReplayUpkeep):
    """Upkeep does not ask which records of bronze a replay still needs."""

    def first_unresolved(self) -> datetime | None:
        return None


def _world(schedule: Schedule, setup: Random, **wrong: Any) -> World:
    return ReplayWorld(schedule, setup, **wrong)


def _replay(name: str, seed: int, make: type[ModelReplay]) -> Planted:
    return Planted(name, seed, partial(_world, make_replay=make))


def _of_tables(tables: type[ReplayTables], world: ReplayWorld, process: Process) -> ModelReplay:
    lake = ModelReplay(world, process)
    lake.tables = tables(world, process, ())
    return lake


REPLAY: Final = (
    _replay("marked before the events are added", 0, _MarkedBeforeAdded),
    Planted("marked before the days are rebuilt", 2, partial(_world, replay=_marked_before_the_rebuild)),
    Planted("rebuilt and not marked", 2, partial(_world, replay=_rebuilt_without_marks)),
    _replay("days that did not pass are marked", 20, _FailedDaysMarked),
    _replay("no lease", 565, _NoLease),
    _replay("the speed layer is not claimed", 1373, _SpeedNotClaimed),
    _replay("the ledger is not claimed once more", 431, _LedgerNotClaimed),
    Planted(
        "epochs of verdicts and batch table alone",
        2,
        partial(_world, make_replay=partial(_of_tables, _EpochOfVerdictsAlone)),
    ),
    _replay("marked by reason", 357, _MarkedByReason),
    _replay("the quarantine is written as it was read", 8, _WrittenAsRead),
    _replay("copies are added", 2, _CopiesAdded),
    _replay("events of certified days are added", 2, _CertifiedDaysAdded),
    Planted("records go that a replay needs", 32, partial(_world, make_upkeep=_NeededRecordsGo)),
)
