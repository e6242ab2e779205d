"""Counts and checksums of bronze and of the layers, each made from the tables alone.

The audit compares them. Nothing here is taken from what the rebuild believes that it wrote.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.contracts.event_days import Span
from pipelines.delta.io import on_days, small_rows
from pipelines.ledger.bronze_index import RecordCounts
from pipelines.records.decode import COORDINATES, EVENT_DATE, ORIGIN, VALID, payload_hash
from pipelines.records.dedup import (
    OTHER_DAY,
    UNDECIDED,
    neighbours,
    order_columns,
    same_event,
    winner_is_minimum,
    winners_on_known_days,
    with_key_columns,
)
from pipelines.records.redaction import text_of
from pipelines.schema_paths import flat
from pipelines.sql import literal, name

_PAYLOAD: Final = "_payload"
_EXACT: Final = "decimal(38,0)"


@dataclass(frozen=True)
class BronzeDay:
    """What bronze says of one event day.

    Attributes:
        records: Valid records of the day.
        other_days: Valid records of all other days.
        rows: Keys whose winner lies on the day: the rows that the batch layer must have.
        conflicts: Of these keys, those with copies of different payloads.
        checksum: Sum of the hashes of the winners' coordinates and payloads.
        undecided: Of these keys, those of which records of further days decide whether they have a row here.
        recurring: A few of these, as far as they may be shown.
    """

    records: int = 0
    other_days: int = 0
    rows: int = 0
    conflicts: int = 0
    checksum: int = 0
    undecided: int = 0
    recurring: tuple[str, ...] = ()


@dataclass(frozen=True)
class BronzeFacts:
    """What bronze says as a whole.

    Attributes:
        total: All records.
        quarantined: Records that break the contract.
        broken: Of the records that were looked at, those that break the contract.
        days: The facts of each event day that was asked for.
    """

    total: int
    quarantined: int
    broken: int
    days: dict[date, BronzeDay] = field(default_factory=dict)


@dataclass(frozen=True)
class BatchDay:
    """What the batch layer holds of one event day.

    Attributes:
        rows: How many rows it has.
        misplaced: How many of them have an event time of another day.
        checksum: The sum of hashes of their coordinates and content.
        key_sum: The sum of hashes of their keys and coordinates, as `key_sums` has it.
    """

    rows: int = 0
    misplaced: int = 0
    checksum: int = 0
    key_sum: int = 0


def audit_columns(rows: DataFrame, contract: DataContract) -> DataFrame:
    """Return what the audit needs of each record, or row: key, event time and day, origin, payload hash.

    Args:
        rows: Records as `decode` gives them, with their validity, or rows of a layer.
        contract: Names the key.
    """
    others = [contract.event_time, *order_columns(contract), EVENT_DATE, *ORIGIN]
    columns = dict.fromkeys([*contract.key_names, *others, *({VALID} & {*rows.columns})])
    return with_key_columns(rows, contract).select(*columns, payload_hash(contract).alias(_PAYLOAD))


def bronze_facts(
    records: DataFrame,
    contract: DataContract,
    span: Span,
    index_counts: RecordCounts,
    examples: int,
) -> BronzeFacts:
    """Count records and, for some days, the rows that the batch layer must have.

    The records of a day are counted twice, here and by the index, and a check compares the two.

    Args:
        records: A frame made by `audit_columns`, of all records of the days that decide on these.
        contract: Names the key.
        span: The days.
        index_counts: What the index knows.
        examples: How many keys to name that recur without end.
    """
    days = span.days
    indexed, quarantined = index_counts
    total = sum(indexed.values()) + quarantined
    valid = records.where(VALID)
    # The columns of a broken record have no meaning, so it has no day.
    day = F.when(F.col(VALID), F.col(EVENT_DATE)).alias(EVENT_DATE)
    counted = records.where(~F.col(VALID) | on_days(days)).groupBy(day).count()
    of_day = {row[EVENT_DATE]: row["count"] for row in small_rows(counted)}
    broken = of_day.pop(None, 0)
    figures = [
        F.count(F.lit(1)).alias("rows"),
        F.count_if(F.col("_conflict")).alias("conflicts"),
        _checksum(F.col(_PAYLOAD)).alias("checksum"),
        *_recurring(contract, examples),
    ]
    won = _winning(valid.where(on_days(span.near)), contract, span).where(on_days(days))
    by_day = {row[EVENT_DATE]: row for row in small_rows(won.groupBy(EVENT_DATE).agg(*figures))}
    facts = {
        day: BronzeDay(
            records=of_day.get(day, 0),
            other_days=total - quarantined - indexed.get(day, 0),
            **_won(by_day[day]) if day in by_day else {},
        )
        for day in days
    }
    return BronzeFacts(total, quarantined, broken, facts)


def _won(figures: Mapping[str, Any]) -> dict[str, Any]:
    counts = {name: figures[name] for name in ("rows", "conflicts", "undecided") if name in figures}
    return counts | {"checksum": int(figures["checksum"]), "recurring": tuple(figures.get("recurring") or ())}


def _recurring(contract: DataContract, examples: int) -> list[Column]:
    """Return aggregates of the keys of a day on which records of further days decide, in bounded memory."""
    if contract.event_time in contract.key:
        return []
    columns = [F.count_if(F.col(UNDECIDED)).alias("undecided")]
    if examples:
        kinds, names = flat(contract.schema), contract.key_names
        parts = zip(contract.key, names, strict=True)
        texts = (
            f"coalesce({text_of(contract, path, kinds[path].dataType, name(key))}, '…')"
            for path, key in parts
        )
        order = f"struct({', '.join(map(name, names))})"
        first_keys = f"min_by(concat_ws(', ', {', '.join(texts)}), {order}, {examples})"
        columns.append(F.expr(f"{first_keys} FILTER (WHERE {UNDECIDED})").alias("recurring"))
    return columns


def _winning(events: DataFrame, contract: DataContract, span: Span) -> DataFrame:
    """Return the winning records, with `_conflict`: whether the copies differ.

    Other code than the rebuild's (`pipelines.records.kept_copies`) finds them, so that a fault of either is
    seen: an aggregate if the event time is in the key, Spark's windows if it is not.
    """
    if contract.event_time not in contract.key:
        copies = neighbours(contract, span.horizon)
        conflict = F.min(_PAYLOAD).over(copies) != F.max(_PAYLOAD).over(copies)
        return winners_on_known_days(
            events.withColumn("_conflict", conflict), contract, span.horizon, span.known_days
        )
    conflict = F.min(_PAYLOAD) != F.max(_PAYLOAD)
    best = F.min if winner_is_minimum(contract) else F.max
    record = best(F.struct(*order_columns(contract), EVENT_DATE, _PAYLOAD))
    winners = events.groupBy(*contract.key_names).agg(record.alias("_best"), conflict.alias("_conflict"))
    return winners.select("_best.*", "_conflict")


def batch_facts(rows: DataFrame, contract: DataContract) -> dict[date, BatchDay]:
    """Count what the batch layer holds, by event day.

    Args:
        rows: A frame made by `audit_columns`, of the layer.
        contract: Names the event time and its zone.
    """
    true_day = F.to_date(F.from_utc_timestamp(F.col(contract.event_time), contract.day_time_zone))
    by_day = rows.groupBy(EVENT_DATE).agg(
        F.count(F.lit(1)).alias("rows"),
        F.count_if(true_day != F.col(EVENT_DATE)).alias("misplaced"),
        _checksum(F.col(_PAYLOAD)).alias("checksum"),
        _key_sum(contract).alias("key_sum"),
    )
    return {
        row[EVENT_DATE]: BatchDay(row["rows"], row["misplaced"], int(row["checksum"]), int(row["key_sum"]))
        for row in small_rows(by_day)
    }


def key_sums(rows: DataFrame, contract: DataContract) -> dict[date, tuple[int, int]]:
    """Count rows, and add up hashes of their keys and coordinates, by event day.

    Layers with equal sums of a day hold the same keys of the same records there, but by a chance of one in
    2^64.

    Args:
        rows: Rows of the speed layer.
        contract: Names the key.
    """
    by_day = with_key_columns(rows, contract).groupBy(EVENT_DATE)
    sums = by_day.agg(F.count(F.lit(1)).alias("rows"), _key_sum(contract).alias("sum"))
    return {row[EVENT_DATE]: (row["rows"], int(row["sum"])) for row in small_rows(sums)}


def doubled_keys(rows: DataFrame, contract: DataContract, horizon: int) -> dict[date, int]:
    """Count, by event day, the rows whose key stands more than once within the horizon."""
    in_order = Window.partitionBy(*contract.key_names).orderBy(EVENT_DATE)
    near = [
        F.coalesce(F.abs(F.datediff(EVENT_DATE, other(EVENT_DATE).over(in_order))) <= horizon, F.lit(False))
        for other in (F.lag, F.lead)
    ]
    keys = with_key_columns(rows, contract).select(*contract.key_names, EVENT_DATE)
    doubled = keys.withColumn("_doubled", near[0] | near[1]).where("_doubled")
    return {row[EVENT_DATE]: row["count"] for row in small_rows(doubled.groupBy(EVENT_DATE).count())}


def records_without_row(
    records: DataFrame, rows: DataFrame, contract: DataContract, horizon: int
) -> DataFrame:
    """Return the records for which no row stands: none of their key within the horizon of them.

    Args:
        records: With the key, as `with_key_columns` gives it, and `_event_date`.
        rows: Likewise.
        contract: Names the key.
        horizon: Over how many neighbouring days, each way, copies of a key are one event.
    """
    names = {key: f"_other_{key}" for key in contract.key_names} | {EVENT_DATE: OTHER_DAY}
    stood = rows.select(*(F.col(column).alias(other) for column, other in names.items()))
    return records.join(stood, same_event(contract, horizon), "left_anti")


def lacking_in_quarantine(records: DataFrame, quarantine: DataFrame) -> int:
    """Return how many Kafka records break the contract and are not in quarantine.

    Args:
        records: A frame made by `audit_columns`.
        quarantine: The rows of the quarantine.
    """
    broken = records.where(~F.col(VALID)).select(*COORDINATES).distinct()
    return broken.join(quarantine.select(*COORDINATES), list(COORDINATES), "left_anti").count()


def distinct_offsets(bronze: DataFrame, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Count the different offsets that bronze holds of some Kafka partitions; it reads the whole of it."""
    pairs = ", ".join(f"({literal(topic)}, {partition})" for topic, partition in partitions)
    of_them = bronze.where(f"(_topic, _partition) IN ({pairs})").groupBy("_topic", "_partition")
    counted = of_them.agg(F.count_distinct("_offset").alias("n"))
    return {(row["_topic"], row["_partition"]): row["n"] for row in small_rows(counted)}


def _key_sum(contract: DataContract) -> Column:
    return F.sum(F.xxhash64(*contract.key_names, *COORDINATES).cast(_EXACT))


def _checksum(payload: Column) -> Column:
    return F.sum(F.xxhash64(*COORDINATES, payload).cast(_EXACT))
