"""The samples of differences between the layers that audits have kept."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.config.model import PipelineConfig
from pipelines.delta.io import append, read, small_rows
from pipelines.delta.tables import ensure_table, exists, shape, small_frame
from pipelines.ledger.layer_sample import SAMPLE, LayerDifference, LayerSample

_SHAPE: Final = (
    f"pipeline string, day date, run_id string, difference string, {SAMPLE}, recorded_at timestamp"
)


def record_samples(
    spark: SparkSession, config: PipelineConfig, differences: Mapping[date, LayerDifference], run_id: str
) -> None:
    """Appends the samples of an audit to `ops/layer_samples`, as one commit; does nothing without any."""
    run = {"pipeline": config.name, "run_id": run_id, "recorded_at": datetime.now(UTC)}
    rows = [asdict(each) | run | {"day": day} for day, found in differences.items() for each in found.samples]
    if rows:
        table = config.ops_table("layer_samples")
        ensure_table(spark, table, shape(_SHAPE), partitions=["pipeline"])
        append(small_frame(spark, rows, shape(_SHAPE)), table)


def samples_of(
    spark: SparkSession, config: PipelineConfig, day: date, run_id: str
) -> tuple[LayerSample, ...]:
    """The samples that a run has kept of a day, by difference and coordinates."""
    table = config.ops_table("layer_samples")
    if not exists(spark, table):
        return ()
    of_run = (F.col("pipeline") == config.name) & (F.col("day") == F.lit(day)) & (F.col("run_id") == run_id)
    columns = ("difference", *shape(SAMPLE).fieldNames())
    rows = read(spark, table).where(of_run).select(*columns)
    return tuple(LayerSample(**row) for row in small_rows(rows.orderBy("difference", "batch", "speed")))
