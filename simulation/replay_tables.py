"""What replays, nights, upkeep and the stream beside them read and write: models of the tables of a lake."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import date, datetime
from functools import partial
from typing import Literal

from pipelines.audit.audit import Audit
from pipelines.audit.recount import BronzeDay, BronzeFacts
from pipelines.config.streams import Layer
from pipelines.delta.epochs import Stamp
from pipelines.delta.fencing import claim_table, rows_deleted, write_fenced
from pipelines.delta.replaced_rows import File
from pipelines.errors import OncelakeError
from pipelines.ledger.certifications import Certified, Verdict, certified_in, newest_certified
from pipelines.ledger.checks import Check
from pipelines.ledger.lease_terms import LeaseTerm
from pipelines.nightly.commit_order import steps
from pipelines.nightly.night_run import NightPlan, NightRun
from pipelines.nightly.rebuild_plan import Due
from pipelines.retention.removal_terms import Removal
from pipelines.retention.upkeep_run import Looked, TableFiles
from pipelines.steps.rebuild import Rebuild
from simulation.delta import ModelTable
from simulation.ingest import Row
from simulation.kernel import Process
from simulation.nightly import ModelLeases
from simulation.replay_lake import QUARANTINE, Contract, DayRows, Entry, QuarantineLake
from simulation.retention import RetentionTables
from simulation.upkeep import ModelUpkeep, SpeedStream, is_below, tried_until

Records = frozenset[int]


class ReplayStream(SpeedStream):
    """The speed stream, which knows one of the contracts, and writes two tables."""

    world: QuarantineLake

    def __init__(self, world: QuarantineLake, contract: Contract) -> None:
        super().__init__(world)
        self.contract = contract

    def write(self, batch: int, rows: Sequence[Row]) -> None:
        """Write broken records to the quarantine, then events to the speed layer, each once."""
        world = self.world
        broken = [row for row in rows if row.record.number in world.broken_by(self.contract)]
        if broken:
            aside = partial(world.put_aside, batch, broken)
            self.kernel.effect(f"quarantine: write {batch}", aside, is_write=True, again=aside)
        add = partial(world.add_events, batch, rows, [row for row in rows if row not in broken])
        self.kernel.effect(f"speed: write {batch}", add, is_write=True, again=add)


class ReplayLeases(ModelLeases):
    """The row of the lease, whose epochs the commits of speed layer and quarantine carry as well."""

    def __init__(self, world: QuarantineLake) -> None:
        super().__init__(world)
        self._lake = world

    def fenced_numbers(self) -> list[int]:
        """Return the highest numbers that the fenced tables have taken."""
        lake = self._lake
        tables = (lake.table(log) for log in (lake.speed, lake.entries))
        return [*super().fenced_numbers(), *(table.number_taken(lake.application) for table in tables)]


class ReplayTables(RetentionTables):
    """The tables of a nightly run, which knows one of the contracts."""

    world: QuarantineLake

    @property
    def contract(self) -> Contract:
        """The contract of the run."""
        return self.world.contracts.get(self.run_id, "corrected")

    def leases(self) -> ModelLeases:
        """Return the lease's row."""
        return ReplayLeases(self.world)

    def plan(self) -> NightPlan:
        """Plan days; what was certified by the corrected contract is not built by the one before."""
        plan = super().plan()
        verdicts = newest_certified(self.read_ledger())
        days = [
            day
            for day in plan.due.days
            if self.contract == "corrected"
            or day not in verdicts
            or self.world.contracts.get(verdicts[day].run_id) == "before"
        ]
        self.days = days
        self._plan = replace(plan, due=Due(dict.fromkeys(days, "asked"), {}, []))
        return self._plan

    def files(self) -> list[File]:
        """Write the rows of the days."""
        winners = self.world.winners(self.planned.bronze_version, self.contract)
        rows = {day: DayRows(self.run_id, winners[day]) for day in self.days if day in winners}
        return [self.batch.log.file(day, each) for day, each in rows.items()]

    def audit(self, built: int) -> Audit:
        """Compare the days at a version with bronze, and with the speed layer."""
        world, version = self.world, self.planned.bronze_version
        winners, events = world.winners(version, self.contract), world.events(version, self.contract)
        rows = world.kernel.effect(f"batch: audit version {built}", partial(world.files_at, built))
        speed = world.kernel.effect("speed: audit", partial(world.speed_keys))
        checks, fails = list[Check](), world.failing.get(self.run_id, frozenset())
        for day in self.days:
            found = [each.winners for each in rows.get(day, ())]
            is_whole = found == ([winners[day]] if day in winners else [])
            unknown = speed.get(day, set()) - world.keys(n for each in found for n in each)
            status: Literal["passed", "failed"] = (
                "passed" if is_whole and not unknown and day not in fails else "failed"
            )
            checks.append(Check(day, "rows", "integrity", status, str(found), str(winners.get(day))))
        facts = {day: BronzeDay(len(events.get(day, ())), 0) for day in self.days}
        counts = {day: len(winners.get(day, ())) for day in self.days}
        return Audit(tuple(checks), BronzeFacts(0, 0, 0, facts), counts, {}, 0.0)


class DecidedNight(NightRun):
    """A nightly run that tells its verdicts."""

    @property
    def decided(self) -> Sequence[Verdict]:
        """The verdicts."""
        return self._decided


class ModelReplay:
    """The tables of a replay by the corrected contract, see `pipelines.steps.replay_run.ReplayLake`."""

    def __init__(self, world: QuarantineLake, process: Process) -> None:
        self.world, self.process = world, process
        self.tables = ReplayTables(world, process, ())
        self.speed = world.table(world.speed)
        self.quarantine: ModelTable = world.table(world.entries)

    def hold(self) -> AbstractContextManager[LeaseTerm]:
        """Take the lease and claim the ledger for its epoch; give the lease back at the end."""
        return self.tables.hold()

    def claim_speed(self, stamp: Stamp) -> None:
        """Make the speed layer refuse the commits of all earlier epochs."""
        claim_table(self.speed, stamp)

    def claim_ledger(self, stamp: Stamp) -> None:
        """Make the ledger of verdicts refuse them once more."""
        claim_table(self.tables.ledger, stamp)

    @contextmanager
    def decoded(self) -> Iterator[Records]:
        """Return the unresolved records."""
        entries = self.world.kernel.effect("quarantine: read", self.world.quarantined)
        yield frozenset(entry.number for entry in entries if entry.status == "open")

    def certified(self) -> Certified | None:
        """Return what is certified; None if no day ever was."""
        return certified_in(self.tables.read_ledger())

    def broken(self, records: Records) -> Records:
        """Return the records that still break the contract."""
        return records & self.world.broken_by("corrected")

    def by_verdict(self, records: Records, certified: Certified | None) -> tuple[Records, Records]:
        """Return the events of days that are not certified, and those of certified days."""
        days = certified.days if certified else ()
        events = records - self.world.broken_by("corrected")
        closed = frozenset(number for number in events if self.world.day(number) in days)
        return events - closed, closed

    def unknown(self, events: Records, certified: Certified | None) -> Records:
        """Return the winners among events whose keys no reader has."""
        world = self.world
        speed = world.kernel.effect("speed: read", world.speed_keys)
        known = set[int]().union(*speed.values())
        if certified:
            label = f"batch: read version {certified.version}"
            rows = world.kernel.effect(label, partial(world.files_at, certified.version))
            known |= world.keys(number for of_day in rows.values() for number in winners(of_day))
        winning = dict[int, int]()
        for number in sorted(events):
            if world.key(number) not in known:
                winning.setdefault(world.key(number), number)
        return frozenset(winning.values())

    def count(self, records: Records) -> int:
        """Return how many records these are."""
        return len(records)

    def days(self, events: Records) -> Sequence[date]:
        """Return the event days of events, in order."""
        return sorted({self.world.day(number) for number in events})

    def first_rebuildable(self) -> date | None:
        """Return the first day that can be rebuilt; None for any."""
        return self.world.kernel.effect("bronze: first rebuildable day", self.world.first_rebuildable)

    def kept(self, events: Records) -> Records:
        """Return the events."""
        return events

    def add(self, rows: Records, stamp: Stamp) -> None:
        """Append rows to the speed layer, as `pipelines.delta.fenced_commits.append_fenced`."""
        by_day: Mapping[date, list[Row]] = {day: [] for day in self.days(rows)}
        for number in sorted(rows):
            by_day[self.world.day(number)].append(self.world.row(number))
        log = self.world.speed
        save = self.speed.saver(stamp, [], lambda: [log.file(day, tuple(of)) for day, of in by_day.items()])
        write_fenced(self.speed, save, stamp)

    def mark_replayed(self, events: Records, days: Sequence[date] | None = None) -> None:
        """Mark records that are still unresolved as replayed; of some days, or all."""
        chosen = {number for number in events if days is None or self.world.day(number) in days}
        self.mark(lambda entry: entry.number in chosen)

    def mark_broken(self, records: Records) -> None:
        """Give unresolved records their new reason, which the model does not keep."""
        self.mark(lambda entry: entry.number in records, "open")

    def mark(
        self, is_chosen: Callable[[Entry], bool], status: Literal["open", "replayed"] = "replayed"
    ) -> None:
        """Mark unresolved records, as `pipelines.ledger.quarantine.update_unresolved`."""
        at = self.world.time()

        def tried(entry: Entry) -> Entry:
            is_marked = entry.status == "open" and is_chosen(entry)
            return replace(entry, status=status, tried_at=at) if is_marked else entry

        def changed(file: File) -> File:
            rows: tuple[Entry, ...] = file["rows"]
            after = tuple(map(tried, rows))
            return file if after == rows else self.quarantine.log.file(QUARANTINE, after)

        self.quarantine.merge([QUARANTINE], changed)

    def rebuild(self, days: Sequence[date]) -> Rebuild:
        """Rebuild and audit certified days, as `pipelines.steps.rebuild`."""
        tables = ReplayTables(self.world, self.process, days)
        night = DecidedNight(self.world.config.name, self.process.name, tables, "batch")
        try:
            for _ in steps(night):
                pass
        except OncelakeError as failure:
            return Rebuild({}, failure)
        return Rebuild({verdict.day: verdict.status for verdict in night.decided})

    def refresh_readers(self) -> list[str]:
        """Readers read the certified version."""
        return []


def winners(rows: Sequence[DayRows]) -> list[int]:
    """Return the records of rows."""
    return [number for each in rows for number in each.winners]


class ReplayUpkeep(ModelUpkeep):
    """A run of upkeep beside replays; it compacts nothing, and leaves files to others."""

    world: QuarantineLake

    def first_unresolved(self) -> datetime | None:
        """Return when the first unresolved record of the quarantine was sent; None if there is none."""
        entries: Sequence[Entry] = self._look("quarantine", self.world.quarantined)
        return min((each.row.record.at for each in entries if each.status == "open"), default=None)

    def count(self, layer: Layer, condition: str) -> int:
        """Return how many rows of a table meet a condition, in SQL."""
        if layer == "quarantine":
            entries: Sequence[Entry] = self._look("count quarantine", self.world.quarantined)
            return sum(is_past(entry, condition) for entry in entries)
        return super().count(layer, condition)

    def delete(self, layer: Layer, removal: Removal, stamps: Callable[[str], Stamp]) -> None:
        """Delete rows of a table, as `pipelines.delta.upkeep.delete_rows`."""
        if layer != "quarantine":
            super().delete(layer, removal, stamps)
            return
        table = self.world.table(self.world.entries)

        def left(file: File) -> File | None:
            rows: tuple[Entry, ...] = file["rows"]
            kept = tuple(entry for entry in rows if not is_past(entry, removal.condition))
            if len(kept) == len(rows):
                return file
            return table.log.file(QUARANTINE, kept) if kept else None

        rows_deleted(table, lambda stamp: table.delete(stamp, [QUARANTINE], left), removal.properties, stamps)

    def version(self, layer: Layer) -> int:
        """No file is removed, so no version is looked at."""
        return 0

    def is_behind(self, layer: Layer) -> bool:
        """No file is removed, so none is missed."""
        return False

    def compact_streams(self) -> None:
        """Do nothing."""

    def vacuum(self, layer: Layer, looked: Looked) -> Iterator[TableFiles]:
        """Do nothing."""
        yield from ()


def is_past(entry: Entry, condition: str) -> bool:
    """Return whether a row of the quarantine is one that a condition names, see `quarantine_removal`."""
    until = tried_until(condition)
    is_old = entry.tried_at is not None and entry.tried_at < until
    return entry.status != "open" and is_old and is_below(entry.row, condition)
