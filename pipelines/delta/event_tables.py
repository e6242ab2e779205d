"""The tables of events, speed and batch layer: each remembers by what rule its rows were made."""

import json
from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime

from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from pipelines.config.speed import SpeedConfig
from pipelines.contracts.contract import DataContract
from pipelines.delta.record_tables import ORIGIN_COLUMNS
from pipelines.delta.table_properties import (
    BY_CLOCK_SINCE,
    CERTIFIED,
    DAYS,
    DEDUP,
    OF_STREAMS,
    TEN_YEARS,
    history_retention,
    json_from_hex,
    keep_versions,
    parse_property,
    set_table_property,
    statistics_of,
    table_property,
    to_hex,
)
from pipelines.delta.tables import ensure_table, exists, shape
from pipelines.delta.zone_rules import keep_rules, require_same_rules
from pipelines.durations import format_interval
from pipelines.errors import ConfigError
from pipelines.records.watermark import ALWAYS, NOT_YET
from pipelines.schema_paths import flat, optional
from pipelines.spark.pipeline import Pipeline


def events_schema(contract: DataContract) -> StructType:
    """Return the shape of speed and batch layer: the contract's columns, the event day, the origin."""
    added = shape(f"_event_date date, {ORIGIN_COLUMNS}")
    columns = (StructField(f.name, optional(f.dataType), f.nullable) for f in contract.schema)
    return StructType([*columns, *added.fields])


def ensure_speed(pipeline: Pipeline) -> None:
    """Make the speed layer's table if there is none, and keep with it how its rows are deduplicated.

    Raises:
        ConfigError: It was made with another dedup key, event time, zone, watermark or value format, so the
            state in the checkpoint would be wrong; or its columns do not fit. The table is as it was.
    """
    spark = pipeline.spark
    path = pipeline.table("speed")
    configured = dedup_settings(pipeline.contract, pipeline.config.speed)
    encoded = to_hex(json.dumps(configured))
    stored = table_property(spark, path, DEDUP) if exists(spark, path) else encoded
    if stored is not None:
        _same_dedup(path, parse_property(path, DEDUP, stored, json_from_hex), configured)
    schema = events_schema(pipeline.contract)
    looked_up = (*pipeline.contract.key, pipeline.contract.event_time, *shape(ORIGIN_COLUMNS).names)
    properties = {
        **{DEDUP: encoded, BY_CLOCK_SINCE: ALWAYS.isoformat()},
        **OF_STREAMS,
        **statistics_of(schema, looked_up),
    }
    ensure_table(spark, path, schema, partitions=["_event_date"], properties=properties)
    # Also where a table of an earlier release does not know all of it yet: else a later change went unseen.
    if stored != encoded:
        set_table_property(spark, path, DEDUP, encoded)


def adopt_clock(pipeline: Pipeline) -> None:
    """Note in an older speed layer that from now on another clock moves its watermark.

    What its query had read until now it had held against the event times alone; an audit has to know.
    """
    path = pipeline.table("speed")
    if table_property(pipeline.spark, path, BY_CLOCK_SINCE) is None:
        set_table_property(pipeline.spark, path, BY_CLOCK_SINCE, datetime.now(UTC).isoformat())


def by_clock_since(pipeline: Pipeline) -> datetime:
    """Return from which ingestion on `records.watermark.clock` moves the speed layer's watermark."""
    path = pipeline.table("speed")
    since = (
        table_property(pipeline.spark, path, BY_CLOCK_SINCE)
        if exists(pipeline.spark, path)
        else ALWAYS.isoformat()
    )
    return NOT_YET if since is None else parse_property(path, BY_CLOCK_SINCE, since, aware)


def require_same_dedup(pipeline: Pipeline) -> None:
    """Make sure that the speed layer, if there is one, was built by the deduplication of now; change nothing.

    Raises:
        ConfigError: It was not, so the state in the checkpoint would be wrong.
    """
    path = pipeline.table("speed")
    stored = table_property(pipeline.spark, path, DEDUP) if exists(pipeline.spark, path) else None
    if stored is not None:
        configured = dedup_settings(pipeline.contract, pipeline.config.speed)
        _same_dedup(path, parse_property(path, DEDUP, stored, json_from_hex), configured)


def aware(text: str) -> datetime:
    """Return a moment that a property keeps.

    Raises:
        ValueError: It is none, or names no offset.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("no offset")
    return moment


def _same_dedup(path: str, stored: Mapping[str, str], configured: Mapping[str, str]) -> None:
    if changes := _changes(stored, configured):
        raise ConfigError(
            f"{path}: the speed layer and its state were built with another deduplication than configured"
            f" now. {'; '.join(changes)}. Undo the change, or rebuild the speed layer: docs/runbook.md,"
            " 'Change of rules, watermark or state partitions', has the commands"
        )


def _changes(stored: Mapping[str, str], configured: Mapping[str, str]) -> list[str]:
    return [
        f"{name}: found {stored[name]!r}, expected {value!r}"
        for name, value in configured.items()
        if stored.get(name, value) != value
    ]


def dedup_settings(contract: DataContract, speed: SpeedConfig) -> dict[str, str]:
    """Return the settings of the deduplication, by the names under which the table keeps them.

    Do not change a name: the settings of existing tables would no longer be compared.
    """
    kinds = flat(contract.schema)
    return {
        "dedup key": ", ".join(f"{path} {kinds[path].dataType.simpleString()}" for path in contract.key),
        "event time": contract.event_time,
        "day time zone": contract.day_time_zone,
        "speed.watermark_delay": format_interval(speed.watermark_delay),
        "speed.state_partitions": str(speed.state_partitions),
        "value format": contract.value_format,
    }


def ensure_batch(pipeline: Pipeline, certified_days: Collection[date] = ()) -> None:
    """Make the batch layer's table if there is none, and keep with it by what rule events have a day.

    Its versions stay readable, however old they get.

    Args:
        pipeline: The pipeline.
        certified_days: The days that are certified; one that is empty has no row in the table.

    Raises:
        ConfigError: Its days were made with another dedup key, event time, zone or value format, so that an
            event could be on two of them, or on none; or its columns do not fit. The table is as it was.
        SourceError: They were made by other rules of the zone.
    """
    spark, contract = pipeline.spark, pipeline.contract
    table, schema = pipeline.table("batch"), events_schema(contract)
    encoded, is_new = to_hex(json.dumps(day_settings(contract))), not exists(spark, table)
    stored = encoded if is_new else _same_days(spark, table, contract)
    ensure_table(
        spark,
        table,
        schema,
        partitions=["_event_date"],
        properties={**history_retention(TEN_YEARS), DAYS: encoded},
    )
    if stored != encoded:
        set_table_property(spark, table, DAYS, encoded)
    keep_rules(spark, table, contract.day_time_zone, certified_days)
    keep_versions(spark, table)


def require_same_days(pipeline: Pipeline) -> None:
    """Make sure that the batch layer's rows were given their days by the rule of this contract.

    Raises:
        ConfigError: They were not, so that an event could be on two days, or on none.
        SourceError: They were made by other rules of the zone.
    """
    spark = pipeline.spark
    if exists(spark, table := pipeline.table("batch")):
        _same_days(spark, table, pipeline.contract)
        require_same_rules(spark, table, pipeline.contract.day_time_zone)


def _same_days(spark: SparkSession, table: str, contract: DataContract) -> str | None:
    """Return the rule that the table remembers, hidden; None for one that was made before it did."""
    stored = table_property(spark, table, DAYS)
    changes = (
        _changes(parse_property(table, DAYS, stored, json_from_hex), day_settings(contract)) if stored else []
    )
    # Also an empty day may be certified, and would stay so: readers get no other day's events of it.
    if changes and (
        table_property(spark, table, CERTIFIED) or not DeltaTable.forPath(spark, table).toDF().isEmpty()
    ):
        raise ConfigError(
            f"{table}: its days were built by another rule than the contract has now. {'; '.join(changes)}."
            " Undo the change, or give the new contract a pipeline of its own:"
            " docs/runbook.md, 'A breaking change of a contract'"
        )
    return stored


def day_settings(contract: DataContract) -> dict[str, str]:
    """Return by what an event has its day, by the names under which the batch layer keeps it, as above."""
    return {
        "dedup key": ", ".join(contract.key),
        "event time": contract.event_time,
        "day time zone": contract.day_time_zone,
        "value format": contract.value_format,
    }
