"""What the tables say of every record of a dedup key: frames in, one row for each record out."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from pipelines.contracts.contract import DataContract
from pipelines.delta.io import small_rows
from pipelines.formats.registered_formats import format_of
from pipelines.ledger.forgotten import is_emptied, with_event_time
from pipelines.lineage.key_filter import AskedPart
from pipelines.records.decode import COORDINATES, ERROR, EVENT_DATE, ORIGIN, VALID
from pipelines.records.dedup import KAFKA_ORDER, kept_copies_sql, neighbours, order_columns
from pipelines.records.fingerprints import fingerprint
from pipelines.records.redaction import leaves, text_of
from pipelines.records.watermark import clock, moved_by, watermarks
from pipelines.registry.wire_format import WireFormat
from pipelines.schema_paths import flat
from pipelines.sql import literal, moment, name

RECORD: Final = "_record"
_RECORDS: Final = "_records"
_NEWEST: Final = "_newest"
_HASHES: Final = "_hashes"
_PARTS: Final = "_parts"
_HERE: Final = "_here"


@dataclass(frozen=True)
class LayerRows:
    """What the layers hold of a key, by coordinates.

    Attributes:
        speed: Rows of the speed layer.
        batch: Rows of the batch layer at the certified version.
        quarantine: Rows of the quarantine, of whatever key.
        reached: One row, `_reached`: the ingestion of the newest record in the speed layer, or null.
        certified: An SQL condition on `_event_date`: whether the day is certified.
    """

    speed: DataFrame
    batch: DataFrame
    quarantine: DataFrame
    reached: DataFrame
    certified: str


def records_and_watermarks(
    decoded: DataFrame,
    contract: DataContract,
    key_parts: Sequence[AskedPart],
    by_clock: datetime,
    wire_format: WireFormat,
) -> DataFrame:
    """Return all that is needed of bronze, in one pass: records of the key, and what moved the watermark.

    Args:
        decoded: A bounded frame made by `pipelines.records.decode.decode`, of all of bronze.
        contract: Names the key and the event time.
        key_parts: The parts of the key that are asked for; a broken record is found if they can be
            read in it.
        by_clock: From which ingestion on the clock moved it, see `pipelines.records.watermark.moved_by`.
        wire_format: How values name their schemas.

    Returns:
        One row for each record of the key, with `_record struct`, and one for each micro-batch of ingest,
        where `_record` is null; both with `_ingested_at`, `_newest timestamp` (to where the valid ones move
        the watermark's clock) and `_records bigint`, how many they are.
    """
    decoded, emptied = with_event_time(decoded, contract.event_time), is_emptied(decoded)
    kinds = flat(contract.schema)
    parts = zip(contract.key_names, contract.key, strict=True)
    read = [(f"_asked_{n}", key, path) for n, (key, path) in enumerate(parts)]
    document = _Document(
        format_of(contract).text(wire_format), sends_shortest=format_of(contract).has_shortest_doubles
    )
    keys = (_readable(document, path, kinds[path].dataType).alias(column) for column, _, path in read)
    column_of = {path: column for column, _, path in read}
    condition = " AND ".join(part.holds(contract, column_of[part.path]) for part in key_parts)
    columns = {key: column for column, key, _ in read}
    for column in (contract.event_time, *order_columns(contract), EVENT_DATE, *ORIGIN, VALID, ERROR):
        columns.setdefault(column, name(column))
    texts = ", ".join(text_of(contract, path, kinds[path].dataType, column) for column, _, path in read)
    hashes = ", ".join(fingerprint(name(path), kind) for path, kind in leaves(contract.schema))
    columns |= {_PARTS: f"array({texts})", _HASHES: f"array({hashes})"}
    record = ", ".join(f"{literal(column)}, {value}" for column, value in columns.items())
    moved = moved_by(by_clock, "_ingested_at", name(contract.event_time), clock(contract))
    return (
        decoded.select("*", *keys)
        .selectExpr(
            "_ingested_at",
            f"CASE WHEN NOT ({emptied}) AND {condition} THEN named_struct({record}) END AS {RECORD}",
            f"CASE WHEN {VALID} OR {emptied} THEN {moved} END AS {_NEWEST}",
        )
        .groupBy("_ingested_at", RECORD)
        .agg(F.expr(f"max({_NEWEST}) AS {_NEWEST}"), F.expr(f"count(*) AS {_RECORDS}"))
    )


def records_of(bronze: DataFrame) -> DataFrame:
    """Return the records of the key, of a frame made by `records_and_watermarks`."""
    return bronze.where(f"{RECORD} IS NOT NULL").select(f"{RECORD}.*")


def totals(bronze: DataFrame, contract: DataContract) -> tuple[int, int]:
    """Return how many records and how many of the keys asked for a frame of `records_and_watermarks` has."""
    keys = ", ".join(f"{RECORD}.{name(key)}" for key in contract.key_names)
    sums = bronze.selectExpr(
        f"coalesce(sum({_RECORDS}), 0) AS total",
        f"count(DISTINCT CASE WHEN {RECORD} IS NOT NULL THEN struct({keys}) END) AS keys",
    )
    (row,) = small_rows(sums)
    return row["total"], row["keys"]


def first_keys(records: DataFrame, contract: DataContract, limit: int) -> DataFrame:
    """Return the records of the first keys, in the order of the key; parts that cannot be read come last."""
    names = contract.key_names
    order = [F.col(key).asc_nulls_last() for key in names]
    keys = records.select(*names).distinct().orderBy(*order).limit(limit)
    wanted = keys.withColumnsRenamed({key: f"_wanted_{key}" for key in names})
    same = [F.col(key).eqNullSafe(F.col(f"_wanted_{key}")) for key in names]
    return records.join(F.broadcast(wanted), same, "left_semi")


class TraceLimits(NamedTuple):
    """What copies of a key are one event, and what is late.

    Attributes:
        horizon_days: Copies are, if their event days are at most this many days apart.
        watermark_delay: A record is, if its event time is behind the newest one by more.
    """

    horizon_days: int
    watermark_delay: timedelta


def traced(
    records: DataFrame,
    bronze: DataFrame,
    layers: LayerRows,
    contract: DataContract,
    limits: TraceLimits,
) -> DataFrame:
    """Return what the tables say of each record, as `pipelines.lineage.outcome` reads it.

    Args:
        records: Records of whole keys, as `records_of` gives them.
        bronze: The frame that they come from.
        layers: What the layers hold of these keys.
        contract: Names the key, says which copy wins and what may be shown.
        limits: What copies of a key are one event, and what is late.

    Returns:
        One row for each record, in the order of the key and, within it, of Kafka.
    """
    by_ingest = bronze.groupBy("_ingested_at").agg(F.max(_NEWEST).alias(_NEWEST))
    marked = records.join(watermarks(by_ingest, limits.watermark_delay), "_ingested_at", "left")
    marked = marked.crossJoin(F.broadcast(layers.reached))
    marked = _held_by(marked, layers.speed, "_in_speed")
    marked = _held_by(marked, layers.batch, "_in_batch")
    marked = marked.join(_quarantined(layers.quarantine, records), list(COORDINATES), "left")
    near, of_key = neighbours(contract, limits.horizon_days), Window.partitionBy(*contract.key_names)
    order = F.struct(*order_columns(contract), _HASHES)
    day = F.unix_date(EVENT_DATE).alias("day")
    copy = F.struct(order.alias("o"), _HERE, _HASHES, day, F.lit(False).alias("edge"))
    winners = f"({kept_copies_sql('_copies', contract, limits.horizon_days)}).kept"
    stands = (
        f"get(filter({winners}, _k -> abs(_k.day - unix_date({EVENT_DATE})) <= {limits.horizon_days}), 0)"
    )
    again = Window.partitionBy(*COORDINATES, _HASHES).orderBy("_ingested_at")
    placed = marked.withColumn(_HERE, F.expr(f"struct({', '.join(COORDINATES)})"))
    compared = placed.withColumn("_copies", F.collect_list(F.when(F.col(VALID), copy)).over(of_key))
    judged = compared.withColumns(
        {
            "_best": F.expr(stands),
            "_order": order,
            "_speed_copy": F.min(F.when(F.col("_in_speed"), F.col(_HERE))).over(near),
            "_key_in_speed": F.min(F.when(F.col("_in_speed"), F.col(_HERE))).over(of_key),
            "_reading": F.row_number().over(again),
            "_certified": F.expr(f"coalesce({layers.certified}, false)"),
        }
    )
    keys = [F.col(key).asc_nulls_last() for key in contract.key_names]
    return judged.orderBy(*keys, *KAFKA_ORDER, "_ingested_at").selectExpr(*_facts(contract))


def _facts(contract: DataContract) -> list[str]:
    event_time = name(contract.event_time)
    shown = [n for n, (path, _) in enumerate(leaves(contract.schema)) if contract.treatment(path) != "drop"]
    hashes = ", ".join(f"{_HASHES}[{n}]" for n in shown)
    return [
        f"{_PARTS} AS key",
        *(f"{column} AS {column.removeprefix('_')}" for column in COORDINATES),
        f"{moment('_kafka_timestamp')} AS kafka_timestamp",
        f"{moment('_ingested_at')} AS ingested_at",
        f"CASE WHEN {VALID} THEN {moment(event_time)} END AS event_time",
        f"CASE WHEN {VALID} THEN CAST({EVENT_DATE} AS STRING) END AS event_day",
        f"CASE WHEN {VALID} THEN lpad(lower(hex(xxhash64({hashes or 'NULL'}))), 16, '0') END AS payload",
        f"{VALID} AS valid",
        f"{ERROR}.reason AS reason",
        f"{ERROR}.column AS column",
        "_in_speed AS in_speed",
        "_in_batch AS in_batch",
        "_quarantined_as AS quarantined_as",
        "_certified AS certified",
        "_reading AS reading",
        f"coalesce({VALID} AND _best.o <=> _order, false) AS best",
        f"_best.{_HERE} AS winner",
        f"filter(sequence(0, size({_HASHES}) - 1), _n -> {_HASHES}[_n] <> _best.{_HASHES}[_n]) AS differing",
        "_speed_copy AS speed_copy",
        "_key_in_speed AS key_in_speed",
        f"{moment('_watermark')} AS watermark",
        f"coalesce({VALID} AND {event_time} <= _watermark, false) AS behind",
        "coalesce(_ingested_at >= _reached, true) AS beyond",
        "coalesce(_ingested_at > _reached, true) AS unread",
    ]


class _Document(NamedTuple):
    """What a record has as its value.

    Attributes:
        text: SQL for its JSON text; None if values are no text.
        sends_shortest: See `ValueFormat.has_shortest_doubles`.
    """

    text: str | None
    sends_shortest: bool


def _readable(document: _Document, path: str, kind: DataType) -> Column:
    """Return a part of the key, also of a broken record, as far as it can be read in the document.

    It is null where the type would round it: the rounded value is the key of another event.
    """
    if document.text is None:
        return F.col(name(path))
    sent = _sent(document, document.text, path, kind).try_cast(kind)
    return F.when(F.col(VALID), F.col(name(path))).otherwise(F.coalesce(F.col(name(path)), sent))


def _sent(document: _Document, text: str, path: str, kind: DataType) -> Column:
    """Return a value as it was sent; null where the type does not hold exactly it."""
    jvm: Any = SparkContext._jvm
    column = jvm.oncelake.decode.SentValue.of(F.expr(text)._jc, path, kind.json(), document.sends_shortest)
    return Column(column)


def _held_by(records: DataFrame, layer: DataFrame, flag: str) -> DataFrame:
    in_layer = layer.select(*COORDINATES).distinct().withColumn(flag, F.lit(True))
    joined = records.join(in_layer, list(COORDINATES), "left")
    return joined.withColumn(flag, F.coalesce(flag, F.lit(False)))


def _quarantined(quarantine: DataFrame, records: DataFrame) -> DataFrame:
    """Return, for each record in quarantine, what was last written down of it."""
    places = records.select(*COORDINATES).distinct()
    fate = ("_status", "_reason", "_column", "_contract_version")
    last = F.expr(f"max_by(struct({', '.join(fate)}), _tried_at) AS _quarantined_as")
    return quarantine.join(places, list(COORDINATES), "left_semi").groupBy(*COORDINATES).agg(last)
