"""`oncelake checkpoint`: a way on for a stream whose tables and checkpoint do not go together."""

from typing import Any

import click

from pipelines.cli.job_runner import Job, run_job
from pipelines.cli.options import CommonOptions, common_options
from pipelines.delta.stream_check import Query
from pipelines.steps import checkpoints as step


@click.group()
def checkpoint() -> None:
    """Reset the checkpoint of a stream after it was lost or restored."""


@checkpoint.command()
@common_options
@click.option(
    "--query",
    type=click.Choice(["ingest", "speed"]),
    required=True,
    help="ingest: continue after the last records in bronze; speed: rebuild speed layer and quarantine.",
)
def reset(query: Query, **common: Any) -> None:
    """Move the checkpoint of a stopped stream aside, without loss or duplicates."""
    run_job(
        Job("checkpoint reset", lambda pipeline, run_id: step.reset_checkpoint(pipeline, run_id, query)),
        CommonOptions(**common),
    )
