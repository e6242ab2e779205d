"""Which rows retention may remove, and what keeps the others: the decisions, without Spark.

What is looked at is behind `RetentionLake`. Jobs use Delta (`pipelines.retention.removal`); `simulation` uses
models of the tables. So what is simulated is what runs.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from pipelines.config.model import PipelineConfig
from pipelines.config.streams import Layer
from pipelines.contracts.event_days import FIRST_DAY
from pipelines.delta.conditions import days_condition
from pipelines.delta.retention_cut import RetentionCut
from pipelines.delta.table_properties import REMOVED_BELOW, REMOVED_FOR, SPEED_FROM, WHOLE_FROM
from pipelines.ledger.certifications import Certified, Verdict
from pipelines.ledger.retention_properties import (
    cut_mark,
    first_day_by_age,
    first_moment_of,
    first_rebuildable,
)
from pipelines.retention.blockers import (
    DaysOfBronze,
    RetentionBlocker,
    broken_not_in_quarantine,
    in_quarantine,
    rebuild_first,
    uncertified,
    unread_records,
)
from pipelines.sql import literal

_DAY: Final = timedelta(days=1)


@dataclass(frozen=True)
class FirstOffset:
    """An offset of a Kafka partition below which records may go."""

    topic: str
    partition: int
    offset: int


def below_offsets(cuts: Iterable[FirstOffset]) -> str:
    """Return an SQL condition: whether a record's offset lies below that of its partition."""
    parts = (
        f"(_topic = {literal(cut.topic)} AND _partition = {cut.partition} AND _offset < {cut.offset})"
        for cut in cuts
    )
    return " OR ".join(parts) or "false"


@dataclass(frozen=True)
class Removal:
    """What may be removed from a table.

    Attributes:
        rows: How many rows.
        condition: Which, in SQL.
        properties: What the table must say of itself before they go.
        needs: What keeps more from going.
        kept_from: Of bronze and the speed layer, the first day that stays, if any rows go.
        sent_before: Of bronze, the moment before which the records were sent that go.
        days: Of the speed layer, how many certified days the rows that go are of.
        to_quarantine: Of bronze, the records of which those that break the contract must be put in
            quarantine first, in SQL; None if none must.
    """

    rows: int = 0
    condition: str = "false"
    properties: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[RetentionBlocker, ...] = ()
    kept_from: date | None = None
    sent_before: datetime | None = None
    days: int = 0
    to_quarantine: str | None = None


class RetentionLake(Protocol):
    """The tables of a pipeline, as retention looks at them."""

    @property
    def config(self) -> PipelineConfig:
        """The pipeline's configuration."""

    @property
    def zone(self) -> ZoneInfo:
        """The zone in which days end."""

    def now(self) -> datetime:
        """Return the time, in UTC."""

    def has(self, layer: Layer) -> bool:
        """Return whether there is a table."""

    def first_complete_day(self) -> date | None:
        """Return the first complete day, or None if bronze never lost records."""

    def first_unread(self) -> datetime | None:
        """Return when the first record was sent that `speed_stream` has not read; None if there is none."""

    def first_unresolved(self) -> datetime | None:
        """Return when the first unresolved record of the quarantine was sent; None if there is none."""

    def first_broken_not_quarantined(self, condition: str) -> datetime | None:
        """Return when the first record was sent that breaks the contract and is not in quarantine.

        Args:
            condition: The records of bronze that are looked at, in SQL.

        Returns:
            None if there is none.
        """

    def records_of_days(self) -> Mapping[date, int]:
        """Return how many valid records bronze holds of each event day that can be certified."""

    def verdicts(self) -> Sequence[Verdict]:
        """Return the newest verdict on each day."""

    def days_with_later_records(self) -> Collection[date]:
        """Return certified days of which records came after they were certified."""

    def certified(self) -> Certified | None:
        """Return what is certified; None if no day ever was."""

    def first_offsets_kept(self, sent: datetime) -> Sequence[FirstOffset]:
        """Return the first offset of each partition that was sent at a moment or later, or else its last."""

    def first_offsets(self) -> Sequence[FirstOffset]:
        """Return the first offset of each partition that bronze holds."""

    def count(self, layer: Layer, condition: str) -> int:
        """Return how many rows of a table meet a condition, in SQL."""

    def count_days(self, layer: Layer, condition: str) -> Mapping[date, int]:
        """Return how many rows of a table meet a condition, in SQL, by event day."""

    def first_row_day(self, days: Collection[date], since: date) -> date | None:
        """Return the first day, from one on, that the speed layer has rows of and that is not among some."""

    def days_to_publish(self) -> Collection[date]:
        """Return days that were certified, of which `publish_stream` has not sent the changes."""

    def speed_from(self) -> date | None:
        """Return the first day of which the speed layer has all rows, or None if it never lost any."""


def is_due(by_age: date, first_complete: date | None) -> bool:
    """Return whether bronze has a day to let go.

    Args:
        by_age: The first day that has to stay for its age.
        first_complete: The first complete day, or None if bronze never lost records.
    """
    return first_complete is None or by_age > first_complete


def bronze_removal(lake: RetentionLake, retention: timedelta) -> Removal:
    """Return the oldest records of bronze, up to an offset of each partition.

    They lie before the first day that must stay whole: for its age, or since something needs it.
    """
    config, zone = lake.config, lake.zone
    by_age = first_day_by_age(config, retention, lake.now(), zone)
    first_complete = lake.first_complete_day()
    if not is_due(by_age, first_complete):
        return Removal()
    needs = [
        unread_records(config, zone, lake.first_unread()),
        in_quarantine(config, zone, lake.first_unresolved()),
    ]
    days = DaysOfBronze(lake.records_of_days(), lake.verdicts())
    needs.append(uncertified(config, days, _first_rebuildable(lake), by_age))
    removal = _before(lake, needs, by_age, first_complete)
    if removal.rows:
        # Only now: it takes the index of bronze.
        days = replace(days, late=lake.days_with_later_records())
        needs[-1] = uncertified(config, days, _first_rebuildable(lake), by_age)
        removal = _before(lake, needs, by_age, first_complete)
    if removal.rows:
        removal = _justified(removal, days.verdicts)
        # Only of those that would go: each of them is decoded.
        condition = removal.condition
        broken = broken_not_in_quarantine(config, zone, lake.first_broken_not_quarantined(condition))
        if broken is not None:
            removal = _before(lake, [*needs, broken], by_age, first_complete)
            return replace(_justified(removal, days.verdicts), to_quarantine=condition)
    return removal


def _justified(removal: Removal, verdicts: Sequence[Verdict]) -> Removal:
    """Return a removal that notes upon which verdicts records go, see `require_cut_known`."""
    certified = [each for each in verdicts if each.status == "certified"]
    newest = max(certified, key=lambda each: each.batch_version, default=None)
    if newest is None or not removal.rows:
        return removal
    return replace(removal, properties={**removal.properties, REMOVED_FOR: cut_mark(newest)})


def _before(
    lake: RetentionLake,
    needs: Sequence[RetentionBlocker | None],
    by_age: date,
    first_complete: date | None,
) -> Removal:
    """Return the records of bronze before the first day that its age or a need keeps."""
    blocking = tuple(need for need in needs if need is not None and need.day < by_age)
    day = min([by_age, *(need.day for need in blocking)])
    if day <= (first_complete or FIRST_DAY):
        return Removal(needs=blocking)
    sent = first_moment_of(day, lake.config.decode.max_future, lake.zone)
    kept = lake.first_offsets_kept(sent)
    condition = below_offsets(kept)
    rows = lake.count("bronze", condition)
    if not rows:
        return Removal(needs=blocking)
    cut = RetentionCut(day, {(each.topic, each.partition): each.offset for each in kept})
    properties = {WHOLE_FROM: day.isoformat(), REMOVED_BELOW: cut.text()}
    return Removal(rows, condition, properties, blocking, kept_from=day, sent_before=sent)


def speed_removal(lake: RetentionLake, retention: timedelta) -> Removal:
    """Return the rows of certified days that lie further behind the last certified day than the retention."""
    state = lake.certified()
    if state is None or not lake.has("speed"):
        return Removal()
    first = state.days[-1] - timedelta(days=-(-retention // _DAY))
    # A day that can no longer be certified keeps its own rows, which readers have from here, and no others.
    rebuildable = max(FIRST_DAY, _first_rebuildable(lake) or FIRST_DAY)
    needs = []
    if (day := lake.first_row_day(state.days, rebuildable)) is not None and day < first:
        needs.append(RetentionBlocker(day, f"{day} is not certified: {rebuild_first(lake.config, day)}"))
    if to_settle := sorted({day for day in lake.days_to_publish() if day < first}):
        needs.append(
            RetentionBlocker(to_settle[0], f"publish_stream has not sent the changes of {to_settle[0]} yet")
        )
    first = min([first, *(need.day for need in needs)])
    days = [day for day in state.days if day < first]
    if not days:
        return Removal(needs=tuple(needs))
    condition = days_condition(days)
    by_day = lake.count_days("speed", condition)
    rows = sum(by_day.values())
    if not rows:
        return Removal(needs=tuple(needs))
    kept_from = max(first, lake.speed_from() or first)
    properties = {SPEED_FROM: kept_from.isoformat()}
    return Removal(rows, condition, properties, tuple(needs), kept_from=kept_from, days=len(by_day))


def quarantine_removal(lake: RetentionLake, retention: timedelta) -> Removal:
    """Return replayed and discarded records that bronze no longer holds, some time after they were marked."""
    if not lake.has("quarantine"):
        return Removal()
    until = lake.now() - retention
    removable = below_offsets(lake.first_offsets())
    is_old = f"_status <> 'open' AND _tried_at < timestamp_seconds({int(until.timestamp())})"
    condition = f"{is_old} AND ({removable})"
    rows = lake.count("quarantine", condition)
    return Removal(rows, condition) if rows else Removal()


def _first_rebuildable(lake: RetentionLake) -> date | None:
    return first_rebuildable(lake.config, lake.first_complete_day())
