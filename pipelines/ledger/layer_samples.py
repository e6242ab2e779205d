"""The samples of differences between the layers that audits have kept."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import Final

from pyspark.sql import functions as F

from pipelines.delta.io import append, read, small_rows
from pipelines.delta.tables import ensure_table, exists, shape, small_frame
from pipelines.ledger.layer_sample import SAMPLE, LayerDifference, LayerSample
from pipelines.spark.pipeline import Pipeline

_SHAPE: Final = (
    f"pipeline string, day date, run_id string, difference string, {SAMPLE}, recorded_at timestamp"
)


def record_samples(pipeline: Pipeline, differences: Mapping[date, LayerDifference], run_id: str) -> None:
    """Appends the samples of an audit to `ops/layer_samples`, as one commit; does nothing without any."""
    run = {"pipeline": pipeline.config.name, "run_id": run_id, "recorded_at": datetime.now(UTC)}
    rows = [asdict(each) | run | {"day": day} for day, found in differences.items() for each in found.samples]
    if rows:
        table = pipeline.ops_table("layer_samples")
        ensure_table(pipeline.spark, table, shape(_SHAPE), partitions=["pipeline"])
        append(small_frame(pipeline.spark, rows, shape(_SHAPE)), table)


def samples_of(pipeline: Pipeline, day: date, run_id: str) -> tuple[LayerSample, ...]:
    """The samples that a run has kept of a day, by difference and coordinates."""
    table = pipeline.ops_table("layer_samples")
    if not exists(pipeline.spark, table):
        return ()
    of_run = (
        (F.col("pipeline") == pipeline.config.name)
        & (F.col("day") == F.lit(day))
        & (F.col("run_id") == run_id)
    )
    columns = ("difference", *shape(SAMPLE).fieldNames())
    rows = read(pipeline.spark, table).where(of_run).select(*columns)
    return tuple(LayerSample(**row) for row in small_rows(rows.orderBy("difference", "batch", "speed")))
