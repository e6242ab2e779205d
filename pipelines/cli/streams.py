"""`ingest_stream` and `speed_stream`: from Kafka to bronze, and from bronze to the speed layer."""

from collections.abc import Mapping
from typing import Any

import click

from pipelines.cli.job_runner import Job, run_job
from pipelines.cli.options import CommonOptions, common_options
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

    def body(pipeline: Pipeline, run_id: str) -> Mapping[str, Any]:
        with refusal_noted(pipeline, "ingest"):
            return ingest(pipeline, once=once)

    run_job(Job("ingest_stream", body, is_stream=True), CommonOptions(**common))


@click.command("speed_stream")
@common_options
@_once
def speed_stream(once: bool, **common: Any) -> None:
    """Decode and deduplicate bronze into the speed layer; quarantine broken records."""

    def body(pipeline: Pipeline, run_id: str) -> Mapping[str, Any]:
        with refusal_noted(pipeline, "speed"):
            return speed(pipeline, once=once)

    run_job(Job("speed_stream", body, is_stream=True), CommonOptions(**common))
