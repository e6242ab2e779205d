"""Counts and checksums of bronze and of the layers, each made from the tables alone.

The audit compares them. Nothing here is taken from what the rebuild believes that it wrote.
"""

from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import reduce
from operator import and_
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipelines.contract import DataContract
from pipelines.decode import EVENT_DATE, ORIGIN, VALID, payload_hash
from pipelines.dedup import neighbours, preference, takes_least, winners
from pipelines.intervals import format_interval
from pipelines.sinks.delta import days_between

_PAYLOAD: Final = "_payload"
_EXACT: Final = "decimal(38,0)"
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True)
class BronzeDay:
    """What bronze says of one event day.

    Attributes:
        records: valid records of the day.
        other_days: valid records of all other days.
        rows: keys whose winner lies on the day: the rows that the batch layer must have.
        conflicts: of these keys, those with copies of different payloads.
        checksum: sum of the hashes of the winners' coordinates and payloads.
    """

    records: int = 0
    other_days: int = 0
    rows: int = 0
    conflicts: int = 0
    checksum: int = 0


@dataclass(frozen=True)
class BronzeFacts:
    """What bronze says as a whole.

    Attributes:
        total: all records.
        quarantined: records that break the contract.
        days: the facts of each event day that was asked for.
    """

    total: int
    quarantined: int
    days: dict[date, BronzeDay] = field(default_factory=dict)


@dataclass(frozen=True)
class LayerDay:
    """What one layer holds of one event day: rows, rows of another day, and the checksum of its rows."""

    rows: int = 0
    misplaced: int = 0
    checksum: int = 0


@dataclass(frozen=True)
class LayerDifference:
    """How speed and batch layer differ on one event day, in keys.

    Attributes:
        other_copy: both have the key, from different records.
        late: only the batch layer has it, and a record behind the watermark explains that.
        quarantined: only the batch layer has it: the record was in quarantine under an earlier contract.
        pending: only the batch layer has it, and the speed layer has not come that far.
        missing: only the batch layer has it, and nothing explains it.
        extra: only the speed layer has it.
    """

    other_copy: int = 0
    late: int = 0
    quarantined: int = 0
    pending: int = 0
    missing: int = 0
    extra: int = 0


@dataclass(frozen=True)
class Limits:
    """What bounds a comparison of the layers: the days, the dedup horizon in days, the watermark's delay."""

    first: date
    last: date
    horizon: int
    delay: timedelta


def slim(decoded: DataFrame, contract: DataContract) -> DataFrame:
    """What the audit needs of each record: key, event time and day, origin, payload hash, validity."""
    columns = dict.fromkeys([*contract.key, contract.event_time, *preference(contract), EVENT_DATE, *ORIGIN])
    return decoded.select(*columns, payload_hash(contract).alias(_PAYLOAD), VALID)


def bronze_facts(
    records: DataFrame, contract: DataContract, first: date, last: date, horizon: int
) -> BronzeFacts:
    """Counts records and, for a range of days, the rows that the batch layer must have.

    Args:
        records: a frame made by `slim`, of all of bronze.
        contract: names the key.
        first: the first day.
        last: the last day.
        horizon: over how many neighbouring days copies of a key are one event.
    """
    in_range = F.col(VALID) & days_between(first, last)
    counted = records.groupBy(VALID, F.when(in_range, F.col(EVENT_DATE)).alias("_day")).count()
    total = quarantined = 0
    of_day: dict[date | None, int] = {}
    for row in small_rows(counted):
        total += row["count"]
        if row[VALID]:
            of_day[row["_day"]] = row["count"]
        else:
            quarantined += row["count"]
    near = records.where(F.col(VALID) & days_between(first - horizon * _DAY, last + horizon * _DAY))
    by_day = (
        _winning(near, contract, horizon)
        .where(days_between(first, last))
        .groupBy(EVENT_DATE)
        .agg(
            F.count(F.lit(1)).alias("rows"),
            F.count_if(F.col("_conflict")).alias("conflicts"),
            _checksum(F.col(_PAYLOAD)).alias("checksum"),
        )
    )
    won = {row[EVENT_DATE]: row for row in small_rows(by_day)}
    nothing = {"rows": 0, "conflicts": 0, "checksum": 0}
    days = {
        day: BronzeDay(
            records=of_day.get(day, 0),
            other_days=sum(n for other, n in of_day.items() if other != day),
            rows=won.get(day, nothing)["rows"],
            conflicts=won.get(day, nothing)["conflicts"],
            checksum=int(won.get(day, nothing)["checksum"]),
        )
        for day in days_of(first, last)
    }
    return BronzeFacts(total, quarantined, days)


def _winning(events: DataFrame, contract: DataContract, horizon: int) -> DataFrame:
    """The winning records, with `_conflict`: whether the copies differ.

    Where a key has but one day, they are found by other means than the rebuild's, so that a fault of
    either is seen.
    """
    if contract.event_time not in contract.key:
        copies = neighbours(contract, horizon)
        conflict = F.min(_PAYLOAD).over(copies) != F.max(_PAYLOAD).over(copies)
        return winners(events.withColumn("_conflict", conflict), contract, horizon)
    conflict = F.min(_PAYLOAD) != F.max(_PAYLOAD)
    best = F.min if takes_least(contract) else F.max
    record = best(F.struct(*preference(contract), EVENT_DATE, _PAYLOAD))
    found = events.groupBy(*contract.key).agg(record.alias("_best"), conflict.alias("_conflict"))
    return found.select("_best.*", "_conflict")


def layer_facts(rows: DataFrame, contract: DataContract) -> dict[date, LayerDay]:
    """Counts what a layer holds, by event day.

    Args:
        rows: rows of the speed or the batch layer.
        contract: names the event time and its zone.
    """
    true_day = F.to_date(F.from_utc_timestamp(F.col(contract.event_time), contract.day_time_zone))
    by_day = rows.groupBy(EVENT_DATE).agg(
        F.count(F.lit(1)).alias("rows"),
        F.count_if(true_day != F.col(EVENT_DATE)).alias("misplaced"),
        _checksum(payload_hash(contract)).alias("checksum"),
    )
    return {
        row[EVENT_DATE]: LayerDay(row["rows"], row["misplaced"], int(row["checksum"]))
        for row in small_rows(by_day)
    }


def doubled_keys(rows: DataFrame, contract: DataContract, horizon: int) -> dict[date, int]:
    """Counts, by event day, the rows whose key stands more than once within the horizon."""
    copies = F.count(F.lit(1)).over(neighbours(contract, horizon))
    doubled = rows.select(*contract.key, EVENT_DATE).withColumn("_copies", copies).where("_copies > 1")
    return {row[EVENT_DATE]: row["count"] for row in small_rows(doubled.groupBy(EVENT_DATE).count())}


def lacking_in_quarantine(records: DataFrame, quarantine: DataFrame) -> int:
    """How many Kafka records break the contract and do not stand in quarantine.

    Args:
        records: a frame made by `slim`, of all of bronze.
        quarantine: the rows of the quarantine.
    """
    coordinates = ["_topic", "_partition", "_offset"]
    broken = records.where(~F.col(VALID)).select(coordinates).distinct()
    return broken.join(quarantine.select(coordinates), coordinates, "left_anti").count()


def offset_ranges(bronze: DataFrame) -> list[dict[str, Any]]:
    """For each Kafka partition: `topic, partition, first, last, records, distinct` of bronze's offsets."""
    ranges = bronze.groupBy(F.col("_topic").alias("topic"), F.col("_partition").alias("partition")).agg(
        F.min("_offset").alias("first"),
        F.max("_offset").alias("last"),
        F.count(F.lit(1)).alias("records"),
        F.count_distinct("_offset").alias("distinct"),
    )
    return small_rows(ranges.orderBy("topic", "partition"))


def known_by(rows: DataFrame, records: DataFrame) -> DataFrame:
    """The rows whose records were ingested no later than the newest of `records`."""
    newest = records.agg(F.max("_ingested_at").alias("_newest"))
    return rows.crossJoin(F.broadcast(newest)).where("_ingested_at <= _newest").drop("_newest")


def layer_differences(
    speed: DataFrame,
    batch: DataFrame,
    records: DataFrame,
    quarantine: DataFrame,
    contract: DataContract,
    limits: Limits,
) -> dict[date, LayerDifference]:
    """Compares the layers by key and explains each difference.

    A row is late if a record that was ingested with it or before it had an event time that puts the
    watermark (newest event time - delay) at or past the row's own. That is the latest the speed layer's
    watermark can have been, so it never excuses a row that the watermark let through.

    Args:
        speed: the whole speed layer, as far as it knows no more than `records`.
        batch: the batch layer's rows of the days in question and of their neighbours.
        records: a frame made by `slim`, of all of bronze.
        quarantine: the rows of the quarantine.
        contract: names the key and the event time.
        limits: the days in question, the horizon and the watermark's delay.
    """
    event_time = contract.event_time
    by_ingest = records.where(VALID).groupBy("_ingested_at").agg(F.max(event_time).alias("_newest"))
    so_far = Window.orderBy("_ingested_at").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    delay = F.expr(f"INTERVAL {format_interval(limits.delay)}")
    watermarks = by_ingest.select("_ingested_at", (F.max("_newest").over(so_far) - delay).alias("_watermark"))
    reached = speed.agg(F.max("_ingested_at").alias("_reached"))
    here = batch.select(*contract.key, event_time, EVENT_DATE, "_ingested_at", _coordinates().alias("_b"))
    there = speed.where(days_between(limits.first, limits.last)).select(
        *(F.col(name).alias(f"_s_{name}") for name in contract.key),
        F.col(EVENT_DATE).alias("_s_day"),
        _coordinates().alias("_s"),
    )
    same = reduce(and_, (F.col(name) == F.col(f"_s_{name}") for name in contract.key))
    near = F.abs(F.datediff(EVENT_DATE, "_s_day")) <= F.lit(limits.horizon)
    both = here.join(there, same & near, "full_outer").join(F.broadcast(watermarks), "_ingested_at", "left")
    both = both.crossJoin(F.broadcast(reached))
    kept_out = quarantine.select(_coordinates().alias("_q")).distinct()
    both = both.join(kept_out, F.col("_s").isNull() & (F.col("_b") == F.col("_q")), "left")
    only_batch = F.col("_s").isNull()
    late = only_batch & (F.col(event_time) <= F.col("_watermark"))
    pending = only_batch & F.coalesce(F.col("_ingested_at") >= F.col("_reached"), F.lit(True))
    verdict = (
        F.when(F.col("_b").isNull(), "extra")
        .when(late, "late")
        .when(only_batch & F.col("_q").isNotNull(), "quarantined")
        .when(pending, "pending")
        .when(only_batch, "missing")
        .when(F.col("_b") != F.col("_s"), "other_copy")
    )
    day = F.coalesce(F.col(EVENT_DATE), F.col("_s_day")).alias("_day")
    counted = both.select(day, verdict.alias("_verdict")).where("_verdict IS NOT NULL")
    found: dict[date, dict[str, int]] = {}
    for row in small_rows(counted.groupBy("_day", "_verdict").count()):
        found.setdefault(row["_day"], {})[row["_verdict"]] = row["count"]
    return {day: LayerDifference(**counts) for day, counts in found.items()}


def days_of(first: date, last: date) -> list[date]:
    """All days from the first to the last."""
    return [first + n * _DAY for n in range((last - first).days + 1)]


def _coordinates() -> Column:
    return F.struct("_topic", "_partition", "_offset")


def _checksum(payload: Column) -> Column:
    return F.sum(F.xxhash64("_topic", "_partition", "_offset", payload).cast(_EXACT))


def small_rows(aggregated: DataFrame) -> list[dict[str, Any]]:
    """The rows of a small, aggregated frame."""
    return list(aggregated.toArrow().to_pylist())
