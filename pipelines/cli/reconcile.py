"""`oncelake reconcile`: is everything that Kafka has in bronze?"""

from typing import Any

import click

from pipelines.cli.job_runner import Job, run_job
from pipelines.cli.options import CommonOptions, LogFormat, common_options
from pipelines.steps.reconcile import reconcile as compare


@click.command()
@common_options
@click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json"]),
    help="Default: that of --log-format.",
)
def reconcile(output: LogFormat | None, **common: Any) -> None:
    """Compare the offsets in Kafka with those in bronze.

    Exit code 4 if records are missing that nothing explains.
    """
    run_job(Job("reconcile", lambda pipeline, run_id: compare(pipeline)), CommonOptions(**common), output)
