"""Counts and checksums of bronze and of the layers, each made from the tables alone.

The audit compares them. Nothing here is taken from what the rebuild believes that it wrote.
"""

from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.contract import DataContract
from pipelines.decode import COORDINATES, EVENT_DATE, ORIGIN, VALID, payload_hash
from pipelines.dedup import neighbours, preference, takes_least, winners, with_key
from pipelines.sinks.delta import days_between, small_rows

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


def slim(decoded: DataFrame, contract: DataContract) -> DataFrame:
    """What the audit needs of each record: key, event time and day, origin, payload hash, validity."""
    others = [contract.event_time, *preference(contract), EVENT_DATE, *ORIGIN]
    columns = dict.fromkeys([*contract.key_names, *others])
    return with_key(decoded, contract).select(*columns, payload_hash(contract).alias(_PAYLOAD), VALID)


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
    found = events.groupBy(*contract.key_names).agg(record.alias("_best"), conflict.alias("_conflict"))
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
    keys = with_key(rows, contract).select(*contract.key_names, EVENT_DATE)
    doubled = keys.withColumn("_copies", copies).where("_copies > 1")
    return {row[EVENT_DATE]: row["count"] for row in small_rows(doubled.groupBy(EVENT_DATE).count())}


def lacking_in_quarantine(records: DataFrame, quarantine: DataFrame) -> int:
    """How many Kafka records break the contract and do not stand in quarantine.

    Args:
        records: a frame made by `slim`, of all of bronze.
        quarantine: the rows of the quarantine.
    """
    broken = records.where(~F.col(VALID)).select(*COORDINATES).distinct()
    return broken.join(quarantine.select(*COORDINATES), list(COORDINATES), "left_anti").count()


def offset_ranges(bronze: DataFrame) -> list[dict[str, Any]]:
    """For each Kafka partition: `topic, partition, first, last, records, distinct` of bronze's offsets."""
    ranges = bronze.groupBy(F.col("_topic").alias("topic"), F.col("_partition").alias("partition")).agg(
        F.min("_offset").alias("first"),
        F.max("_offset").alias("last"),
        F.count(F.lit(1)).alias("records"),
        F.count_distinct("_offset").alias("distinct"),
    )
    return small_rows(ranges.orderBy("topic", "partition"))


def days_of(first: date, last: date) -> list[date]:
    """All days from the first to the last."""
    return [first + n * _DAY for n in range((last - first).days + 1)]


def _checksum(payload: Column) -> Column:
    return F.sum(F.xxhash64(*COORDINATES, payload).cast(_EXACT))
