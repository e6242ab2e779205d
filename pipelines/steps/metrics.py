"""Metrics: the figures of the last nightly run for Prometheus, from the ledger alone."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import functions as F

from pipelines.config.commands import command
from pipelines.delta.io import small_rows
from pipelines.errors import SourceError
from pipelines.ledger import certifications
from pipelines.ledger.ops_tables import VALIDATION_RESULTS
from pipelines.ledger.retention_properties import first_rebuildable_day
from pipelines.report.render.prometheus import gauges
from pipelines.runtime.atomic_files import write_files
from pipelines.runtime.prometheus_text import exposition
from pipelines.spark.pipeline import Pipeline


@dataclass(frozen=True)
class WrittenMetrics:
    """The figures of a run, and where they were written to.

    Attributes:
        run: The id of the nightly run.
        path: The file.
    """

    run: str
    path: Path


def metrics(pipeline: Pipeline, env: str, out: Path) -> WrittenMetrics:
    """Write `OUT/PIPELINE.prom` for a textfile collector, complete or not at all.

    Args:
        pipeline: The pipeline.
        env: The environment, a label of every metric.
        out: The folder to write to.

    Raises:
        SourceError: No nightly run has decided on a day yet.
        InfrastructureError: The folder cannot be written.
    """
    config = pipeline.config
    past = certifications.history(pipeline)
    if not past:
        raise SourceError(
            f"{config.name}: no figures for Prometheus: no nightly run has decided on a day;"
            f" run first: {command(config, 'nightly_batch')}"
        )
    run = past[-1].run_id
    of_run = VALIDATION_RESULTS.rows(pipeline).where(F.col("run_id") == run)
    checks = {row["status"]: row["count"] for row in small_rows(of_run.groupBy("status").count())}
    zone, first = pipeline.contract.zone, first_rebuildable_day(pipeline)
    all_gauges = gauges(past, checks, zone, datetime.now(UTC), first)
    text = exposition(all_gauges, {"pipeline": config.name, "env": env})
    (path,) = write_files(out, {f"{config.name}.prom": text}, f"figures of {config.name} for Prometheus")
    return WrittenMetrics(run, path)
