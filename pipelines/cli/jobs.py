"""The jobs as commands. What they do is in `pipelines.layers`; here is only what the user may say."""

from typing import Any

import click

from pipelines.cli.options import CommonOptions, common_options
from pipelines.cli.running import run_job
from pipelines.layers.ingest import ingest
from pipelines.layers.speed import speed

_once = click.option("--once", is_flag=True, help="Process what is there now, then stop.")


@click.command("ingest_stream")
@common_options
@_once
def ingest_stream(once: bool, **common: Any) -> None:
    """Kafka -> bronze: every record, whole."""
    run_job(
        "ingest_stream",
        CommonOptions(**common),
        lambda spark, config, contract, run_id: ingest(spark, config, once=once),
    )


@click.command("speed_stream")
@common_options
@_once
def speed_stream(once: bool, **common: Any) -> None:
    """Bronze -> speed layer and quarantine: decoded, deduplicated, minutes old."""
    run_job(
        "speed_stream",
        CommonOptions(**common),
        lambda spark, config, contract, run_id: speed(spark, config, contract, once=once),
    )
