"""A lake with records in quarantine: models of its tables, and how records come to them."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from typing import Final, Literal

from pipelines.delta.epochs import application
from pipelines.delta.table_properties import APPEND_ONLY
from pipelines.ledger.retention_properties import first_rebuildable
from simulation.delta import ModelLog
from simulation.ingest import Row, rows_of
from simulation.retention import RetentionWorld
from simulation.topic import Sent

DAYS: Final = tuple(date(2013, 1, day) for day in (5, 6, 10, 11))
QUARANTINE: Final = "quarantine"
_MOST_RECORDS: Final = 24

Contract = Literal["before", "corrected"]


@dataclass(frozen=True)
class Entry:
    """A row of the quarantine."""

    row: Row
    status: Literal["open", "replayed", "discarded"] = "open"
    tried_at: datetime | None = None

    @property
    def number(self) -> int:
        """The record."""
        return self.row.record.number


@dataclass(frozen=True)
class DayRows:
    """The rows of a day in a file: who wrote them, and the record that won of each key."""

    writer: str
    winners: tuple[int, ...]


@dataclass
class QuarantineLake(RetentionWorld):
    """A lake with records in quarantine, as its jobs see it.

    Attributes:
        contracts: the contract that each run knows; the corrected one if it is not among them.
        entries: the log of the quarantine.
        application: the lease, as commits name it.
    """

    contracts: dict[str, Contract] = field(default_factory=dict)

    def _make_tables(self) -> None:
        super()._make_tables()
        self.application = application(self.config.name)
        self.entries = ModelLog(QUARANTINE, is_fenced=self.is_fenced)
        self._never = set[int]()
        self._keys = dict[int, int]()
        self._aside, self._batches = set[int](), dict[int, set[int]]()
        self._winners = dict[tuple[int, Contract], dict[date, tuple[int, ...]]]()

    def row(self, number: int) -> Row:
        """Return a record in bronze."""
        return self._rows[number]

    def day(self, number: int) -> date:
        """Return the event day of a record."""
        return self._rows[number].record.day

    def key(self, number: int) -> int:
        """Return the key of a record: the first record that has it."""
        return self._keys[number]

    def keys(self, numbers: Iterable[int]) -> set[int]:
        """Return the keys of records."""
        return {self._keys[number] for number in numbers}

    def broken_by(self, contract: Contract) -> set[int]:
        """Return the records that break a contract."""
        return self._broken if contract == "before" else self._never

    def is_valid(self, row: Row) -> bool:
        """Return whether a record keeps the corrected contract."""
        return row.record.number not in self._never

    def is_unresolved(self, number: int) -> bool:
        """Return whether a record stands in the quarantine, and nobody has resolved it."""
        return any(entry.number == number and entry.status == "open" for entry in self.quarantined())

    def quarantined(self) -> list[Entry]:
        """Return the rows of the quarantine."""
        return [entry for file in self.entries.newest.files.values() for entry in file["rows"]]

    def events(self, version: int, contract: Contract) -> dict[date, list[int]]:
        """Return the events of each day that bronze has at a version."""
        return events_by_day(rows_of(self.bronze_log, version), self.broken_by(contract))

    def winners(self, version: int, contract: Contract) -> dict[date, tuple[int, ...]]:
        """Return the record that wins of each key, by day: the first one."""
        known = (version, contract)
        if known not in self._winners:
            found = dict[date, tuple[int, ...]]()
            for day, numbers in self.events(version, contract).items():
                first = {self._keys[number]: number for number in reversed(numbers)}
                found[day] = tuple(sorted(first.values()))
            self._winners[known] = found
        return self._winners[known]

    def files_at(self, version: int) -> dict[date, list[DayRows]]:
        """Return the rows of the batch table at a version, by day."""
        rows = dict[date, list[DayRows]]()
        for file in self.batch.versions[version].files.values():
            rows.setdefault(date.fromisoformat(file["day"]), []).append(file["rows"])
        return rows

    def speed_keys(self) -> dict[date, set[int]]:
        """Return the keys in the speed layer, by day."""
        keys = dict[date, set[int]]()
        for row in rows_of(self.speed):
            keys.setdefault(row.record.day, set()).add(self._keys[row.record.number])
        return keys

    def first_rebuildable(self) -> date | None:
        """Return the first day that can be rebuilt; None for any."""
        return first_rebuildable(self.config, self.whole_from())

    def put_aside(self, batch: int, rows: Sequence[Row]) -> None:
        """Append the broken records of a micro-batch to the quarantine, once."""
        if batch not in self._aside:
            self._aside.add(batch)
            self.entries.append_blindly(QUARANTINE, tuple(Entry(row) for row in rows))

    def add_events(self, batch: int, rows: Sequence[Row], events: Sequence[Row]) -> None:
        """Append the events of a micro-batch whose keys the stream does not know to the speed layer, once."""
        if batch in self._batches:
            return
        known = set[int]().union(*self._batches.values())
        by_day = dict[date, dict[int, Row]]()
        for row in events:
            if (key := self._keys[row.record.number]) not in known:
                by_day.setdefault(row.record.day, {}).setdefault(key, row)
        self._batches[batch] = {key for of_day in by_day.values() for key in of_day}
        self._seen |= {row.record.number: row for row in rows}
        for day, of_day in by_day.items():
            self.speed.append_blindly(day, tuple(of_day.values()))

    def _fill(self) -> None:
        """Let bronze have records of some days, and the stream have read none of them."""
        self.bronze_log.set_property(APPEND_ONLY, "true")
        for day in DAYS:
            moment = datetime.combine(day, time(17), UTC)
            rows = [
                Row(self._record(number % 2, moment, day), moment)
                for number in range(self.setup.randint(1, 3))
            ]
            self._append(tuple(rows))
        for row in rows_of(self.bronze_log):
            self._rows[row.record.number] = row

    def _record(self, partition: int, at: datetime, day: date) -> Sent:
        record = super()._record(partition, at, day)
        number, setup = record.number, self.setup
        self._broken.discard(number)
        same = [n for n, row in self._rows.items() if row.record.day == day]
        self._keys[number] = self._keys[setup.choice(same)] if same and setup.random() < 0.25 else number
        if setup.random() < 0.4:
            self._broken.add(number)
            if setup.random() < 0.25:
                self._never.add(number)
        return record

    def come(self, days_ago: int) -> None:
        """Let a record come whose event is some days old."""
        if len(self._keys) < _MOST_RECORDS:
            super().come(days_ago)


def events_by_day(rows: Collection[Row], broken: Collection[int]) -> dict[date, list[int]]:
    """Return the events of rows, by day and in order."""
    by_day = dict[date, list[int]]()
    for number, day in sorted((row.record.number, row.record.day) for row in rows):
        if number not in broken:
            by_day.setdefault(day, []).append(number)
    return by_day
