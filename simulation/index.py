"""The index of bronze: runs that make it and fold it, while bronze and it are put back and replaced."""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import count
from typing import Final

from pipelines.delta.epochs import Stamp, application
from pipelines.delta.fencing import write_fenced
from pipelines.delta.retention_cut import RetentionCut, explained_by, parse_cut
from pipelines.delta.table_properties import REMOVED_BELOW, WHOLE_FROM
from pipelines.ledger.bronze_state import BronzeState
from pipelines.ledger.index_making import folded, make_index
from pipelines.ledger.lease_terms import LeaseTerm
from simulation.delta import Action, Change, ModelLog, Version
from simulation.index_tables import INDEX, TOPIC, BronzeVerdict, ModelFolding, ModelIndex, ModelMaking
from simulation.ingest import Row
from simulation.kernel import Actor, Kernel, Process, Violation
from simulation.nightly import ModelLeases, ModelTables, NightlyWorld
from simulation.schedules import overtaking
from simulation.topic import Sent

BRONZE: Final = "bronze"
_DAYS: Final = tuple(date(2013, 1, day) for day in range(1, 4))
_BEGIN: Final = datetime(2013, 1, 6, tzinfo=UTC)
_HOUR: Final = timedelta(hours=1)
_MOST_RECORDS: Final = 60
_FIRST_KEPT: Final = 1


class _Leases(ModelLeases):
    """The row of a lease whose epochs the commits of the index carry."""

    def fenced_numbers(self) -> list[int]:
        """Return the highest numbers that the fenced tables have taken."""
        index = self._world.table(self._world.index)  # type: ignore[attr-defined]
        return [*super().fenced_numbers(), index.number_taken(application(self.name))]


class IndexTables(ModelTables):
    """The tables of a run that makes the index."""

    def leases(self) -> ModelLeases:
        """Return the lease's row."""
        return _Leases(self.world)


@dataclass
class IndexWorld(NightlyWorld):
    """A bronze that grows, and runs that index it.

    Attributes:
        make_index: makes what the index is made from; a planted fault is one that answers wrongly.
        make_folding: makes what is folded.
        cleaned: up to which version the log of bronze is cleaned up.
        contract: the contract that a job gets which starts now; each decodes to other days.
    """

    make_index: Callable[["IndexWorld", int], ModelMaking] = ModelMaking
    make_folding: Callable[["IndexWorld"], ModelFolding] = ModelFolding
    cleaned: int = 0
    contract: int = 0
    contracts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kernel = Kernel(overtaking(self.schedule, self.setup, "fold"), self.check)
        names = ("batch", "ledger", "leases", BRONZE, INDEX)
        logs = (ModelLog(name, is_fenced=self.is_fenced, clock=lambda: self.kernel.now) for name in names)
        self.batch, self.ledger, self.leases, self.bronze_log, self.index = logs
        self.sees_the_dead = self.setup.random() < 0.5
        self._tables, self._names = 0, count()
        self._ends, self._records = dict[int, int](), list[Sent]()
        self._newest_seen = 0
        self._told, self._losses, self._has_retained = 0, 0, False
        self._ingested_at = datetime.min.replace(tzinfo=UTC)
        for _ in range(self.setup.randint(1, 3)):
            self.come(self.setup.choice((timedelta(), _HOUR)))
        for name in ("night-A", "night-B"):
            self.start_night(name)
        if self.setup.random() < 0.7:
            self.start_fold("fold-A", after=self.setup.choice((0, 60, 120)))
        self._accidents()

    def time(self) -> datetime:
        """Return the time."""
        return _BEGIN + timedelta(seconds=self.kernel.now)

    def contract_at_work(self) -> int:
        """Return the contract of the job whose turn it is."""
        return self.contracts[self.kernel.current.process.name]

    def day_of(self, row: Row, contract: int) -> date:
        """Return the event day of a record, as a contract decodes it."""
        return _DAYS[(_DAYS.index(row.record.day) + contract * row.record.number) % len(_DAYS)]

    def verdicts(self) -> list[BronzeVerdict]:
        """Return the verdicts."""
        return [file["rows"] for file in self.ledger.newest.files.values()]

    def state(self, version: int) -> BronzeState:
        """Return what distinguishes bronze at a version from other tables."""
        whole_from, cut = self._whole_from(), self.bronze_log.newest.properties.get(REMOVED_BELOW)
        return BronzeState(
            BRONZE,
            version,
            f"table-{self._tables}",
            self.hash_of(version),
            TOPIC,
            whole_from,
            explained_by(None if cut is None else parse_cut(cut), whole_from),
        )

    def _whole_from(self) -> date | None:
        whole = self.bronze_log.newest.properties.get(WHOLE_FROM)
        return None if whole is None else date.fromisoformat(whole)

    def hash_of(self, version: int) -> str | None:
        """Return what no other commit has; None if the log has no such version."""
        if not self.cleaned <= version < len(self.bronze_log.versions):
            return None
        made_by: Version = self.bronze_log.versions[version]
        return repr((made_by.at, made_by.commit, sorted(made_by.added), sorted(made_by.removed)))

    def come(self, ago: timedelta = timedelta()) -> None:
        """Let a micro-batch come, or have come some time ago."""
        if len(self._records) >= _MOST_RECORDS:
            return
        rows, now = list[Row](), self._moment(self.time() - ago)
        for _ in range(self.setup.randint(1, 3)):
            partition = self.setup.randrange(2)
            offset = self._ends.get(partition, 0)
            self._ends[partition] = offset + 1
            record = Sent(len(self._records), TOPIC, partition, offset, now, self.setup.choice(_DAYS))
            self._records.append(record)
            rows.append(Row(record, now))
        self.bronze_log.append_blindly(BRONZE, tuple(rows))

    def _moment(self, now: datetime) -> datetime:
        """Return a moment for a micro-batch, later than that of the one before, as ingest demands."""
        self._ingested_at = max(now, self._ingested_at + timedelta(microseconds=1))
        return self._ingested_at

    def _process(self, name: str) -> Process:
        # Of two hosts one may have it later.
        self.contracts[name] = self.contract + (self.setup.random() < 0.25)
        process = Process(name, len(self.processes) + 1)
        self.processes[process.number] = process
        return process

    def _run(self, name: str, work: Callable[[LeaseTerm], None], times: int, after: float = 0) -> Actor:
        process = self._process(name)

        def job() -> None:
            if after:
                self.kernel.sleep(after, "is started later")
            hold: AbstractContextManager[LeaseTerm] = IndexTables(self, process, ()).hold()
            with hold as term:
                work(term)

        return self.kernel.spawn(name, process, lambda: self.kernel.work(job, times))

    def start_night(self, name: str, times: int = 3) -> Actor:
        """Start a run that makes the index, and again while it waits for ingest."""
        return self._run(name, self._night, times)

    def _night(self, term: LeaseTerm) -> None:
        for attempt in range(2):
            if attempt:
                self.kernel.sleep(5, "waits for ingest")
            newest = self.kernel.effect("bronze: newest version", lambda: self.bronze_log.newest)
            version = newest.commit.version
            told, losses = self._told, self._losses
            lake = self.make_index(self, version)
            index = make_index(lake, term.stamp)
            self._check_index(index, newest)
        offsets = frozenset((partition, offset) for _, partition, offset in index.counts())
        decided = BronzeVerdict(version, lake.bronze.commit, offsets, told, losses)
        self._decide(decided, term.stamp("certify"))

    def _decide(self, decided: BronzeVerdict, stamp: Stamp) -> None:
        """Append a verdict, as `pipelines.ledger.certifications.record_verdicts`."""
        table = self.table(self.ledger)
        write_fenced(table, table.saver(stamp, [], lambda: [self.ledger.file("verdicts", decided)]), stamp)

    def start_fold(self, name: str, times: int = 3, after: float = 0) -> Actor:
        """Start a run that folds the index, some seconds later, when there may be one."""
        return self._run(name, self._fold, times, after)

    def _fold(self, term: LeaseTerm) -> None:
        folded(self.make_folding(self), term.stamp)

    def _check_index(self, index: ModelIndex, newest: Version) -> None:
        """Compare what a run gets with the bronze that it was made for."""
        log = self.bronze_log
        if log.versions[newest.commit.version : newest.commit.version + 1] != [newest]:
            # Bronze was put back from a copy under the run, which ends when it compares commits.
            return
        contract = self.contract_at_work()
        expected = self._counts(newest, contract)
        if index.counts() != expected:
            text = f"it counts {index.counts() - expected} too many and lacks {expected - index.counts()}"
            raise Violation("the index counts each record once", f"version {index.version}: {text}")
        self._check_verdicts(index, contract)
        there = {(partition, offset) for _, partition, offset in expected}
        if index.version < self._newest_seen:
            # A run that stood still looks at what bronze had before.
            return
        self._newest_seen = index.version
        for verdict in self._known_verdicts()[-1:]:
            # What retention has removed once may be gone, whatever was put back or replaced since.
            first = _FIRST_KEPT if self._has_retained else 0
            lost = [(partition, at) for partition, at in verdict.offsets - there if at >= first]
            if lost and verdict.told == self._told:
                raise Violation("lost records are told", f"{sorted(lost)} are gone, and nobody says so")

    def _counts(self, version: Version, contract: int) -> Counter[tuple[date, int, int]]:
        return Counter(
            (self.day_of(row, contract), row.record.partition, row.record.offset)
            for file in version.files.values()
            for row in file["rows"]
        )

    def _check_verdicts(self, index: ModelIndex, contract: int) -> None:
        """Make sure that what verdicts have seen of bronze is still told, if bronze only grew since."""
        # An index that was made without the one before it does not know when records came.
        first = min((row.commit for row in index.rows), default=0)
        for version in {verdict.version for verdict in self._known_verdicts() if self._is_of(verdict, index)}:
            since = self.bronze_log.versions[version + 1 : index.version + 1]
            if version < first or any(each.removed and each.commit.operation != "OPTIMIZE" for each in since):
                continue
            then = index.until(version).counts()
            expected = self._counts(self.bronze_log.versions[version], contract)
            if then != expected:
                text = f"{then - expected} too many, {expected - then} too few"
                raise Violation("the index knows what verdicts have seen", f"version {version}: {text}")

    def _known_verdicts(self) -> list[BronzeVerdict]:
        return [verdict for verdict in self.verdicts() if verdict.losses == self._losses]

    def _is_of(self, verdict: BronzeVerdict, index: ModelIndex) -> bool:
        commit = self.hash_of(verdict.version)
        return verdict.version <= index.version and commit is not None and verdict.commit == commit

    def check(self) -> None:
        """Look at the lease alone: what a run gets is compared when it gets it.

        Raises:
            Violation: two runs have one epoch.
        """
        self._check_lease()

    def finish(self) -> None:
        """Let all end, and make sure that runs after them get what bronze has.

        Raises:
            Violation: they do not.
        """
        self.kernel.come_to_rest()
        for attempt in range(6):
            last = [self.start_night(f"night-last-{attempt}", times=1)]
            self.kernel.run()
            last.append(self.start_fold(f"fold-last-{attempt}", times=1))
            self.kernel.run()
            self.come()
            last.append(self.start_night(f"night-behind-{attempt}", times=1))
            self.kernel.run()
            failures = [each.failure for each in last if each.failure]
            if not failures:
                return
            self.say_whole()
        raise Violation("the next run is done", repr(failures[0]))

    def say_whole(self) -> None:
        """Do what the runbook says of a bronze that has lost records: say from which day on it is whole."""
        self.bronze_log.set_property(WHOLE_FROM, self._later_day().isoformat())
        self._told += 1

    def _later_day(self) -> date:
        # The message says from which day on the table was whole that was indexed.
        known = [file["rows"].made_from.whole_from for file in self.index.newest.files.values()]
        days = [*filter(None, [*known, self._whole_from()])]
        return max(days) + timedelta(days=1) if days else _DAYS[0]

    def _accidents(self) -> None:
        self.kernel.accidents |= {
            "a micro-batch comes": self.come,
            "a nightly run is started": partial(self._more, "night", self.start_night),
            "upkeep folds": partial(self._more, "fold", self.start_fold),
            "bronze is put back by RESTORE": self._restore,
            "bronze is put back by a copy": partial(self._copy, self.bronze_log),
            "the index is put back by a copy": self._copy_index,
            "the index is lost": self._lose,
            "the contract is changed": self._change_contract,
            "bronze is another table": self._replace,
            "records leave bronze": self._retain,
            "records are deleted by hand": partial(self._delete_below, _FIRST_KEPT + 1),
            "the log of bronze is cleaned up": self._clean,
            "bronze is optimized": self.bronze_log.optimize,
            "a property of bronze is set": partial(self.bronze_log.set_property, "other", "value"),
        }

    def _more(self, kind: str, start: Callable[[str], object]) -> None:
        if sum(name.startswith(kind) and "'" not in name for name in self.kernel.actors) < 4:
            start(f"{kind}-{next(self._names)}")

    def _restore(self) -> None:
        newest = len(self.bronze_log.versions) - 1
        self.bronze_log.restore_to(self.setup.randint(max(self.cleaned, newest - 4), newest))

    def _copy(self, log: ModelLog) -> None:
        del log.versions[max(2, len(log.versions) - self.setup.randint(1, 3)) :]
        self.cleaned = min(self.cleaned, len(self.bronze_log.versions) - 1)
        self._newest_seen = 0

    def _copy_index(self) -> None:
        self._copy(self.index)
        self._forget()

    def _forget(self) -> None:
        """Expect no index to know when records came that another one knew, which is lost."""
        # What only a lost index knew, verdicts tell: `pipelines.ledger.bronze_verdicts`.
        self._losses += 1

    def _lose(self) -> None:
        del self.index.versions[1:]
        self._forget()

    def _change_contract(self) -> None:
        self.contract += 1

    def _replace(self) -> None:
        """Let bronze be moved aside, and filled once more from what Kafka has."""
        self._tables += 1
        self._newest_seen = 0
        self.cleaned = 0
        del self.bronze_log.versions[1:]
        there = [record for record in self._records if self.setup.random() < 0.95]
        for first in range(0, len(there), 3):
            at = self._moment(self.time() + timedelta(seconds=first))
            rows = tuple(Row(each, at) for each in there[first : first + 3])
            self.bronze_log.append_blindly(BRONZE, rows)

    def _retain(self) -> None:
        """Let upkeep delete the oldest records, after bronze says so."""
        day, kept = self._later_day(), {(TOPIC, partition): _FIRST_KEPT for partition in range(2)}
        properties = {WHOLE_FROM: day.isoformat(), REMOVED_BELOW: RetentionCut(day, kept).text()}
        # In one commit: a RESTORE to between two would leave a day that nothing explains.
        self.bronze_log.put(
            len(self.bronze_log.versions), Change([], "SET TBLPROPERTIES", properties=properties)
        )
        self._has_retained = True
        self._delete_below(_FIRST_KEPT)

    def _delete_below(self, offset: int) -> None:
        """Delete the first records of each partition, as a person does who wants room."""
        log, actions = self.bronze_log, list[Action]()
        for file in log.newest.files.values():
            rows = tuple(row for row in file["rows"] if row.record.offset >= offset)
            if len(rows) < len(file["rows"]):
                actions += [("remove", file)]
                actions += [("add", log.file(BRONZE, rows))] if rows else []
        log.put(len(log.versions), Change(actions, "WRITE"))

    def _clean(self) -> None:
        self.cleaned = max(self.cleaned, len(self.bronze_log.versions) - 3)
