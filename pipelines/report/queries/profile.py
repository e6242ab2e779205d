"""What a report draws: records over the hours, lateness, quarantine. Small frames, aggregated in Spark."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.delta.io import small_rows
from pipelines.records.decode import COORDINATES, EVENT_DATE
from pipelines.records.send_time import sent_at
from pipelines.report.model.records import QuarantineExample, QuarantineReason
from pipelines.report.model.report import HourCount, LatenessCount

# Kafka takes timestamps of any year; Python's end with 9999.
SENT: Final = "CASE WHEN _kafka_timestamp < TIMESTAMP'9999-12-31' THEN _kafka_timestamp END"

_HOUR_S: Final = 3600
_DAY_S: Final = 24 * _HOUR_S
_PREVIEW_BYTES: Final = 2000
# Lateness in seconds: upper bounds, exclusive.
_BOUNDS: Final = (0, 60, 600, _HOUR_S, 6 * _HOUR_S, _DAY_S, 7 * _DAY_S, None)


def by_hour(events: DataFrame, rows: DataFrame, contract: DataContract, day: date) -> tuple[HourCount, ...]:
    """Count the records and removed duplicates of each hour of a day; 23 or 25 hours where clocks change.

    Args:
        events: All valid records of the day in bronze.
        rows: The day's rows in the batch layer.
        contract: Names the event time and its zone.
        day: The event day.
    """
    start = datetime.combine(day, time(), contract.zone).astimezone(UTC)
    end = datetime.combine(day + timedelta(days=1), time(), contract.zone).astimezone(UTC)
    hour = F.floor((F.unix_seconds(contract.event_time) - int(start.timestamp())) / _HOUR_S).alias("hour")
    records = {row["hour"]: row["count"] for row in small_rows(events.groupBy(hour).count())}
    distinct = {row["hour"]: row["count"] for row in small_rows(rows.groupBy(hour).count())}
    hours = -(-int((end - start).total_seconds()) // _HOUR_S)
    return tuple(
        HourCount(
            hour_start=start + timedelta(hours=n),
            records=records.get(n, 0),
            duplicates=max(0, records.get(n, 0) - distinct.get(n, 0)),
        )
        for n in range(hours)
    )


def lateness_counts(events: DataFrame, contract: DataContract) -> tuple[LatenessCount, ...]:
    """Return how long after their event time the records of a day were sent: a histogram."""
    late_s = F.col("_kafka_timestamp").cast("double") - F.col(contract.event_time).cast("double")
    bucket: Column = F.lit(len(_BOUNDS) - 1)
    for n, upper in reversed(list(enumerate(_BOUNDS[:-1]))):
        bucket = F.when(late_s < F.lit(upper), n).otherwise(bucket)
    counted = events.groupBy(bucket.alias("bucket")).count()
    counts = {row["bucket"]: row["count"] for row in small_rows(counted)}
    return tuple(
        LatenessCount(lower, upper, counts.get(n, 0))
        for n, (lower, upper) in enumerate(zip((None, *_BOUNDS), _BOUNDS, strict=False))
    )


def quarantine_reasons(
    counts: Mapping[str, int], bad: DataFrame, examples: int, *, values: bool
) -> tuple[QuarantineReason, ...]:
    """Return the broken records by reason, most frequent first, each with its first few in Kafka's order.

    Args:
        counts: How many there are of each reason.
        bad: Some of them, a frame made by `pipelines.records.decode.invalid`.
        examples: How many to keep of each reason.
        values: Whether the records' values may be shown.
    """
    order = Window.partitionBy("_reason").orderBy("_topic", "_partition", "_offset")
    first_records = (
        bad.withColumn("_n", F.row_number().over(order))
        .where(F.col("_n") <= examples)
        .orderBy("_reason", "_n")
    )
    examples_by_reason: dict[str, list[QuarantineExample]] = {}
    preview = (F.substring("value", 1, _PREVIEW_BYTES) if values else F.lit(None)).alias("value")
    for row in small_rows(
        first_records.select(
            "_reason",
            "_topic",
            "_partition",
            "_offset",
            F.expr(SENT).alias("_kafka_timestamp"),
            "_column",
            "_found",
            preview,
        )
    ):
        examples_by_reason.setdefault(row["_reason"], []).append(
            QuarantineExample(
                topic=row["_topic"],
                partition=row["_partition"],
                offset=row["_offset"],
                kafka_timestamp=row["_kafka_timestamp"],
                column=row["_column"],
                found=row["_found"],
                value_preview=row["value"],
            )
        )
    return tuple(
        QuarantineReason(reason=reason, records=records, examples=tuple(examples_by_reason.get(reason, [])))
        for reason, records in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )


def sent_by_day(records: DataFrame, contract: DataContract, first: date, last: date) -> dict[date, int]:
    """Count Kafka records by the day on which they were sent, in the contract's zone; each offset once.

    Args:
        records: Rows with the columns of `pipelines.records.decode.ORIGIN`.
        contract: Names the zone.
        first: The first day.
        last: The last day.
    """
    # None was sent after it was read, so earlier files are left out.
    begin = datetime.combine(first, time(), contract.zone)
    of_days = records.where(F.col("_ingested_at") >= F.lit(begin.astimezone(UTC)))
    day = F.to_date(F.from_utc_timestamp(sent_at(), contract.day_time_zone)).alias("day")
    of_days = of_days.withColumn("day", day).where(F.col("day").between(first, last))
    counted = of_days.groupBy("day").agg(F.count_distinct(*COORDINATES).alias("count"))
    return {row["day"]: row["count"] for row in small_rows(counted)}


def of_day(rows: DataFrame, day: date) -> DataFrame:
    """Return the rows whose event day is the given one."""
    return rows.where(F.col(EVENT_DATE) == F.lit(day))
