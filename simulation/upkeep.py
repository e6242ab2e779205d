"""Upkeep and the stream that it must leave its files, over models of the tables of a lake."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, Final

from pipelines.config.streams import Layer
from pipelines.delta.conflicts import retry_conflicts
from pipelines.delta.epochs import Stamp
from pipelines.delta.fencing import Restored, restore_table, rows_deleted
from pipelines.delta.replaced_rows import File
from pipelines.delta.table_properties import APPEND_ONLY, SPEED_FROM
from pipelines.errors import InfrastructureError
from pipelines.ledger.certifications import Certified, Verdict, certified_in, newest, newest_certified
from pipelines.ledger.lease_terms import LeaseTerm
from pipelines.retention.removal_terms import FirstOffset, Removal
from pipelines.retention.upkeep_run import Looked, TableFiles
from simulation.delta import Action, Change
from simulation.ingest import Row, rows_of
from simulation.kernel import Violation
from simulation.nightly import ModelTables
from simulation.retention_backfills import hold_backfills
from simulation.retention_lake import BRONZE, AgingLake, KeptLog, Quarantined

_TOPIC: Final = "flights"
_CUT: Final = re.compile(r"_partition = (\d+) AND _offset < (\d+)")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_UNTIL: Final = re.compile(r"timestamp_seconds\((-?\d+)\)")


class SpeedStream:
    """The stream that reads bronze as it grows: Spark, and Delta's source."""

    def __init__(self, world: AgingLake) -> None:
        self.world, self.kernel = world, world.kernel

    def run(self, batches: int) -> None:
        """Take some micro-batches."""
        checkpoint, bronze = self.world.checkpoint, self.world.bronze_log
        for _ in range(batches):
            batch = self.kernel.effect("checkpoint: read", checkpoint.next)
            newest = self.kernel.effect("bronze: newest version", lambda: len(bronze.versions) - 1)
            first = checkpoint.first_unread()
            if first is not None and newest < first and batch not in checkpoint.plans:
                return
            plan = partial(checkpoint.plans.setdefault, batch, newest)
            until = self.kernel.effect(f"checkpoint: offsets/{batch}", plan, is_write=True)
            rows = self.kernel.effect(f"bronze: read up to {until}", partial(self._read, first, until))
            self.write(batch, rows)
            done = partial(checkpoint.done.add, batch)
            self.kernel.effect(f"checkpoint: commits/{batch}", done, is_write=True, again=done)

    def write(self, batch: int, rows: Sequence[Row]) -> None:
        """Write what a micro-batch has read."""
        write = partial(self.world.take, batch, rows)
        self.kernel.effect(f"speed: write {batch}", write, is_write=True, again=write)

    def _read(self, first: int | None, until: int) -> list[Row]:
        log = self.world.bronze_log
        files = list(log.versions[until].files.values()) if first is None else []
        for version in log.versions[first or 0 : until + 1] if first is not None else ():
            # A commit that removes files changes no data, or is passed over (`skipChangeCommits`).
            if not version.removed:
                files += [log.every[path] for path, _ in version.added]
        if gone := [file["path"] for file in files if file["path"] in log.gone]:
            raise Violation("streams find what they have not read", f"{gone} are gone")
        return [row for file in files for row in file["rows"]]


class ModelUpkeep:
    """A run of upkeep, see `pipelines.retention.upkeep_run.UpkeepLake`.

    Args:
        world: the tables.
        tables: the tables as a nightly run sees them.
        vacuum_now: whether files of earlier versions go at once.
    """

    is_dry_run = False
    term: LeaseTerm

    def __init__(self, world: AgingLake, tables: ModelTables, vacuum_now: bool) -> None:
        self.world, self.tables, self.vacuum_now = world, tables, vacuum_now
        self.config, self.zone, self.kernel = world.config, world.zone, world.kernel

    def _look(self, label: str, action: Any) -> Any:
        return self.kernel.effect(f"upkeep: {label}", action)

    def now(self) -> datetime:
        """Return the time."""
        return self.world.time()

    def has(self, layer: Layer) -> bool:
        """All tables are there."""
        return True

    def first_complete_day(self) -> date | None:
        """Return the first complete day, or None if bronze never lost records."""
        found: date | None = self._look("first complete day", self.world.whole_from)
        return found

    def first_unread(self) -> datetime | None:
        """Return when the first record was sent that the stream has not read; None if there is none."""
        return min((row.record.at for row in self._unread()), default=None)

    def first_unresolved(self) -> datetime | None:
        """Return when the first unresolved record of the quarantine was sent; None if there is none."""
        found: list[Quarantined] = self._look("quarantine", lambda: [*self.world.quarantine.values()])
        return min((each.row.record.at for each in found if each.tried_at is None), default=None)

    def first_broken_not_quarantined(self, condition: str) -> datetime | None:
        """Return None: no contract of the model rejects a record that the stream accepted."""
        return None

    def quarantine_broken(self, condition: str) -> None:
        """Do nothing: there are no such records."""

    def records_of_days(self) -> Mapping[date, int]:
        """Return how many valid records bronze holds of each event day."""
        return Counter(row.record.day for row in self._rows("count") if self.world.is_valid(row))

    def verdicts(self) -> Sequence[Verdict]:
        """Return the newest verdict on each day."""
        return [*newest(self.tables.read_ledger()).values()]

    def days_with_later_records(self) -> Collection[date]:
        """Return certified days of which records came after they were certified."""
        rows, log = self._rows("later records"), self.world.bronze_log
        late = set[date]()
        for day, verdict in newest_certified(self.tables.read_ledger()).items():
            then = {row.record.number for row in rows_of(log, verdict.bronze_version)}
            of_day = {row.record.number for row in rows if row.record.day == day and self.world.is_valid(row)}
            if of_day - then:
                late.add(day)
        return late

    def certified(self) -> Certified | None:
        """Return what is certified; None if no day ever was."""
        return certified_in(self.tables.read_ledger())

    def first_offsets_kept(self, sent: datetime) -> Sequence[FirstOffset]:
        """Return the first offset of each partition that was sent at a moment or later, or else its last."""
        rows, first = self._rows("first offsets to keep"), dict[int, int]()
        for number in sorted({row.record.partition for row in rows}):
            of_partition = [row.record for row in rows if row.record.partition == number]
            last = max(record.offset for record in of_partition)
            first[number] = min([last, *(each.offset for each in of_partition if each.at >= sent)])
        return [FirstOffset(_TOPIC, number, offset) for number, offset in first.items()]

    def first_offsets(self) -> Sequence[FirstOffset]:
        """Return the first offset of each partition that bronze holds."""
        first = dict[int, int]()
        for row in self._rows("first offsets"):
            number = row.record.partition
            first[number] = min(row.record.offset, first.get(number, row.record.offset))
        return [FirstOffset(_TOPIC, number, offset) for number, offset in first.items()]

    def count(self, layer: Layer, condition: str) -> int:
        """Return how many rows of a table meet a condition, in SQL."""
        if layer == "quarantine":
            return len(self._look("count quarantine", lambda: self._resolved(condition)))
        return sum(is_below(row, condition) for row in self._rows("count below"))

    def count_days(self, layer: Layer, condition: str) -> Mapping[date, int]:
        """Return how many rows of the speed layer are of the days that a condition names."""
        days = set(_DATE.findall(condition))
        return Counter(row.record.day for row in self._speed() if str(row.record.day) in days)

    def first_row_day(self, days: Collection[date], since: date) -> date | None:
        """Return the first day, from one on, that the speed layer has rows of and that is not among some."""
        found = {row.record.day for row in self._speed()} - {*days}
        return min((day for day in found if day >= since), default=None)

    def days_to_publish(self) -> Collection[date]:
        """Nobody publishes."""
        return ()

    def speed_from(self) -> date | None:
        """Return the first day of which the speed layer has all rows, or None if it never lost any."""
        log = self.world.speed
        found: str | None = self._look("speed from", lambda: log.newest.properties.get(SPEED_FROM))
        return None if found is None else date.fromisoformat(found)

    def require_lease(self) -> None:
        """Require that the run still holds its lease."""
        self.term.require()

    def refuse_deletes(self) -> None:
        """Make bronze refuse deletes."""
        log = self.world.bronze_log
        if self._look("may delete", lambda: log.newest.properties.get(APPEND_ONLY)) != "true":
            self._set(log, {APPEND_ONLY: "true"})

    def restore_certified(self) -> Restored | None:
        """Restore the batch table to the certified version."""
        state = self.certified()
        return restore_table(self.tables.batch, state.version if state else None, self.term.stamp("undo"))

    def require_known_offsets(self) -> bool:
        """Accept bronze as it is: there is no index that knows more."""
        return True

    def hold_backfills(self) -> AbstractContextManager[LeaseTerm]:
        """Hold the lease of backfills."""
        return hold_backfills(self.world, self.tables.process)

    def stamp(self, what: str) -> Stamp:
        """Return what the run's next commit carries."""
        return self.term.stamp(what)

    def version(self, layer: Layer) -> int:
        """Return the newest version of a table."""
        log = self._logs.get(layer)
        return self.world.table(log).version() if log else 0

    def delete(self, layer: Layer, removal: Removal, stamps: Callable[[str], Stamp]) -> None:
        """Delete rows of a table, as `pipelines.delta.upkeep.delete_rows`."""
        if layer == "quarantine":
            self._effect("delete from quarantine", partial(self._discard, removal.condition))
        elif layer == "speed":
            delete = partial(self._delete_days, set(_DATE.findall(removal.condition)))
            rows_deleted(self.world.table(self.world.speed), delete, removal.properties, stamps)
        else:
            self._delete_bronze(removal, stamps)

    def _delete_bronze(self, removal: Removal, stamps: Callable[[str], Stamp]) -> None:
        log = self.world.bronze_log
        deleted = dict[str, int]()

        def left(file: File) -> File | None:
            rows = tuple(row for row in file["rows"] if not is_below(row, removal.condition))
            if len(rows) == len(file["rows"]):
                return file
            deleted[file["path"]] = len(file["rows"]) - len(rows)
            return log.file(BRONZE, rows) if rows else None

        def delete(stamp: Stamp) -> None:
            if log.newest.properties.get(APPEND_ONLY) == "true":
                raise InfrastructureError("bronze: it takes no deletes")
            self.world.table(log).delete(stamp, [BRONZE], left)

        kept = {**removal.properties, APPEND_ONLY: "false"}
        try:
            at = rows_deleted(self.world.table(log), delete, kept, stamps)
        finally:
            self._set(log, {APPEND_ONLY: "true"})
        removed = sum(deleted[path] for path in log.versions[at].removed)
        if removed != removal.rows:
            text = f"{removed} records were removed, {removal.rows} are told"
            raise Violation("what is told is what was removed", text)

    def _delete_days(self, days: Collection[str], stamp: Stamp) -> None:
        self.world.table(self.world.speed).delete(stamp, sorted(days), lambda file: None)

    def compact_streams(self) -> None:
        """Put small files together that streams have written."""
        self._compact(self.world.bronze_log)
        self._compact(self.world.speed)

    def compact(self, layer: Layer) -> Iterator[TableFiles]:
        """Do nothing: the quarantine is no log here."""
        yield from ()

    def fold_index(self) -> int:
        """There is no index."""
        return 0

    def compact_ledgers(self) -> Iterator[TableFiles]:
        """Do nothing."""
        yield from ()

    def is_behind(self, layer: Layer) -> bool:
        """Return whether the stream that reads bronze still needs files that are old enough to go."""
        if layer != "bronze":
            return False
        since = min((row.ingested_at for row in self._unread()), default=None)
        after = timedelta() if self.vacuum_now else self.config.maintain.vacuum_after
        return since is not None and since < self.now() - after

    @property
    def _logs(self) -> dict[Layer, KeptLog]:
        world = self.world
        return {"bronze": world.bronze_log, "speed": world.speed, "batch": world.batch_log}

    def vacuum(self, layer: Layer, looked: Looked) -> Iterator[TableFiles]:
        """Remove files of a table that no version since `maintain.vacuum_after` needs."""
        if log := self._logs.get(layer):
            old: set[str] = self._look(f"old files of {layer}", partial(self._old, log, looked))
            if old:
                self._effect(f"delete files of {layer}", partial(log.gone.update, old))
        yield from ()

    def vacuum_others(self) -> Iterator[TableFiles]:
        """There are no others."""
        yield from ()

    def _old(self, log: KeptLog, looked: Looked) -> set[str]:
        after = self.config.maintain.vacuum_after
        old = log.removed_before(self.world.seconds_at(looked.at - after))
        return old | log.removed_before(self.kernel.now, looked.version) if self.vacuum_now else old

    def _compact(self, log: KeptLog) -> None:
        def compact() -> None:
            transaction = self.world.table(log).begin()
            by_day = dict[str, list[dict[str, Any]]]()
            for file in transaction.files.values():
                by_day.setdefault(file["day"], []).append(file)
            actions = list[Action]()
            for day, files in by_day.items():
                if len(files) > 1:
                    rows = tuple(row for file in files for row in file["rows"])
                    actions += [("remove", file) for file in files]
                    actions.append(("add", log.file(day, rows)))
            if actions:
                transaction.put(Change(actions, "OPTIMIZE"))

        retry_conflicts(log.path, compact, pause=self.tables.batch.pause)

    def _set(self, log: KeptLog, properties: Mapping[str, str]) -> None:
        change = Change([], "SET TBLPROPERTIES", properties=dict(properties))
        put = partial(lambda: self.world.table(log).begin().put(change))
        retry_conflicts(log.path, put, pause=self.tables.batch.pause)

    def _effect(self, label: str, action: Any) -> None:
        self.kernel.effect(f"upkeep: {label}", action, is_write=True, again=action)

    def _rows(self, label: str) -> list[Row]:
        found: list[Row] = self._look(label, lambda: rows_of(self.world.bronze_log))
        return found

    def _unread(self) -> list[Row]:
        """Return the rows of bronze that the stream has not read, as `unread_rows`."""
        first: int | None = self._look("checkpoint", self.world.checkpoint.first_unread)
        rows = self._rows("unread")
        if not first:
            return rows
        done = {row.record.number for row in rows_of(self.world.bronze_log, first - 1)}
        return [row for row in rows if row.record.number not in done]

    def _speed(self) -> list[Row]:
        found: list[Row] = self._look("speed", lambda: rows_of(self.world.speed))
        return found

    def _resolved(self, condition: str) -> list[int]:
        """Return the records of the quarantine that a condition names."""
        until = tried_until(condition)
        return [
            number
            for number, each in self.world.quarantine.items()
            if each.tried_at is not None and each.tried_at < until and is_below(each.row, condition)
        ]

    def _discard(self, condition: str) -> None:
        for number in self._resolved(condition):
            del self.world.quarantine[number]


def tried_until(condition: str) -> datetime:
    """Return before which moment a condition has records resolved, see `quarantine_removal`."""
    (seconds,) = _UNTIL.findall(condition)
    return datetime.fromtimestamp(int(seconds), UTC)


def is_below(row: Row, condition: str) -> bool:
    """Return whether a record lies below the offsets that a condition names, see `below_offsets`."""
    cuts = {int(number): int(offset) for number, offset in _CUT.findall(condition)}
    return row.record.offset < cuts.get(row.record.partition, 0)
