"""`nightly_batch` and `validate`: past days are rebuilt, audited and certified, or audited again."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from pipelines.cli.job_runner import Job, refuse_unfit_expectations, run_job
from pipelines.cli.options import (
    CommonOptions,
    common_options,
    day_option,
    days_between,
    options_of_many,
    require_one_or_all,
)
from pipelines.cli.run_all import run_all
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.contracts.event_days import days_of, past_days
from pipelines.errors import AuditFailed
from pipelines.nightly.rebuild_plan import RepairScope
from pipelines.nightly.verdicts import AlsoRebuilt
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.nightly import nightly
from pipelines.steps.serving import refresh_view_or_warn, stale_view
from pipelines.steps.validate import validate

Summary = Mapping[str, Any]


@click.command("nightly_batch")
@options_of_many
@day_option(
    "--date",
    "day",
    "Event day; default: yesterday, and the days of the lookback that are not certified. Days of the lookback"
    " that received late records are always rebuilt, too.",
)
@day_option("--from", "first", "First event day of a range, with --to.")
@day_option("--to", "last", "Last event day of a range, with --from.")
def nightly_batch(
    day: datetime | None,
    first: datetime | None,
    last: datetime | None,
    pipeline: str | None,
    everything: bool,
    **common: Any,
) -> None:
    """Rebuild past days from bronze, audit them, and certify those that pass."""
    require_one_or_all(pipeline, everything)
    between = days_between(day, first, last)
    repair: RepairScope = "nothing" if first or last else "late" if day else "late and missed"

    def check(config: PipelineConfig, contract: DataContract) -> None:
        past_days(contract, *between)
        refuse_unfit_expectations(config, contract)

    def body(pipeline: Pipeline, run_id: str) -> Summary:
        try:
            days = days_of(*past_days(pipeline.contract, *between))
            summary = nightly(pipeline, run_id, days, repair)
        except AuditFailed as failed:
            # Other days may have passed. Whatever becomes of the view, the audit is what counts.
            failed.summary = _told(failed.summary, refresh_view_or_warn(pipeline))
            raise
        return _told(summary, refresh_view_or_warn(pipeline))

    job = Job("nightly_batch", body, check=check, notifies=True)
    if pipeline is None:
        run_all(job, common)
    run_job(job, CommonOptions(pipeline=pipeline, **common))


@click.command("validate")
@common_options
@day_option("--date", "day", "Event day; default: yesterday.")
def validate_day(day: datetime | None, **common: Any) -> None:
    """Audit a certified day again without rebuilding it."""

    def check(config: PipelineConfig, contract: DataContract) -> None:
        past_days(contract, *days_between(day))
        refuse_unfit_expectations(config, contract)

    def body(pipeline: Pipeline, run_id: str) -> Summary:
        stale = stale_view(pipeline)
        try:
            result = validate(pipeline, run_id, past_days(pipeline.contract, *days_between(day))[0])
        except AuditFailed as failed:
            failed.summary = _warned(failed.summary, stale)
            raise
        return _warned(result, stale)

    run_job(Job("validate", body, check=check, notifies=True), CommonOptions(**common))


def lines_of(summary: Summary) -> dict[str, list[str]]:
    """Return a line for each day that was rebuilt for another cause than a request."""
    return {"lines": [_line(day, rebuilt) for day, rebuilt in summary.get("also_rebuilt", {}).items()]}


def _line(day: str, rebuilt: AlsoRebuilt) -> str:
    changes = ""
    if rows := rebuilt["rows"]:
        changes = f"; {rows['added']:,} rows added, {rows['removed']:,} removed, {rows['changed']:,} changed"
    return f"{day} ({rebuilt['cause']}): {rebuilt['status']}{changes}"


def _told(summary: Summary, warnings: list[str]) -> dict[str, Any]:
    return _warned(summary, warnings) | lines_of(summary)


def _warned(summary: Summary, warnings: list[str]) -> dict[str, Any]:
    return {**summary, "warnings": [*summary.get("warnings", ()), *warnings]}
