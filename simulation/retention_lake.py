"""A lake with old records: models of its tables, and how records come to them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from itertools import count
from typing import Any, Final
from zoneinfo import ZoneInfo

from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig
from pipelines.delta.table_properties import APPEND_ONLY, WHOLE_FROM
from simulation.delta import ModelLog
from simulation.ingest import Row, rows_of
from simulation.kernel import Kernel
from simulation.nightly import NightlyWorld
from simulation.topic import Sent

BRONZE: Final = "bronze"
DAY: Final = timedelta(days=1)
FIRST: Final = date(2013, 1, 4)
STEP: Final = timedelta(minutes=30)
_LOADED: Final = load_config("flights", environ={})
CONFIG: Final = _LOADED.model_copy(
    update={
        "batch": _LOADED.batch.model_copy(update={"lookback_days": 1}),
        "maintain": _LOADED.maintain.model_copy(
            update={
                "bronze_retention": 4 * DAY,
                "speed_retention": 3 * DAY,
                "quarantine_retention": 4 * DAY,
                "vacuum_after": 2 * DAY,
            }
        ),
    }
)
_BEGIN: Final = datetime(2013, 1, 12, 12, tzinfo=UTC)
_MOST_RECORDS: Final = 50


@dataclass
class Quarantined:
    """A record in the quarantine, and when it was discarded; None if it is not resolved."""

    row: Row
    tried_at: datetime | None = None


@dataclass
class SpeedCheckpoint:
    """The files of the speed stream's checkpoint: up to which version of bronze each micro-batch goes."""

    plans: dict[int, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)

    def next(self) -> int:
        """Return the next micro-batch."""
        return max(self.done, default=-1) + 1

    def first_unread(self) -> int | None:
        """Return the first version that it has not read; None if it has read nothing."""
        return self.plans[max(self.done)] + 1 if self.done else None


class KeptLog(ModelLog):
    """The log of a table that knows all files that ever were.

    Attributes:
        every: they, by path.
    """

    def __init__(self, path: str, *, is_fenced: bool, clock: Any) -> None:
        super().__init__(path, is_fenced=is_fenced, clock=clock)
        self.every = dict[str, dict[str, Any]]()

    def file(self, day: date | str, rows: object) -> dict[str, Any]:
        """Return a new file."""
        file = super().file(day, rows)
        self.every[file["path"]] = file
        return file


class BronzeCounts:
    """How many valid records bronze has of each day, by its version, as `NightlyWorld` asks for them."""

    def __init__(self, world: "AgingLake") -> None:
        self._world = world

    def __len__(self) -> int:
        return len(self._world.bronze_log.versions)

    def __getitem__(self, version: int) -> dict[date, int]:
        world, counts = self._world, dict[date, int]()
        for row in rows_of(world.bronze_log, version if version >= 0 else None):
            if world.is_valid(row):
                counts[row.record.day] = counts.get(row.record.day, 0) + 1
        return counts


@dataclass
class AgingLake(NightlyWorld):
    """A lake with old records, before anything works on it.

    Attributes:
        quarantine: broken records, by number.
        lost: records that bronze lacked when it began, and that Kafka still has.
        checkpoint: the checkpoint of the speed stream.
    """

    quarantine: dict[int, Quarantined] = field(default_factory=dict)
    lost: list[Sent] = field(default_factory=list)
    checkpoint: SpeedCheckpoint = field(default_factory=SpeedCheckpoint)
    config: PipelineConfig = CONFIG
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("America/New_York"))

    def __post_init__(self) -> None:
        self._make_tables()
        self._fill()

    def _make_tables(self) -> None:
        self.kernel = Kernel(self.schedule, self.check)
        logs = (
            KeptLog(name, is_fenced=self.is_fenced, clock=lambda: self.kernel.now)
            for name in ("batch", "ledger", "leases", "bronze", "speed", "leases of backfills")
        )
        self.batch_log, self.ledger, self.leases, self.bronze_log, self.speed, self.backfills = logs
        self.batch: ModelLog = self.batch_log
        self.bronze = BronzeCounts(self)  # type: ignore[assignment]
        self.sees_the_dead = self.setup.random() < 0.5
        self._numbers, self._ends = count(), dict[int, int]()
        self._taken, self._seen = set[int](), dict[int, Row]()
        self._broken = set[int]()

    def time(self) -> datetime:
        """Return the time."""
        return _BEGIN + self.kernel.now * STEP

    def seconds_at(self, moment: datetime) -> float:
        """Return the time of the kernel at a moment."""
        return (moment - _BEGIN) / STEP

    def is_valid(self, row: Row) -> bool:
        """Return whether a record keeps the contract."""
        return row.record.number not in self._broken

    def whole_from(self) -> date | None:
        """Return the first complete day, by the property of bronze."""
        day = self.bronze_log.newest.properties.get(WHOLE_FROM)
        return None if day is None else date.fromisoformat(day)

    def _fill(self) -> None:
        """Let bronze have records of some days, and lack some in between."""
        setup = self.setup
        self.bronze_log.set_property(APPEND_ONLY, "true")
        for day in range(8):
            moment = datetime.combine(FIRST + day * DAY, time(17), UTC)
            rows = list[Row]()
            for number in range(2):
                for _ in range(setup.randint(0, 2)):
                    record = self._record(number, moment, moment.date())
                    if setup.random() < 0.2 and record.number not in self._broken:
                        self.lost.append(record)
                    else:
                        rows.append(Row(record, moment))
            self._append(tuple(rows))

    def _record(self, partition: int, at: datetime, day: date) -> Sent:
        offset = self._ends.get(partition, 0)
        self._ends[partition] = offset + 1
        record = Sent(next(self._numbers), "id", partition, offset, at, day)
        if self.setup.random() < 0.1:
            self._broken.add(record.number)
        return record

    def _append(self, rows: tuple[Row, ...]) -> None:
        if rows:
            self.bronze_log.append_blindly(BRONZE, rows)

    def come(self, days_ago: int) -> None:
        """Let a record come whose event is some days old."""
        if len(self._seen) < _MOST_RECORDS:
            now = self.time()
            day = now.astimezone(self.zone).date() - days_ago * DAY
            self._append((Row(self._record(days_ago % 2, now, day), now),))

    def take(self, batch: int, rows: Sequence[Row]) -> None:
        """Write what a micro-batch of the speed stream has read, once."""
        if batch in self._taken:
            return
        self._taken.add(batch)
        by_day = dict[date, list[Row]]()
        for row in rows:
            self._seen[row.record.number] = row
            if self.is_valid(row):
                by_day.setdefault(row.record.day, []).append(row)
            else:
                self.quarantine[row.record.number] = Quarantined(row)
        for day, each in by_day.items():
            self.speed.append_blindly(day, tuple(each))

    def discard(self) -> None:
        """Do what `quarantine discard` does."""
        for each in self.quarantine.values():
            each.tried_at = each.tried_at or self.time()
