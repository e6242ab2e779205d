"""`oncelake maintain`: compaction, retention and VACUUM of a pipeline's tables."""

from typing import Any

import click

from pipelines.cli.job_runner import Job, run_job
from pipelines.cli.options import CommonOptions, common_options
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.maintain import maintain
from pipelines.steps.serving import refresh_view


@click.command("maintain")
@common_options
@click.option(
    "--vacuum-now",
    is_flag=True,
    help="Delete files of earlier versions now, not after maintain.vacuum_after; their readers fail.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
def maintain_tables(vacuum_now: bool, dry_run: bool, **common: Any) -> None:
    """Compact small files; delete old rows and files that are no longer needed."""

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        if not dry_run:
            # An older view may still take a certified day from the speed layer.
            refresh_view(pipeline)
        return maintain(pipeline, run_id, dry_run=dry_run, vacuum_now=vacuum_now)

    run_job(Job("maintain", body), CommonOptions(**common))
