"""Explain: every record of a dedup key, and what became of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from pipelines.delta.conditions import days_condition
from pipelines.delta.event_tables import by_clock_since, events_schema
from pipelines.delta.io import small_rows
from pipelines.delta.record_tables import QUARANTINE, require_table
from pipelines.delta.small_tables import read_small
from pipelines.delta.tables import exists, shape, small_frame, version
from pipelines.formats.registered_formats import wire_format_of
from pipelines.ledger.certifications import certified
from pipelines.ledger.decoding import decode_all
from pipelines.lineage import trace
from pipelines.lineage.key_filter import AskedPart, of_key
from pipelines.lineage.outcome import Facts, Outcome, fate
from pipelines.lineage.searches import Searched
from pipelines.spark.pipeline import Pipeline

MOST_RECORDS: Final = 10_000
"""Records that are explained at most."""


class ExplainedRecord(NamedTuple):
    """A record of bronze: what the tables say of it, and what became of it."""

    facts: Facts
    fate: Outcome


@dataclass(frozen=True)
class Explained:
    """What was found of a key.

    Attributes:
        searched: The records of bronze among which the key was looked for.
        keys: How many keys match, shown or not.
        records: The records of the first keys, in Kafka's order.
        is_whole: Whether these are all records of the keys that are shown.
    """

    searched: Searched
    keys: int
    records: tuple[ExplainedRecord, ...]
    is_whole: bool


def explain(
    pipeline: Pipeline,
    key: Sequence[AskedPart],
    limit: int,
) -> Explained:
    """Look for the records of a key in bronze and in all layers, and say what became of each.

    Bronze is read and decoded once, whole, as no index leads from a key to its records.

    Args:
        pipeline: The pipeline.
        key: The key, or some parts of it.
        limit: How many keys to show where only some parts are given.

    Raises:
        SourceError: There is no bronze.
    """
    contract = pipeline.contract
    table = require_table(pipeline, "bronze")
    at = version(pipeline.spark, table)
    decoded = decode_all(pipeline, read_small(pipeline.spark, table, at))
    by_clock, wire_format = by_clock_since(pipeline), wire_format_of(pipeline.config, contract)
    bronze = trace.records_and_watermarks(decoded, contract, key, by_clock, wire_format).persist(
        StorageLevel.MEMORY_AND_DISK
    )
    try:
        records = trace.records_of(bronze)
        total, keys = trace.totals(bronze, contract)
        layers = _layers(pipeline, key)
        shown = trace.first_keys(records, contract, limit) if keys > limit else records
        limits = trace.TraceLimits(pipeline.horizon, pipeline.config.speed.watermark_delay)
        rows = small_rows(trace.traced(shown, bronze, layers, contract, limits).limit(MOST_RECORDS + 1))
    finally:
        bronze.unpersist()
    facts = [Facts(**row) for row in rows[:MOST_RECORDS]]
    return Explained(
        searched=Searched(total, table, at),
        keys=keys,
        records=tuple(ExplainedRecord(each, fate(each, contract)) for each in facts),
        is_whole=len(rows) <= MOST_RECORDS,
    )


def _layers(pipeline: Pipeline, key: Sequence[AskedPart]) -> trace.LayerRows:
    spark = pipeline.spark
    state = certified(pipeline)
    days = state.days if state else ()
    is_certified = f"({days_condition(days)})" if days else "false"
    nothing = small_frame(spark, [], events_schema(pipeline.contract))
    speed = read_small(spark, pipeline.table("speed")) if exists(spark, pipeline.table("speed")) else nothing
    batch = read_small(spark, pipeline.table("batch"), state.version) if state else nothing
    condition = of_key(pipeline.contract, key)
    quarantine = pipeline.table("quarantine")
    return trace.LayerRows(
        speed=speed.where(condition),
        batch=batch.where(f"({condition}) AND {is_certified}"),
        quarantine=read_small(spark, quarantine)
        if exists(spark, quarantine)
        else small_frame(spark, [], shape(QUARANTINE)),
        reached=speed.agg(F.max("_ingested_at").alias("_reached")),
        certified=is_certified,
    )
