"""What runs that make and fold the index of bronze read and write: models of its table and of bronze."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, Final, Protocol

from pipelines.delta.epochs import Stamp
from pipelines.delta.fencing import claim_table, write_fenced
from pipelines.errors import SourceError
from pipelines.ledger.bronze_state import (
    BronzeState,
    Indexed,
    bronze_id,
    is_continued,
    require_offsets_of_index,
    require_same_bronze,
    unexplained_loss,
    was_cut,
)
from simulation.delta import Action, Change, ModelLog, ModelTable
from simulation.ingest import Row, rows_of
from simulation.kernel import Kernel

INDEX: Final = "index"
TOPIC: Final = "topic"
_HOUR_S: Final = 3600


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

    @property
    def hour(self) -> int:
        """The hour of its micro-batches."""
        return _hour(max(self.commits))


def _hour(moment: datetime) -> int:
    return int(moment.timestamp()) // _HOUR_S


@dataclass(frozen=True)
class BronzeVerdict:
    """What a verdict says of the bronze that it was given by.

    Attributes:
        version: its version.
        commit: the hash of that commit.
        offsets: the records that bronze had, by partition.
        told: how often a person had told by then from which day on bronze is whole.
        losses: how often an index was lost before.
    """

    version: int
    commit: str | None
    offsets: frozenset[tuple[int, int]]
    told: int
    losses: int


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


class IndexedBronze(Protocol):
    """What runs that make and fold the index work on.

    Attributes:
        kernel: lets them take turns.
        bronze_log: the log of bronze.
        index: the log of the index.
        cleaned: up to which version the log of bronze is cleaned up.
    """

    kernel: Kernel
    bronze_log: ModelLog
    index: ModelLog
    cleaned: int

    def time(self) -> datetime:
        """Return the time."""

    def contract_at_work(self) -> int:
        """Return the contract of the job whose turn it is."""

    def day_of(self, row: Row, contract: int) -> date:
        """Return the event day of a record, as a contract decodes it."""

    def state(self, version: int) -> BronzeState:
        """Return what distinguishes bronze at a version from other tables."""

    def hash_of(self, version: int) -> str | None:
        """Return what no other commit has; None if the log has no such version."""

    def verdicts(self) -> list[BronzeVerdict]:
        """Return the verdicts."""


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

    def __init__(self, world: IndexedBronze, version: int) -> None:
        self.world, self.version = world, version
        self.table = IndexTable(world.kernel, world.index)
        at = self.table.version()
        self.stored = self.table.rows_at(at)
        self.indexed = max((row.made_from for row in self.stored), key=lambda each: each.until, default=None)
        self.contract = world.contract_at_work()
        self.bronze: BronzeState = self._look("state", partial(world.state, version))
        self.is_same = self.indexed is not None and self.continues(self.indexed)
        self.bronze_id = bronze_id(self.bronze, self.indexed, is_same=self.is_same)
        self.made_for = f"{self.bronze_id} {unexplained_loss(self.bronze)} {self.contract}"

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
        """The newest version that it knows; None if rows hold for another bronze or contract."""
        ways = {(row.made_from.made_for, row.made_from.whole_from) for row in self.stored}
        if self.indexed is None or len(ways) > 1 or self.indexed.made_for != self.made_for:
            return None
        return self.indexed.until

    @property
    def was_cut(self) -> bool:
        """Whether retention has removed records, or a loss was told, since these rows were made."""
        return was_cut(self.bronze, self.indexed)

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
                # The change feed has all rows of added files, also those that were in the files before.
                files = [version.files[path] for path, _ in sorted(version.added)]
                came += [(row, version.commit.version) for file in files for row in file["rows"]]
        return self._rows(came)

    def of_all(self) -> list[IndexRow]:
        """Return the rows of all that bronze has."""
        known = (
            {at: commit for row in self.stored for at, commit in row.commits.items()} if self.is_same else {}
        )
        rows = self._all()
        whole = [(row, known.get(row.ingested_at, self.version)) for row in rows]
        if self.known_until is None:
            return self._rows(whole)
        return self._counted_anew(
            whole, {_hour(row.ingested_at) for row in rows if row.ingested_at not in known}
        )

    def _counted_anew(self, whole: Sequence[tuple[Row, int]], further: set[int]) -> list[IndexRow]:
        """Return the rows of all of bronze: those that are there of all hours of which they count as many.

        Args:
            whole: the records of bronze, with the version that each came by.
            further: the hours of micro-batches that the rows that are there do not know.
        """
        hours = further | self.differing_hours(
            Counter(_hour(row.ingested_at) for row, _ in whole),
            Counter(hour for row in self.stored for hour in [row.hour] * len(row.offsets)),
        )
        anew = self._rows([(row, commit) for row, commit in whole if _hour(row.ingested_at) in hours])
        kept = [replace(row, made_from=self._made_from()) for row in self.stored if row.hour not in hours]
        return [*kept, *anew]

    def differing_hours(self, in_bronze: Mapping[int, int], indexed: Mapping[int, int]) -> set[int]:
        """Return the hours of ingestion of which bronze and the index have different numbers of records."""
        every = {*in_bronze, *indexed}
        return {hour for hour in every if in_bronze.get(hour, 0) != indexed.get(hour, 0)}

    def _all(self) -> list[Row]:
        def read() -> list[Row]:
            if len(self.world.bronze_log.versions) <= self.version:
                raise SourceError(f"bronze: there is no version {self.version} any more")
            return rows_of(self.world.bronze_log, self.version)

        found: list[Row] = self._look(f"read version {self.version}", read)
        return found

    def _rows(self, came: Sequence[tuple[Row, int]]) -> list[IndexRow]:
        made_from = self._made_from()
        parts = dict[tuple[int, int, date, int], list[Row]]()
        for row, commit in came:
            day, hour = self.world.day_of(row, self.contract), _hour(row.ingested_at)
            parts.setdefault((commit, hour, day, row.record.partition), []).append(row)
        return [
            IndexRow(
                {row.ingested_at: commit for row in rows},
                day,
                partition,
                tuple(row.record.offset for row in rows),
                made_from,
            )
            for (commit, _, day, partition), rows in parts.items()
        ]

    def _made_from(self) -> Indexed:
        state = self.bronze
        return Indexed(
            self.made_for, self.version, self.bronze_id, state.commit, state.topic_id, state.whole_from
        )

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

        return self.own_rows(self.table.replace(stamp, is_gone, rows))

    def own_rows(self, at: int) -> ModelIndex:
        """Return what rows of a version of the index say that were made in the way of this run."""
        way = (self.made_for, self.bronze.whole_from)
        rows = self.table.rows_at(at)
        return self._index([row for row in rows if (row.made_from.made_for, row.made_from.whole_from) == way])

    def counted(self, index: ModelIndex) -> tuple[int, int]:
        """Return how many records the index counts."""
        return index.counts().total(), 0

    def in_bronze(self) -> tuple[int, int]:
        """Return how many records bronze has."""
        return len(self._all()), 0

    def require_known_offsets(self) -> None:
        """Make sure that bronze has every offset that the index knows."""
        if self.indexed is not None:
            require_offsets_of_index(self.bronze, self.indexed, self._lacking)

    def require_same_bronze(self) -> None:
        """Make sure that bronze is still the table that it was when this began."""
        found: BronzeState = self._look("state", partial(self.world.state, self.version))
        require_same_bronze(self.bronze, found.table_id, found.commit)

    def _lacking(self) -> list[str]:
        there = {(row.record.partition, row.record.offset) for row in self._all()}
        way = (self.indexed.made_for, self.indexed.whole_from) if self.indexed else None
        same = [row for row in self.stored if (row.made_from.made_for, row.made_from.whole_from) == way]
        kept = self.bronze.first_kept or {}
        known = {
            (partition, offset)
            for _, partition, offset in self._index(same).counts()
            if offset >= kept.get((TOPIC, partition), 0)
        }
        return [f"{partition}@{offset}" for partition, offset in sorted(known - there)]

    def _index(self, rows: Sequence[IndexRow]) -> ModelIndex:
        return ModelIndex(self.version, self.bronze_id, rows)


class ModelFolding:
    """The old rows of the index, see `pipelines.ledger.index_making.FoldedLake`."""

    def __init__(self, world: IndexedBronze) -> None:
        self.world, self.table = world, IndexTable(world.kernel, world.index)
        self.before = world.time() - timedelta(minutes=10)

    def claim(self, stamp: Stamp) -> None:
        """Make the index refuse the commits of all earlier epochs."""
        claim_table(self.table, stamp)

    def is_old(self, row: IndexRow) -> bool:
        """Return whether a row is to be folded."""
        return max(row.commits) < self.before

    def old(self) -> list[IndexRow] | None:
        """Return the rows that are to be folded; None if there are none."""
        rows = self.table.rows_at(self.table.version())
        if len({(row.made_from.made_for, row.made_from.whole_from) for row in rows}) > 1:
            return None
        return [row for row in rows if self.is_old(row)] or None

    def verdict_versions(self) -> list[int]:
        """Return the versions of bronze that verdicts name."""
        decided = self.world.kernel.effect("ledger: read", self.world.verdicts)
        return [verdict.version for verdict in decided]

    def fold(self, rows: list[IndexRow]) -> list[IndexRow]:
        """Return one row for each hour, day and partition, and span between two versions of verdicts."""
        versions = self.verdict_versions()
        parts = dict[tuple[int, int, date, int], list[IndexRow]]()
        for row in rows:
            span = sum(row.commit > version for version in versions)
            parts.setdefault((span, row.hour, row.day, row.partition), []).append(row)
        return [
            IndexRow(
                {at: commit for row in each for at, commit in row.commits.items()},
                day,
                partition,
                tuple(offset for row in each for offset in row.offsets),
                max((row.made_from for row in each), key=lambda made_from: made_from.until),
            )
            for (_, _, day, partition), each in parts.items()
        ]

    def count(self, rows: list[IndexRow]) -> int:
        """Return how many rows these are."""
        return len(rows)

    def replace(self, folded: list[IndexRow], stamp: Stamp) -> None:
        """Write folded rows in place of the old ones."""
        self.table.replace(stamp, self.is_old, folded)
