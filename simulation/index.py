"""The index of bronze: runs that make it and fold it, while bronze and it are put back and replaced."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any, Final

from pipelines.delta.epochs import Stamp, application
from pipelines.delta.fencing import claim_table, write_fenced
from pipelines.delta.table_properties import WHOLE_FROM
from pipelines.errors import OncelakeError, SourceError
from pipelines.ledger.bronze_state import BronzeState, Indexed, bronze_id, is_continued, require_offsets
from pipelines.ledger.index_making import folded, make_index
from pipelines.ledger.lease_terms import LeaseTerm
from simulation.delta import Action, Change, ModelLog, ModelTable, Version
from simulation.ingest import Row, rows_of
from simulation.kernel import Actor, Kernel, Process, Violation
from simulation.nightly import ModelLeases, ModelTables, NightlyWorld
from simulation.topic import Sent

BRONZE: Final = "bronze"
INDEX: Final = "index"
_DAYS: Final = tuple(date(2013, 1, day) for day in range(1, 4))
_BEGIN: Final = datetime(2013, 1, 6, tzinfo=UTC)
_MOST_RECORDS: Final = 60


@dataclass(frozen=True)
class IndexRow:
    """A row of the index, of one day and partition.

    Attributes:
        commits: the commit of each micro-batch that it counts, by the moment of its ingestion.
        day: the event day.
        partition: the partition.
        offsets: the offsets that it counts, one for each record.
        made_from: the bronze that it was made from.
    """

    commits: Mapping[datetime, int]
    day: date
    partition: int
    offsets: tuple[int, ...]
    made_from: Indexed

    @property
    def commit(self) -> int:
        """The newest of its commits."""
        return max(self.commits.values())


@dataclass(frozen=True)
class ModelIndex:
    """What the index says of bronze at a version."""

    version: int
    bronze_id: str
    rows: Sequence[IndexRow]

    def until(self, version: int) -> "ModelIndex":
        """Return what it said at an earlier version, as `BronzeIndex.until`."""
        rows = [row for row in self.rows if row.made_from.until <= version or row.commit <= version]
        return replace(self, rows=rows)

    def counts(self) -> Counter[tuple[date, int, int]]:
        """Return how often it counts each record: its day, partition and offset."""
        return Counter((row.day, row.partition, offset) for row in self.rows for offset in row.offsets)


class IndexTable(ModelTable):
    """The table of the index."""

    def replace(self, stamp: Stamp, gone: Callable[[IndexRow], bool], rows: Sequence[IndexRow]) -> int:
        """Write rows in place of others, as one commit that carries a stamp; return its version."""

        def save() -> None:
            transaction = self.begin()
            if transaction.number_taken(stamp.application) >= stamp.number:
                return
            old = [file for file in transaction.read_days([INDEX]) if gone(file["rows"])]
            actions: list[Action] = [transaction.removed(file) for file in old]
            actions += [transaction.added(self.log.file(INDEX, row)) for row in rows]
            transaction.put(Change(actions, "WRITE", stamp.note, (stamp.application, stamp.number)))

        return write_fenced(self, save, stamp)

    def rows_at(self, version: int) -> list[IndexRow]:
        """Return its rows at a version."""
        return [file["rows"] for file in self.log.versions[version].files.values()]


class ModelMaking:
    """One making of the index, see `pipelines.ledger.index_making.IndexLake`."""

    def __init__(self, world: "IndexWorld", version: int) -> None:
        self.world, self.version = world, version
        self.table = IndexTable(world.kernel, world.index)
        at = self.table.version()
        self.stored = self.table.rows_at(at)
        self.indexed = max((row.made_from for row in self.stored), key=lambda each: each.until, default=None)
        self.bronze: BronzeState = self._look("state", partial(world.state, version))
        self.is_same = self.indexed is not None and self.continues(self.indexed)
        self.bronze_id = bronze_id(self.bronze, self.indexed, is_same=self.is_same)
        self.made_for = f"{self.bronze_id} {self.bronze.whole_from}"

    def _look(self, label: str, action: Any) -> Any:
        return self.world.kernel.effect(f"bronze: {label}", action)

    def continues(self, indexed: Indexed) -> bool:
        """Return whether bronze continues the table that the index was made from."""
        found: bool = self._look("log", lambda: is_continued(self.bronze, indexed, self.world.hash_of))
        return found

    @property
    def is_there(self) -> bool:
        """Whether the index has rows."""
        return self.indexed is not None

    @property
    def known_until(self) -> int | None:
        """The newest version that it knows; None if it holds for another bronze."""
        if self.indexed is None or self.indexed.made_for != self.made_for:
            return None
        return self.indexed.until

    def as_known(self) -> ModelIndex:
        """Return what the rows that are there say of the version."""
        return self._index(self.stored).until(self.version)

    def came_after(self, version: int) -> list[IndexRow] | None:
        """Return the rows of what came after a version; None if that can no longer be told."""
        found: list[IndexRow] | None = self._look(f"changes after {version}", partial(self._came, version))
        return found

    def _came(self, after: int) -> list[IndexRow] | None:
        log = self.world.bronze_log
        if after < self.world.cleaned or len(log.versions) <= self.version:
            return None
        came = list[tuple[Row, int]]()
        for version in log.versions[after + 1 : self.version + 1]:
            if version.commit.operation != "OPTIMIZE":
                before = {row.record.number for row in rows_of(log, version.commit.version - 1)}
                # Delta reads the change feed of a DELETE, and otherwise the files that were added.
                files = [version.files[path] for path, _ in sorted(version.added)]
                rows = [row for file in files for row in file["rows"]]
                is_delete = version.commit.operation == "DELETE"
                came += [
                    (row, version.commit.version)
                    for row in rows
                    if not (is_delete and row.record.number in before)
                ]
        return self._rows(came)

    def of_all(self) -> list[IndexRow]:
        """Return the rows of all that bronze has."""
        known = (
            {at: commit for row in self.stored for at, commit in row.commits.items()} if self.is_same else {}
        )
        rows = self._all()
        return self._rows([(row, known.get(row.ingested_at, self.version)) for row in rows])

    def _all(self) -> list[Row]:
        def read() -> list[Row]:
            if len(self.world.bronze_log.versions) <= self.version:
                raise SourceError(f"bronze: there is no version {self.version} any more")
            return rows_of(self.world.bronze_log, self.version)

        found: list[Row] = self._look(f"read version {self.version}", read)
        return found

    def _rows(self, came: Sequence[tuple[Row, int]]) -> list[IndexRow]:
        state = self.bronze
        made_from = Indexed(
            self.made_for, self.version, self.bronze_id, state.commit, state.topic_id, state.whole_from
        )
        parts = dict[tuple[int, date, int], list[Row]]()
        for row, commit in came:
            parts.setdefault((commit, row.record.day, row.record.partition), []).append(row)
        return [
            IndexRow(
                {row.ingested_at: commit for row in rows},
                day,
                partition,
                tuple(row.record.offset for row in rows),
                made_from,
            )
            for (commit, day, partition), rows in parts.items()
        ]

    def is_empty(self, rows: list[IndexRow]) -> bool:
        """Return whether these are none."""
        return not rows

    def beside(self, rows: list[IndexRow]) -> ModelIndex:
        """Return the rows that are there and others."""
        return self._index([*self.stored, *rows])

    def alone(self, rows: list[IndexRow]) -> ModelIndex:
        """Return rows in place of those that are there."""
        return self._index(rows)

    def written(self, rows: list[IndexRow], after: int | None, stamp: Stamp) -> ModelIndex:
        """Write rows in place of those that know bronze after a version; None for all that are there."""

        def is_gone(row: IndexRow) -> bool:
            return after is None or row.made_from.until > after

        return self._index(self.table.rows_at(self.table.replace(stamp, is_gone, rows)))

    def counted(self, index: ModelIndex) -> tuple[int, int]:
        """Return how many records the index counts."""
        return index.counts().total(), 0

    def in_bronze(self) -> tuple[int, int]:
        """Return how many records bronze has."""
        return len(self._all()), 0

    def require_known_offsets(self) -> None:
        """Make sure that bronze has every offset that the index knows."""
        if self.indexed is not None:
            require_offsets(self.bronze, self.indexed, self._lacking)

    def _lacking(self) -> list[str]:
        there = {(row.record.partition, row.record.offset) for row in self._all()}
        known = {(partition, offset) for _, partition, offset in self._index(self.stored).counts()}
        return [f"{partition}@{offset}" for partition, offset in sorted(known - there)]

    def _index(self, rows: Sequence[IndexRow]) -> ModelIndex:
        return ModelIndex(self.version, self.bronze_id, rows)


class ModelFolding:
    """The old rows of the index, see `pipelines.ledger.index_making.FoldedLake`."""

    def __init__(self, world: "IndexWorld") -> None:
        self.world, self.table = world, IndexTable(world.kernel, world.index)
        self.before = world.time() - timedelta(minutes=1)

    def claim(self, stamp: Stamp) -> None:
        """Make the index refuse the commits of all earlier epochs."""
        claim_table(self.table, stamp)

    def is_old(self, row: IndexRow) -> bool:
        """Return whether a row is to be folded."""
        return max(row.commits) < self.before

    def old(self) -> list[IndexRow] | None:
        """Return the rows that are to be folded; None if there are none."""
        return [row for row in self.table.rows_at(self.table.version()) if self.is_old(row)] or None

    def fold(self, rows: list[IndexRow]) -> list[IndexRow]:
        """Return one row for each day and partition, and span between two versions that verdicts name."""
        parts = dict[tuple[int, date, int], list[IndexRow]]()
        for row in rows:
            span = sum(row.commit > version for version in self.world.verdicts)
            parts.setdefault((span, row.day, row.partition), []).append(row)
        return [
            IndexRow(
                {at: commit for row in each for at, commit in row.commits.items()},
                day,
                partition,
                tuple(offset for row in each for offset in row.offsets),
                max((row.made_from for row in each), key=lambda made_from: made_from.until),
            )
            for (_, day, partition), each in parts.items()
        ]

    def count(self, rows: list[IndexRow]) -> int:
        """Return how many rows these are."""
        return len(rows)

    def replace(self, folded: list[IndexRow], stamp: Stamp) -> None:
        """Write folded rows in place of the old ones."""
        self.table.replace(stamp, self.is_old, folded)


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
        verdicts: the versions of bronze that verdicts name.
        cleaned: up to which version the log of bronze is cleaned up.
    """

    make_index: Callable[["IndexWorld", int], ModelMaking] = ModelMaking
    make_folding: Callable[["IndexWorld"], ModelFolding] = ModelFolding
    verdicts: list[int] = field(default_factory=list)
    cleaned: int = 0

    def __post_init__(self) -> None:
        self.kernel = Kernel(self.schedule, self.check)
        names = ("batch", "ledger", "leases", BRONZE, INDEX)
        logs = (ModelLog(name, is_fenced=self.is_fenced, clock=lambda: self.kernel.now) for name in names)
        self.batch, self.ledger, self.leases, self.bronze_log, self.index = logs
        self.sees_the_dead = self.setup.random() < 0.5
        self._tables, self._names = 0, count()
        self._ends, self._records = dict[int, int](), list[Sent]()
        self._seen = set[tuple[int, int]]()
        self._whole: date | None = None
        self._newest_seen = 0
        for _ in range(self.setup.randint(1, 3)):
            self.come()
        for name in ("night-A", "night-B"):
            self.start_night(name)
        if self.setup.random() < 0.5:
            self.start_fold("fold-A")
        self._accidents()

    def time(self) -> datetime:
        """Return the time."""
        return _BEGIN + timedelta(seconds=self.kernel.now)

    def state(self, version: int) -> BronzeState:
        """Return what distinguishes bronze at a version from other tables."""
        whole = self.bronze_log.newest.properties.get(WHOLE_FROM)
        return BronzeState(
            BRONZE,
            version,
            f"table-{self._tables}",
            self.hash_of(version),
            "topic",
            None if whole is None else date.fromisoformat(whole),
        )

    def hash_of(self, version: int) -> str | None:
        """Return what no other commit has; None if the log has no such version."""
        if not self.cleaned <= version < len(self.bronze_log.versions):
            return None
        made_by: Version = self.bronze_log.versions[version]
        return repr((made_by.at, made_by.commit, sorted(made_by.added), sorted(made_by.removed)))

    def come(self) -> None:
        """Let a micro-batch come."""
        if len(self._records) >= _MOST_RECORDS:
            return
        rows, now = list[Row](), self.time() + timedelta(microseconds=len(self._records))
        for _ in range(self.setup.randint(1, 3)):
            partition = self.setup.randrange(2)
            offset = self._ends.get(partition, 0)
            self._ends[partition] = offset + 1
            record = Sent(len(self._records), "topic", partition, offset, now, self.setup.choice(_DAYS))
            self._records.append(record)
            rows.append(Row(record, now))
        self.bronze_log.append_blindly(BRONZE, tuple(rows))

    def _process(self, name: str) -> Process:
        process = Process(name, len(self.processes) + 1)
        self.processes[process.number] = process
        return process

    def _run(self, name: str, work: Callable[[LeaseTerm], None], times: int) -> Actor:
        process = self._process(name)

        def body() -> None:
            for left in reversed(range(times)):
                hold: AbstractContextManager[LeaseTerm] = IndexTables(self, process, ()).hold()
                try:
                    with hold as term:
                        work(term)
                except OncelakeError:
                    if not left:
                        raise
                    self.kernel.sleep(20, "is started again")
                else:
                    return

        return self.kernel.spawn(name, process, body)

    def start_night(self, name: str, times: int = 3) -> Actor:
        """Start a run that makes the index, and again while it waits for ingest."""
        return self._run(name, self._night, times)

    def _night(self, term: LeaseTerm) -> None:
        for attempt in range(2):
            if attempt:
                self.kernel.sleep(5, "waits for ingest")
            newest = self.kernel.effect("bronze: newest version", lambda: self.bronze_log.newest)
            version = newest.commit.version
            lake = self.make_index(self, version)
            index = make_index(lake, term.stamp)
            self._check_index(index, newest, lake.bronze.whole_from)
        self.kernel.effect("verdict", partial(self.verdicts.append, version), is_write=True)

    def start_fold(self, name: str, times: int = 3) -> Actor:
        """Start a run that folds the index."""
        return self._run(name, self._fold, times)

    def _fold(self, term: LeaseTerm) -> None:
        folded(self.make_folding(self), term.stamp)

    def _check_index(self, index: ModelIndex, newest: Version, whole: date | None) -> None:
        """Compare what a run gets with the bronze that it was made for."""
        log = self.bronze_log
        if log.versions[newest.commit.version : newest.commit.version + 1] != [newest]:
            # Bronze was put back from a copy under the run, which ends when it compares commits.
            return
        expected = Counter(
            (row.record.day, row.record.partition, row.record.offset)
            for file in newest.files.values()
            for row in file["rows"]
        )
        if index.counts() != expected:
            text = f"it counts {index.counts() - expected} too many and lacks {expected - index.counts()}"
            raise Violation("the index counts each record once", f"version {index.version}: {text}")
        there = {(partition, offset) for _, partition, offset in expected}
        if index.version < self._newest_seen:
            # A run that stood still looks at what bronze had before.
            return
        self._newest_seen = index.version
        if whole == self._whole and (lost := self._seen - there):
            raise Violation("lost records are told", f"{sorted(lost)} are gone, and nobody says so")
        self._seen, self._whole = there, whole

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
        whole = self.bronze_log.newest.properties.get(WHOLE_FROM)
        day = _DAYS[0] if whole is None else date.fromisoformat(whole) + timedelta(days=1)
        self.bronze_log.set_property(WHOLE_FROM, day.isoformat())

    def _accidents(self) -> None:
        self.kernel.accidents |= {
            "a micro-batch comes": self.come,
            "a nightly run is started": partial(self._more, "night", self.start_night),
            "upkeep folds": partial(self._more, "fold", self.start_fold),
            "bronze is put back by RESTORE": self._restore,
            "bronze is put back by a copy": partial(self._copy, self.bronze_log),
            "the index is put back by a copy": self._copy_index,
            "the index is lost": self._lose,
            "bronze is another table": self._replace,
            "records leave bronze": self._retain,
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
        # What only a lost index knew, verdicts tell: `pipelines.ledger.bronze_verdicts`.
        self._seen.clear()

    def _lose(self) -> None:
        del self.index.versions[1:]
        self._seen.clear()

    def _replace(self) -> None:
        """Let bronze be moved aside, and filled once more from what Kafka has."""
        self._tables += 1
        self._newest_seen = 0
        self.cleaned = 0
        del self.bronze_log.versions[1:]
        there = [record for record in self._records if self.setup.random() < 0.95]
        at = self.time() + timedelta(microseconds=len(self._records))
        for first in range(0, len(there), 3):
            rows = tuple(Row(each, at + timedelta(seconds=first)) for each in there[first : first + 3])
            self.bronze_log.append_blindly(BRONZE, rows)

    def _retain(self) -> None:
        """Let upkeep delete the oldest records, after bronze says so."""
        log = self.bronze_log
        self.say_whole()
        actions = list[Action]()
        for file in log.newest.files.values():
            rows = tuple(row for row in file["rows"] if row.record.offset >= 1)
            if len(rows) < len(file["rows"]):
                actions += [("remove", file)]
                actions += [("add", log.file(BRONZE, rows))] if rows else []
        log.put(len(log.versions), Change(actions, "DELETE"))

    def _clean(self) -> None:
        self.cleaned = max(self.cleaned, len(self.bronze_log.versions) - 3)
