"""Serving: one table to readers, certified days from the batch layer, all others from the speed layer."""

import logging
from collections.abc import Iterable
from functools import reduce
from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from pipelines.config import PipelineConfig
from pipelines.errors import ConfigError
from pipelines.evolution import fit, merged
from pipelines.ops.certification import certified
from pipelines.sinks.delta import days_condition, read
from pipelines.sinks.tables import conform, exists

_log = logging.getLogger(__name__)


def read_serving(spark: SparkSession, config: PipelineConfig) -> DataFrame:
    """What readers ought to read: every event once, each day from the best layer that has it.

    Certified days come from the version of the batch table that was audited, so a rebuild that is under
    way, or has failed, is never seen. Other days come from the speed layer.

    Args:
        spark: a session with Delta.
        config: the pipeline's configuration.

    Returns:
        The contract's columns + `_event_date date` + `_topic, _partition, _offset, _kafka_timestamp,
        _ingested_at`.

    Raises:
        ConfigError: there is no lake yet at `lake.root`.
    """
    state = certified(spark, config)
    speed, batch = config.table("speed"), config.table("batch")
    if not exists(spark, speed) and state is None:
        raise ConfigError(
            f"{speed}: no such table; run ingest_stream and speed_stream first, or mend lake.root"
        )
    if state is None:
        return read(spark, speed)
    closed = F.expr(days_condition(state.days))
    certified_rows = read(spark, batch, state.version).where(closed)
    if not exists(spark, speed):
        return certified_rows
    open_rows = read(spark, speed).where(~closed)
    columns = _both([certified_rows, open_rows])
    return conform(certified_rows, columns).unionByName(conform(open_rows, columns))


def _both(layers: Iterable[DataFrame]) -> StructType:
    """The columns of all layers: one may be older than a column that the contract has got since."""
    first, *others = [rows.schema for rows in layers]
    return cast(StructType, reduce(merged, others, cast(DataType, first)))


def refresh_view(spark: SparkSession, config: PipelineConfig) -> None:
    """Makes the configured catalog view show the certified state; does nothing without one."""
    state = certified(spark, config)
    view = config.serving.view
    if view is None or state is None:
        return
    days = days_condition(state.days)
    batch, speed = config.table("batch"), config.table("speed")
    layers = {
        f"delta.`{batch}` VERSION AS OF {state.version} WHERE {days}": read(spark, batch, state.version)
    }
    if exists(spark, speed):
        layers[f"delta.`{speed}` WHERE NOT ({days})"] = read(spark, speed)
    columns = _both(layers.values())
    # A view can hold no parameters; all parts come from checked configuration and from the ledger.
    parts = [
        f"SELECT {', '.join(fit(rows.schema, columns))} FROM {source}"  # noqa: S608
        for source, rows in layers.items()
    ]
    spark.sql(f"CREATE OR REPLACE VIEW {view} AS {' UNION ALL '.join(parts)}")
    in_another_catalog = view.count(".") > 1
    if spark.conf.get("spark.sql.catalogImplementation") == "in-memory" and not in_another_catalog:
        _log.warning(
            "serving.view: %s is gone when this job ends, since this session keeps its catalog in memory;"
            " set spark.sql.catalogImplementation=hive, or read by read_serving",
            view,
        )
