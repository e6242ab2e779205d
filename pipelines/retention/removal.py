"""Which rows retention may remove from a table, and what keeps the others."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.contracts.event_days import FIRST_DAY
from pipelines.delta.io import days_condition, read, small_rows
from pipelines.delta.table_properties import SPEED_FROM, WHOLE_FROM
from pipelines.delta.tables import exists
from pipelines.ledger.certifications import certified, verdicts
from pipelines.ledger.retention_marks import (
    first_day_by_age,
    first_moment_of,
    first_rebuildable_day,
    first_whole_day,
    speed_from,
)
from pipelines.publishing.published_days import waiting
from pipelines.records.sent import sent_by
from pipelines.retention.blockers import (
    Need,
    in_quarantine,
    rebuild_first,
    records_of_days,
    uncertified,
    unread,
)
from pipelines.spark.pipeline import Pipeline
from pipelines.sql import literal

_DAY: Final = timedelta(days=1)


@dataclass(frozen=True)
class FirstOffset:
    """An offset of a Kafka partition below which records may go."""

    topic: str
    partition: int
    offset: int


def first_offsets_kept(bronze: DataFrame, sent: datetime) -> list[FirstOffset]:
    """Return the first offset of each Kafka partition that was sent at a moment or later.

    A partition without such a record keeps its last one, which shows the audit that none is missing.
    """
    first_kept = F.min(F.when(sent_by() >= F.lit(sent), F.col("_offset")))
    return _by_partition(bronze, F.least(first_kept, F.max("_offset")))


def first_there(bronze: DataFrame) -> list[FirstOffset]:
    """Return the first offset of each Kafka partition that bronze holds."""
    return _by_partition(bronze, F.min("_offset"))


def below_offsets(cuts: Iterable[FirstOffset]) -> str:
    """Return an SQL condition: whether a record's offset lies below that of its partition."""
    parts = (
        f"(_topic = {literal(cut.topic)} AND _partition = {cut.partition} AND _offset < {cut.offset})"
        for cut in cuts
    )
    return " OR ".join(parts) or "false"


def _by_partition(bronze: DataFrame, offset: Column) -> list[FirstOffset]:
    partitions = bronze.groupBy(F.col("_topic").alias("topic"), F.col("_partition").alias("partition"))
    return [FirstOffset(**row) for row in small_rows(partitions.agg(offset.alias("offset")))]


@dataclass(frozen=True)
class Removal:
    """What may be removed from a table.

    Attributes:
        rows: how many rows.
        condition: which, in SQL.
        properties: what the table must say of itself before they go.
        needs: what keeps more from going.
        kept_from: of bronze and the speed layer, the first day that stays, if any rows go.
        sent_before: of bronze, the moment before which the records were sent that go.
        days: of the speed layer, how many certified days the rows that go are of.
    """

    rows: int = 0
    condition: str = "false"
    properties: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[Need, ...] = ()
    kept_from: date | None = None
    sent_before: datetime | None = None
    days: int = 0


def from_bronze(pipeline: Pipeline, retention: timedelta) -> Removal:
    """Return the oldest records of bronze, up to an offset of each partition.

    They lie before the first day that must stay whole: for its age, or since something needs it.
    """
    config = pipeline.config
    table = pipeline.table("bronze")
    by_age = first_day_by_age(config, retention, datetime.now(UTC), pipeline.contract.zone)
    gone = first_whole_day(pipeline)
    if gone is not None and by_age <= gone:
        return Removal()
    needs = [unread(pipeline), in_quarantine(pipeline)]
    records = records_of_days(pipeline)
    needs.append(uncertified(config, records, verdicts(pipeline), first_rebuildable_day(pipeline), by_age))
    blocking = tuple(need for need in needs if need is not None and need.day < by_age)
    day = min([by_age, *(need.day for need in blocking)])
    if day <= (gone or FIRST_DAY):
        return Removal(needs=blocking)
    sent = first_moment_of(day, config.decode.max_future, pipeline.contract.zone)
    bronze = read(pipeline.spark, table)
    condition = below_offsets(first_offsets_kept(bronze, sent))
    rows = bronze.where(condition).count()
    if not rows:
        return Removal(needs=blocking)
    return Removal(rows, condition, {WHOLE_FROM: day.isoformat()}, blocking, kept_from=day, sent_before=sent)


def from_speed(pipeline: Pipeline, retention: timedelta) -> Removal:
    """Return the rows of certified days that lie further behind the last certified day than the retention."""
    spark = pipeline.spark
    table, state = pipeline.table("speed"), certified(pipeline)
    if state is None or not exists(spark, table):
        return Removal()
    first = state.days[-1] - timedelta(days=-(-retention // _DAY))
    uncertified_rows = read(spark, table).where(~F.expr(days_condition(state.days)))
    # A day that can no longer be certified keeps its own rows, which readers have from here, and no others.
    rebuildable = max(FIRST_DAY, first_rebuildable_day(pipeline) or FIRST_DAY)
    first_uncertified = uncertified_rows.agg(
        F.min(F.expr(f"CASE WHEN _event_date >= '{rebuildable}' THEN _event_date END"))
    )
    needs = [
        Need(row[0], f"{row[0]} is not certified: {rebuild_first(pipeline.config, row[0])}")
        for row in first_uncertified.toLocalIterator()
        if row[0] is not None and row[0] < first
    ]
    if to_settle := sorted({v.day for v in waiting(pipeline) if v.day < first}):
        needs.append(Need(to_settle[0], f"publish_stream has not sent the changes of {to_settle[0]} yet"))
    first = min([first, *(need.day for need in needs)])
    days = [day for day in state.days if day < first]
    if not days:
        return Removal(needs=tuple(needs))
    condition = days_condition(days)
    by_day = small_rows(read(spark, table).where(condition).groupBy("_event_date").count())
    rows = sum(row["count"] for row in by_day)
    if not rows:
        return Removal(needs=tuple(needs))
    kept_from = max(first, speed_from(pipeline) or first)
    properties = {SPEED_FROM: kept_from.isoformat()}
    return Removal(rows, condition, properties, tuple(needs), kept_from=kept_from, days=len(by_day))


def from_quarantine(pipeline: Pipeline, retention: timedelta) -> Removal:
    """Return replayed and discarded records that bronze no longer holds, some time after they were marked."""
    spark = pipeline.spark
    table = pipeline.table("quarantine")
    if not exists(spark, table):
        return Removal()
    until = datetime.now(UTC) - retention
    gone = below_offsets(first_there(read(spark, pipeline.table("bronze"))))
    condition = f"_status <> 'open' AND _tried_at < timestamp_seconds({int(until.timestamp())}) AND ({gone})"
    rows = read(spark, table).where(condition).count()
    return Removal(rows, condition) if rows else Removal()
