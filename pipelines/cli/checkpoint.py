"""`oncelake checkpoint`: a way on for a stream whose tables and checkpoint do not go together."""

from typing import Any

import click

from pipelines.cli.options import CommonOptions, common_options
from pipelines.cli.running import run_job
from pipelines.delta.stream_check import Query
from pipelines.steps import checkpoints as step


@click.group()
def checkpoint() -> None:
    """Give a stream a new checkpoint, where the one that it has was lost or put back."""


@checkpoint.command()
@common_options
@click.option(
    "--query",
    type=click.Choice(["ingest", "speed"]),
    required=True,
    help="ingest: go on after the last records in bronze; speed: make speed layer and quarantine anew.",
)
def reset(query: Query, **common: Any) -> None:
    """Move a stream's checkpoint aside so that nothing is lost or doubled; the stream must not run."""
    run_job(
        "checkpoint reset",
        CommonOptions(**common),
        lambda spark, config, contract, run_id: step.reset(spark, config, run_id, query),
    )
