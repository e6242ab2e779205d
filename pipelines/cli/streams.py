"""`ingest_stream` and `speed_stream`: from Kafka to bronze, and from bronze to the speed layer."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC
from typing import Any, NoReturn

import click

from pipelines.cli.job_runner import ArgumentCheck, Job, run_job
from pipelines.cli.options import CommonOptions, cluster_option, common_options
from pipelines.cli.rack import traffic_document
from pipelines.config.streams import STREAMS, Query
from pipelines.config.taken_risks import require_safe_dead_letters
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.stream_monitor import refusal_noted
from pipelines.steps.ingest import IngestResult, ingest
from pipelines.steps.speed import SpeedResult, speed

_once = click.option("--once", is_flag=True, help="Process what is available now, then stop.")


@click.command("ingest_stream")
@common_options
@cluster_option
@_once
def ingest_stream(once: bool, **common: Any) -> None:
    """Copy every Kafka record to bronze."""
    run_stream_job(
        "ingest", lambda pipeline: summary_of_ingest(ingest(pipeline, once=once)), CommonOptions(**common)
    )


def summary_of_ingest(done: IngestResult) -> dict[str, Any]:
    """Tell what was copied to bronze.

    Args:
        done: What was done.

    Returns:
        `counts`; `offsets`, by topic and partition, the first of the run (None with a new checkpoint) and the
        one after its last; with `kafka.rack.mode` on `racks`, as `traffic_document` has it.
    """
    offsets: dict[str, dict[str, list[int | None]]] = {}
    for each in done.offsets:
        offsets.setdefault(each.topic, {})[str(each.partition)] = [each.first, each.end]
    summary = {"counts": {"records": done.records, "batches": done.batches}, "offsets": offsets}
    return summary | ({"racks": traffic_document(done.racks)} if done.racks else {})


@click.command("speed_stream")
@common_options
@_once
def speed_stream(once: bool, **common: Any) -> None:
    """Decode and deduplicate bronze into the speed layer.

    Broken records go to quarantine.
    """
    run_stream_job(
        "speed",
        lambda pipeline: summary_of_speed(speed(pipeline, once=once)),
        CommonOptions(**common),
        check=lambda config, _: require_safe_dead_letters(config),
    )


def run_stream_job(
    query: Query,
    step: Callable[[Pipeline], Mapping[str, Any]],
    options: CommonOptions,
    check: ArgumentCheck | None = None,
) -> NoReturn:
    """Run the job of a stream; a run that is refused leaves word of it for `oncelake lag`.

    Args:
        query: The stream.
        step: Runs it, and returns the summary.
        options: What the user said.
        check: As for `Job`.
    """

    def body(pipeline: Pipeline, run_id: str) -> Mapping[str, Any]:
        with refusal_noted(pipeline, query):
            return step(pipeline)

    run_job(Job(STREAMS[query].job, body, check, is_stream=True), options)


def summary_of_speed(done: SpeedResult) -> dict[str, Any]:
    """Tell what entered the speed layer.

    Args:
        done: What was done.

    Returns:
        `counts`; `watermark`, the last one, as ISO text in UTC with milliseconds, as Spark writes it, None
        without a micro-batch; `warnings`.
    """
    watermark = done.watermark and done.watermark.astimezone(UTC).isoformat(timespec="milliseconds")
    return {
        "counts": asdict(done.counts),
        "watermark": watermark and watermark.replace("+00:00", "Z"),
        "warnings": [*done.warnings],
    }
