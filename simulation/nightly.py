"""Nightly runs over models of their tables: leases, epochs and verdicts, with all that may go wrong."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial
from random import Random
from typing import Final

from pipelines.audit.audit import Audit
from pipelines.audit.rebuild_diff import Changes
from pipelines.audit.recount import BronzeDay, BronzeFacts
from pipelines.config.loader import load_config
from pipelines.delta.conflicts import retry_conflicts
from pipelines.delta.epochs import Commit, Stamp, application
from pipelines.delta.fencing import claim_table, replace_partition, restore_table, write_fenced
from pipelines.delta.replaced_rows import File
from pipelines.delta.table_properties import CERTIFIED
from pipelines.errors import InfrastructureError, SourceError
from pipelines.ledger.certifications import (
    Certified,
    Verdict,
    certified_in,
    highest_certified,
    history_of,
    newest_certified,
)
from pipelines.ledger.checks import Check, CheckStatus
from pipelines.ledger.lease_holders import HeldLease, Holder
from pipelines.ledger.lease_terms import LeaseLimits, LeaseTerm, take
from pipelines.ledger.runs import Step
from pipelines.nightly.commit_order import steps
from pipelines.nightly.night_run import NightPlan, NightRun
from pipelines.nightly.rebuild_plan import Due
from simulation.delta import Action, ModelLog, ModelTable, ModelTransaction
from simulation.kernel import Kernel, Process, Schedule, Violation

CONFIG: Final = load_config("flights", environ={})
DAYS: Final = tuple(date(2013, 1, day) for day in range(1, 5))
LIMITS: Final = LeaseLimits(timedelta(seconds=60), timedelta(seconds=600))
_ROWS: Final = "rows"


@dataclass(frozen=True)
class Rows:
    """The rows of a day in a file: who wrote them, and of how many records of bronze they were made."""

    writer: str
    records: int


class ModelMachine:
    """A process of the simulation, as `pipelines.ledger.lease_terms` sees it."""

    def __init__(self, world: "NightlyWorld", process: Process) -> None:
        self._world, self._process = world, process

    def now(self) -> datetime:
        """Return the time by its clock."""
        return self._world.kernel.clock(self._process)

    def process(self) -> Holder:
        """Return the process."""
        return Holder("host", "boot", "namespace", self._process.number, float(self._process.number))

    def is_gone(self, held: HeldLease) -> bool:
        """Return whether a process is known to have died; one that stands still has not."""
        return self._world.sees_the_dead and self._world.processes[held.process.pid].is_dead


class ModelLeases:
    """The row of a lease in a model of `ops/leases`."""

    def __init__(self, world: "NightlyWorld") -> None:
        self._world, self._table = world, world.table(world.leases)
        self.name = CONFIG.name

    def number(self) -> int:
        """Return the highest number that the table has taken."""
        return self._table.number_taken(application(self.name))

    def held(self) -> HeldLease | None:
        """Return what the row says."""
        rows = [file[_ROWS] for file in self._table.begin().files.values()]
        return rows[0] if rows else None

    def fenced_numbers(self) -> list[int]:
        """Return the highest numbers that the fenced tables have taken."""
        fenced = (self._world.batch, self._world.ledger)
        return [self._world.table(log).number_taken(application(self.name)) for log in fenced]

    def write(self, held: HeldLease, stamp: Stamp) -> None:
        """Write the row by a commit that carries a stamp."""
        log = self._table.log

        def write(transaction: ModelTransaction) -> list[Action]:
            return [transaction.added(log.file(self.name, held))]

        replace_partition(self._table, {"pipeline": self.name}, write, stamp)


class ModelTables:
    """What a nightly run reads and writes, over models of its tables."""

    def __init__(self, world: "NightlyWorld", process: Process, days: Sequence[date]) -> None:
        self.world, self.process, self.days = world, process, days
        self.batch, self.ledger = world.table(world.batch), world.table(world.ledger)
        self.run_id = process.name
        self._plan: NightPlan | None = None

    def leases(self) -> ModelLeases:
        """Return the lease's row."""
        return ModelLeases(self.world)

    @contextmanager
    def hold(self) -> Iterator[LeaseTerm]:
        """Take the lease, renew it by a thread, and claim the ledger, as `pipelines.ledger.leases.lease`."""
        term = take(self.leases(), ModelMachine(self.world, self.process), LIMITS, self.run_id)
        kernel, given_back = self.world.kernel, list[bool]()

        def renew() -> None:
            while True:
                kernel.sleep(LIMITS.duration.total_seconds() / 3, "waits to renew its lease")
                if given_back or not term.renew():
                    return

        renewal = kernel.spawn(f"{self.run_id}'", self.process, renew)
        try:
            self.claim_ledger(term)
            yield term
        finally:
            given_back.append(True)
            renewal.wake_at = 0.0
            while not renewal.has_ended:
                kernel.sleep(1, "waits for the thread that renews")
            term.give_back()

    def claim_ledger(self, term: LeaseTerm) -> None:
        """Make the ledger refuse all earlier epochs."""
        claim_table(self.ledger, term.stamp("claim"))

    def step(self, name: Step) -> AbstractContextManager[list[str]]:
        """Do not record a step."""
        return nullcontext([])

    def read_ledger(self) -> list[Verdict]:
        """Return the verdicts that stand."""
        mark = self._marked()
        rows = [file[_ROWS] for file in self.ledger.begin().files.values()]
        return history_of(CONFIG, mark, [verdict for file in rows for verdict in file])

    def plan(self) -> NightPlan:
        """Read what is certified, and what bronze has."""
        certified = certified_in(self.read_ledger())
        version = self.world.kernel.effect("bronze: newest version", lambda: len(self.world.bronze) - 1)
        self._plan = NightPlan(certified, Due(dict.fromkeys(self.days, "asked"), {}, []), version, "bronze")
        return self._plan

    @property
    def planned(self) -> NightPlan:
        """What the run goes by."""
        if self._plan is None:
            raise RuntimeError(f"{self.run_id} has no plan yet")
        return self._plan

    def make_batch(self) -> None:
        """There is one."""

    def to_certified(self, certified: Certified | None, stamp: Stamp) -> int:
        """Put the batch table back to what is certified, as `pipelines.nightly.recovery`."""
        base = restore_table(self.batch, certified.version if certified else None, stamp).version
        if certified:
            self._mark(certified.version)
        return base

    def files(self) -> list[File]:
        """Write the rows of the days."""
        counts = self.world.bronze[self.planned.bronze_version]
        return [
            self.batch.log.file(day, Rows(self.run_id, counts[day])) for day in self.days if counts.get(day)
        ]

    def build(self, stamp: Stamp) -> int:
        """Write the days as one commit, as `pipelines.nightly.rebuild.build_days`."""
        save = self.batch.saver(stamp, self.days, self.files)
        return retry_conflicts(
            self.batch.path, lambda: write_fenced(self.batch, save, stamp), pause=self.batch.pause
        )

    def audit(self, built: int) -> Audit:
        """Compare the days at a version with bronze."""
        counts = self.world.bronze[self.planned.bronze_version]
        rows = self.world.kernel.effect(f"batch: audit version {built}", lambda: self.world.rows_at(built))
        checks, fails = list[Check](), self.world.failing.get(self.run_id, frozenset())
        for day in self.days:
            found = [each.records for each in rows.get(day, ())]
            expected = [counts[day]] if counts.get(day) else []
            status: CheckStatus = "passed" if found == expected and day not in fails else "failed"
            checks.append(Check(day, "rows", "integrity", status, str(found), str(expected)))
        facts = BronzeFacts(0, 0, 0, {day: BronzeDay(counts.get(day, 0), 0) for day in self.days})
        return Audit(tuple(checks), facts, {day: counts.get(day, 0) for day in self.days}, {}, 0.0)

    def take_back(self, base: int, days: Sequence[date], stamp: Stamp) -> int:
        """Give days the rows that they had at a version."""
        return restore_table(self.batch, base, stamp, days).version

    def changes(self, built: int) -> Mapping[date, Changes]:
        """Count no changes."""
        return {}

    def batch_since(self, base: int) -> list[Commit]:
        """Return the commits of the batch table after a version."""
        return self.batch.commits_since(base)

    def hashes(self, kept: int) -> tuple[str | None, str | None]:
        """Versions of the model are made once."""
        return None, None

    def record(self, decided: Sequence[Verdict], stamp: Stamp) -> None:
        """Append verdicts, as `pipelines.ledger.certifications.record_verdicts`."""
        self.append_verdicts(decided, stamp)
        if (version := highest_certified(decided)) is not None:
            self._mark(version)

    def append_verdicts(self, decided: Sequence[Verdict], stamp: Stamp) -> None:
        """Append verdicts as one commit."""
        ledger = self.ledger
        save = ledger.saver(stamp, [], lambda: [ledger.log.file("verdicts", tuple(decided))])
        write_fenced(ledger, save, stamp)

    def now(self) -> datetime:
        """Return the time by the clock of the process."""
        return self.world.kernel.clock(self.process)

    def _marked(self) -> int | None:
        mark = self.world.kernel.effect(
            "batch: mark", lambda: self.batch.log.newest.properties.get(CERTIFIED)
        )
        return None if mark is None else int(mark)

    def _mark(self, version: int) -> None:
        """Let the batch table say what is certified, as `pipelines.ledger.certifications.mark_certified`."""
        with suppress(InfrastructureError):
            if (self._marked() or -1) < version:
                set_mark = partial(self.batch.set_property, CERTIFIED, str(version))
                retry_conflicts(self.batch.path, set_mark, pause=self.batch.pause)


@dataclass
class NightlyWorld:
    """The tables of one pipeline, and the runs that are at work on them.

    Attributes:
        schedule: who goes on, and with which fault.
        setup: decides what is there when it begins.
        is_fenced: whether tables know the numbers of applications.
        tables: makes what a run reads and writes; a planted fault is one that does so wrongly.
        night: makes a run of it.
        failing: the days of each run that do not pass their audit.
        processes: the processes of the runs.
    """

    schedule: Schedule
    setup: Random
    is_fenced: bool = True
    tables: Callable[["NightlyWorld", Process, Sequence[date]], ModelTables] = ModelTables
    night: Callable[[str, str, ModelTables, str], NightRun] = NightRun
    failing: dict[str, frozenset[date]] = field(default_factory=dict)
    processes: dict[int, Process] = field(default_factory=dict)
    _served: dict[date, Verdict] = field(default_factory=dict)
    _checked: int = 0
    _held: HeldLease | None = None
    _are_leases_whole: bool = True

    def __post_init__(self) -> None:
        self.kernel = Kernel(self.schedule, self.check)
        logs = (ModelLog(name, is_fenced=self.is_fenced) for name in ("batch", "ledger", "leases"))
        self.batch, self.ledger, self.leases = logs
        self.bronze: list[dict[date, int]] = [dict.fromkeys(DAYS, 1)]
        self.sees_the_dead = self.setup.random() < 0.5
        for name in ("A", "B", *(["C"] if self.setup.random() < 0.3 else [])):
            days = sorted(self.setup.sample(DAYS, self.setup.randint(1, 3)))
            self.failing[name] = frozenset(day for day in days if self.setup.random() < 0.2)
            self.start(name, days)
        self._accidents()

    def table(self, log: ModelLog) -> ModelTable:
        """Return a table of the world as a run sees it."""
        return ModelTable(self.kernel, log)

    def start(self, name: str, days: Sequence[date]) -> None:
        """Start a run in a process of its own."""
        process = Process(name, len(self.processes) + 1)
        self.processes[process.number] = process

        def body() -> None:
            for _ in steps(self.night(CONFIG.name, name, self.tables(self, process, days), "batch")):
                pass

        self.kernel.spawn(name, process, body)

    def rows_at(self, version: int) -> dict[date, list[Rows]]:
        """Return the rows of the batch table at a version, by day."""
        rows = dict[date, list[Rows]]()
        for file in self.batch.versions[version].files.values():
            rows.setdefault(date.fromisoformat(file["day"]), []).append(file[_ROWS])
        return rows

    def check(self) -> None:
        """Make sure that readers have what runs have audited, and lose no day.

        Raises:
            Violation: they have not, or do.
        """
        self._check_lease()
        if self._checked == len(self.ledger.versions):
            return
        self._checked = len(self.ledger.versions)
        verdicts = [v for file in self.ledger.newest.files.values() for v in file[_ROWS]]
        runs = dict[int | None, str]()
        for verdict in verdicts:
            if runs.setdefault(verdict.epoch, verdict.run_id) != verdict.run_id:
                raise Violation("one run an epoch", f"{verdict.run_id} and {runs[verdict.epoch]}")
        try:
            ledger = history_of(CONFIG, None, verdicts)
        except SourceError as error:
            raise Violation("verdicts are built upon certified versions", str(error)) from error
        state, certified = certified_in(ledger), newest_certified(ledger)
        if lost := self._served.keys() - certified.keys():
            raise Violation("days stay certified", f"{sorted(map(str, lost))} are no longer certified")
        self._served = certified
        if state and state.version >= len(self.batch.versions):
            raise Violation("readers get what was audited", f"there is no version {state.version}")
        rows = self.rows_at(state.version) if state else {}
        for day, verdict in certified.items():
            counted = self.bronze[verdict.bronze_version].get(day, 0)
            expected = [Rows(verdict.run_id, counted)] if counted else []
            if rows.get(day, []) != expected:
                raise Violation(
                    "readers get what was audited",
                    f"{day}: version {state.version if state else None} has {rows.get(day)}, its verdict says"
                    f" {expected}",
                )

    def _check_lease(self) -> None:
        rows = [file[_ROWS] for file in self.leases.newest.files.values()]
        # A run that has looked at a table which is lost since adds its row beside that of another.
        if len(rows) > 1 and self._are_leases_whole:
            raise Violation("a lease has one row", f"{len(rows)} rows")
        held = rows[0] if rows else None
        # Numbers of a lost table begin anew, so a run that has looked before may overwrite another's row.
        if held is None or held is self._held or not self._are_leases_whole:
            return
        before, self._held = self._held, held
        if before and held.run_id != before.run_id and (held.epoch or 0) <= (before.epoch or 0):
            raise Violation("epochs grow", f"{held.run_id} has epoch {held.epoch} after {before.epoch}")

    def finish(self) -> None:
        """Let all runs end, and make sure that the next one finds all in order and certifies every day.

        Raises:
            Violation: it does not.
        """
        self.kernel.come_to_rest()
        self.failing.clear()
        self.start("next", DAYS)
        self.kernel.run()
        if failure := self.kernel.actors["next"].failure:
            raise Violation("the next run is done", repr(failure))
        current = self.bronze[-1]
        behind = [
            str(day)
            for day in DAYS
            if day not in self._served or current[day] != self.bronze[self._served[day].bronze_version][day]
        ]
        if behind:
            raise Violation("the next run certifies all", f"{behind} are not certified as bronze is")

    def _accidents(self) -> None:
        def more_records(day: date) -> None:
            self.bronze.append({**self.bronze[-1], day: self.bronze[-1][day] + 1})

        def lose_leases(keep: int) -> None:
            del self.leases.versions[max(1, len(self.leases.versions) - keep) if keep else 1 :]
            self._are_leases_whole = False

        accidents = self.kernel.accidents
        for day in DAYS:
            accidents[f"records of {day} come"] = partial(more_records, day)
            accidents[f"somebody appends to {day} by hand"] = partial(
                self.batch.append_blindly, day, Rows("by hand", 1)
            )
        for log in (self.batch, self.ledger, self.leases):
            accidents[f"a property of {log.path} is set"] = partial(log.set_property, "other", "value")
            accidents[f"another pipeline writes to {log.path}"] = partial(log.append_for, "other")
        accidents["batch is optimized"] = self.batch.optimize
        accidents["ops/leases is lost"] = partial(lose_leases, 0)
        accidents["ops/leases is put back from a backup"] = partial(lose_leases, 3)
        for process in self.processes.values():
            for seconds in (-1000, -90, 90, 1000):
                accidents[f"the clock of {process.name} jumps by {seconds} s"] = partial(
                    _jump, process, seconds
                )


def _jump(process: Process, seconds: float) -> None:
    process.skew += seconds
