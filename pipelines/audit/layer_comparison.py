"""How the speed and the batch layer differ, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.contracts.event_days import around
from pipelines.delta.conditions import days_condition
from pipelines.delta.io import on_days, small_rows
from pipelines.ledger.layer_samples import Difference, Explanations, LayerDifference, LayerSample
from pipelines.records.decode import COORDINATES, EVENT_DATE
from pipelines.records.dedup import OTHER_DAY, right_side_columns, same_event, with_key_columns
from pipelines.records.redaction import shown_value, text_of
from pipelines.records.watermark import watermarks
from pipelines.schema_paths import flat
from pipelines.sql import literal, moment, name


def sample_aggregate(contract: DataContract, number: int) -> Column:
    """Return an aggregate: the first samples by coordinates, in bounded memory (`ledger.ops_tables.SAMPLE`).

    Args:
        contract: Names the key, and says what may be shown of it.
        number: How many; 1 at least.
    """
    kinds = flat(contract.schema)
    parts = []
    for key, path in zip(contract.key_names, contract.key, strict=True):
        either = f"coalesce({name(key)}, {name(f'_other_{key}')})"
        value = text_of(contract, path, kinds[path].dataType, either)
        parts.append(f"named_struct('column', {literal(path)}, 'value', {value})")
    fields = {
        "key": f"array({', '.join(parts)})",
        "batch": _place("_b"),
        "speed": _place("_s"),
        "event_time": shown_value(contract, contract.event_time, moment(name(contract.event_time)))
        or "CAST(NULL AS STRING)",
        "ingested_at": moment("_ingested_at"),
        "watermark": moment("_watermark"),
    }
    sample = ", ".join(f"'{field}', {value}" for field, value in fields.items())
    return F.expr(f"min_by(named_struct({sample}), coalesce(_b, _s), {number})")


def _place(side: str) -> str:
    parts = ", ".join(f"'{column.removeprefix('_')}', {side}.{column}" for column in COORDINATES)
    return f"CASE WHEN {side} IS NOT NULL THEN named_struct({parts}) END"


@dataclass(frozen=True)
class ComparisonLimits:
    """What bounds a comparison of the layers.

    Attributes:
        days: The days in question, sorted.
        horizon: Over how many neighbouring days copies of a key are one event.
        delay: How far the watermark stays behind what moves it.
        since: No row of the batch layer that is compared was ingested before this moment.
        examples: How many samples to keep of each difference on each day.
    """

    days: Sequence[date]
    horizon: int
    delay: timedelta
    since: datetime
    examples: int = 0


@dataclass(frozen=True)
class Layers:
    """What is compared, and what explains differences.

    Attributes:
        speed: The whole speed layer, as far as it was read from the audited version of bronze.
        batch: The batch layer's rows of the days in question and of their neighbours.
        of_uncertified_days: `_event_date` and the key, as `with_key_columns` gives it, of valid records of
            uncertified neighbouring days; None where copies of a key lie on one day.
        quarantine: The rows of the quarantine.
        newest_events: What moved the watermark, as `watermarks` takes it.
    """

    speed: DataFrame
    batch: DataFrame
    of_uncertified_days: DataFrame | None
    quarantine: DataFrame
    newest_events: DataFrame


def layer_differences(
    layers: Layers, contract: DataContract, limits: ComparisonLimits
) -> dict[date, LayerDifference]:
    """Compare the layers by key and explain each difference.

    A row is late if records that were ingested with it or before it put the watermark at or past its event
    time, see `pipelines.records.watermark.watermarks`. That is the latest that the speed layer's watermark
    can have been, so it never excuses a row that the watermark let through.

    Args:
        layers: The layers.
        contract: Names the key and the event time.
        limits: The days in question, and what else bounds the comparison.
    """
    reached = layers.speed.where(F.col("_ingested_at") >= F.lit(limits.since)).agg(
        F.max("_ingested_at").alias("_reached")
    )
    batch = with_key_columns(layers.batch, contract).select(
        *contract.key_names, contract.event_time, EVENT_DATE, "_ingested_at", _coordinates().alias("_b")
    )
    near = layers.speed.where(on_days(around(limits.days, limits.horizon)))
    speed = near.select(*right_side_columns(contract), _coordinates().alias("_s"))
    speed = _with_elsewhere(speed, layers.of_uncertified_days, contract, limits.horizon)
    both = batch.join(speed, same_event(contract, limits.horizon), "full_outer")
    # Not broadcast: there are as many as micro-batches since the first record of the days.
    behind = watermarks(layers.newest_events, limits.delay)
    both = both.join(behind, "_ingested_at", "left").crossJoin(F.broadcast(reached))
    quarantined = layers.quarantine.select(_coordinates().alias("_q")).distinct()
    both = both.join(quarantined, F.col("_s").isNull() & (F.col("_b") == F.col("_q")), "left")
    both = _with_remembered(both, layers.speed, contract)
    verdict = _verdict(contract.event_time)
    day = F.coalesce(F.col(EVENT_DATE), F.col(OTHER_DAY)).alias("_day")
    aggregates = [F.count(F.lit(1)).alias("_count")]
    if limits.examples:
        # In the same aggregation, as the comparison is dear.
        aggregates.append(sample_aggregate(contract, limits.examples).alias("_samples"))
    by_class = both.where(verdict.isNotNull()).groupBy(day, verdict.alias("_verdict")).agg(*aggregates)
    return _by_day(by_class.where(days_condition(limits.days, "_day")))


def _verdict(event_time: str) -> Column:
    """Return what a pair of rows, one of each layer, says: the first explanation that holds.

    Null if they agree.
    """
    only_batch = F.col("_s").isNull()
    explanations = Explanations(
        late=F.col(event_time) <= F.col("_watermark"),
        quarantined=F.col("_q").isNotNull(),
        pending=F.coalesce(F.col("_ingested_at") >= F.col("_reached"), F.lit(True)),
        remembered=F.col("_remembered"),
    )
    cases: list[tuple[Difference, Column]] = [
        ("other_copy", F.col("_b").isNull() & F.col("_elsewhere")),
        ("extra", F.col("_b").isNull()),
        *((kind, only_batch & holds) for kind, holds in explanations.by_precedence()),
        ("missing", only_batch),
        ("other_copy", F.col("_b") != F.col("_s")),
    ]
    return F.coalesce(*(F.when(holds, kind) for kind, holds in cases))


def _by_day(by_class: DataFrame) -> dict[date, LayerDifference]:
    counts_by_day: dict[date, dict[str, int]] = {}
    samples: dict[date, list[LayerSample]] = {}
    for row in sorted(small_rows(by_class), key=lambda row: str(row["_verdict"])):
        counts_by_day.setdefault(row["_day"], {})[row["_verdict"]] = row["_count"]
        of_day = samples.setdefault(row["_day"], [])
        of_day += [LayerSample(row["_verdict"], **each) for each in row.get("_samples", ())]
    return {
        day: LayerDifference(**counts, samples=tuple(samples[day])) for day, counts in counts_by_day.items()
    }


def _with_elsewhere(
    speed: DataFrame, of_uncertified_days: DataFrame | None, contract: DataContract, horizon: int
) -> DataFrame:
    """Add `_elsewhere`: true where a copy of the event lies on an uncertified neighbouring day."""
    if of_uncertified_days is None:
        return speed.withColumn("_elsewhere", F.lit(False))
    copies = speed.join(of_uncertified_days, same_event(contract, horizon), "left_semi")
    marked = copies.select("_s", F.lit(True).alias("_elsewhere")).distinct()
    return speed.join(marked, "_s", "left")


def _with_remembered(both: DataFrame, speed: DataFrame, contract: DataContract) -> DataFrame:
    """Add `_remembered`: true where the speed layer has an event of the batch layer's key, on whatever day.

    The state drops a record whose key it holds, however far away its event time is. When the speed layer
    read a record is not known, so neither is whether its state still held the key: this is the most that it
    can have held.
    """
    if contract.event_time in contract.key:
        return both.withColumn("_remembered", F.lit(False))
    keys = with_key_columns(speed, contract).select(*contract.key_names).distinct()
    keys = keys.withColumn("_remembered", F.lit(True))
    return both.join(keys, list(contract.key_names), "left").withColumn(
        "_remembered", F.coalesce("_remembered", F.lit(False))
    )


def _coordinates() -> Column:
    return F.struct(*COORDINATES)
