"""`ingest_stream` and `speed_stream`: from Kafka to bronze, and from bronze to the speed layer."""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import click

from pipelines.cli.job_runner import ArgumentCheck, Job, run_job
from pipelines.cli.options import CommonOptions, common_options
from pipelines.config.streams import STREAMS, Query
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.stream_monitor import refusal_noted
from pipelines.steps.ingest import ingest
from pipelines.steps.speed import speed

_once = click.option("--once", is_flag=True, help="Process what is available now, then stop.")


@click.command("ingest_stream")
@common_options
@_once
def ingest_stream(once: bool, **common: Any) -> None:
    """Copy every Kafka record to bronze."""
    run_stream_job("ingest", lambda pipeline: ingest(pipeline, once=once), CommonOptions(**common))


@click.command("speed_stream")
@common_options
@_once
def speed_stream(once: bool, **common: Any) -> None:
    """Decode and deduplicate bronze into the speed layer; quarantine broken records."""
    run_stream_job("speed", lambda pipeline: speed(pipeline, once=once), CommonOptions(**common))


def run_stream_job(
    query: Query,
    step: Callable[[Pipeline], Mapping[str, Any]],
    options: CommonOptions,
    check: ArgumentCheck | None = None,
) -> NoReturn:
    """Run the job of a stream; a run that is refused leaves word of it for `oncelake lag`.

    Args:
        query: the stream.
        step: runs it, and returns the summary.
        options: what the user said.
        check: as for `Job`.
    """

    def body(pipeline: Pipeline, run_id: str) -> Mapping[str, Any]:
        with refusal_noted(pipeline, query):
            return step(pipeline)

    run_job(Job(STREAMS[query].job, body, check=check, is_stream=True), options)
