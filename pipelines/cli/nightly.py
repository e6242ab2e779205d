"""`nightly_batch` and `validate`: past days are rebuilt, audited and certified, or audited again."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from pipelines.cli.job_runner import Job, JobFailed, refuse_unfit_expectations, run_job
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
from pipelines.ledger.certifications import Verdict
from pipelines.nightly.rebuild_plan import RepairScope
from pipelines.nightly.verdicts import NightFailed, NightResult
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.nightly import nightly
from pipelines.steps.serving import stale_view
from pipelines.steps.serving_table import refresh_readers_or_warn
from pipelines.steps.validate import Validation, validate


@click.command("nightly_batch")
@options_of_many
@day_option(
    "--date",
    "day",
    "Event day. Default: yesterday, and the days of the lookback that are not certified. Certified days of"
    " the lookback that received records after their verdict are rebuilt, too.",
)
@day_option("--from", "first", "First event day of a range, with --to. Days of the lookback are not rebuilt.")
@day_option("--to", "last", "Last event day of a range, with --from.")
def nightly_batch(
    day: datetime | None,
    first: datetime | None,
    last: datetime | None,
    pipeline: str | None,
    everything: bool,
    **common: Any,
) -> None:
    """Rebuild past days, audit them, certify those that pass."""
    require_one_or_all(pipeline, everything)
    between = days_between(day, first, last)
    repair: RepairScope = "nothing" if first or last else "late" if day else "late and missed"

    def check(config: PipelineConfig, contract: DataContract) -> None:
        past_days(contract, *between)
        refuse_unfit_expectations(config, contract)

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        try:
            days = days_of(*past_days(pipeline.contract, *between))
            done = nightly(pipeline, run_id, days, repair)
        except NightFailed as failed:
            # Other days may have passed. Whatever becomes of the view, the audit is what counts.
            warnings = refresh_readers_or_warn(pipeline)
            raise JobFailed(failed, summary_of_night(failed.result, warnings)) from None
        return summary_of_night(done, refresh_readers_or_warn(pipeline))

    job = Job("nightly_batch", body, check=check, notifies=True)
    if pipeline is None:
        run_all(job, common)
    run_job(job, CommonOptions(pipeline=pipeline, **common))


@click.command("validate")
@common_options
@day_option("--date", "day", "Certified event day; default: yesterday. Another day ends with exit code 2.")
def validate_day(day: datetime | None, **common: Any) -> None:
    """Audit a certified day again without rebuilding it."""

    def check(config: PipelineConfig, contract: DataContract) -> None:
        past_days(contract, *days_between(day))
        refuse_unfit_expectations(config, contract)

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        stale = stale_view(pipeline)
        try:
            result = validate(pipeline, run_id, past_days(pipeline.contract, *days_between(day))[0])
        except AuditFailed as failed:
            raise JobFailed(failed, {"warnings": stale}) from None
        return summary_of_validation(result, stale)

    run_job(Job("validate", body, check=check, notifies=True), CommonOptions(**common))


def summary_of_night(night: NightResult, warnings: Sequence[str]) -> dict[str, Any]:
    """Tell what a nightly run did.

    Args:
        night: What it did.
        warnings: Texts of what came after it.

    Returns:
        `counts`; `days`, the status of each; `batch_version`; `bronze_version`; `late_days_left`;
        `missed_days_left`; `warnings`; `also_rebuilt`, by day that was rebuilt for another cause than a
        request, the `cause`, the `status`, and `rows`: what changed for readers, None if the day was not
        certified before, or is not now; `lines`, one for each of these days.
    """
    return {
        "counts": asdict(night.counts),
        "days": {day.isoformat(): status for day, status in night.days.items()},
        "batch_version": night.batch_version,
        "bronze_version": night.bronze_version,
        "late_days_left": [day.isoformat() for day in night.late_days_left],
        "missed_days_left": [day.isoformat() for day in night.missed_days_left],
        "warnings": [*night.warnings, *warnings],
        "also_rebuilt": {
            verdict.day.isoformat(): {
                "cause": verdict.cause,
                "status": verdict.status,
                "rows": _changed_rows(verdict),
            }
            for verdict in night.also_rebuilt
        },
        "lines": [_line(verdict) for verdict in night.also_rebuilt],
    }


def summary_of_validation(validation: Validation, warnings: Sequence[str]) -> dict[str, Any]:
    """Tell what the audit of a certified day has looked at.

    Args:
        validation: What it has looked at.
        warnings: Texts of what is wrong beside the day.

    Returns:
        `counts`: `checks`, and the `rows` of the day; `warnings`.
    """
    return {"counts": asdict(validation), "warnings": [*warnings]}


def _changed_rows(verdict: Verdict) -> dict[str, int] | None:
    if not verdict.is_repair:
        return None
    names = ("added", "removed", "changed")
    return {name: getattr(verdict, name) or 0 for name in names}


def _line(verdict: Verdict) -> str:
    changes = ""
    if rows := _changed_rows(verdict):
        changes = f"; {rows['added']:,} rows added, {rows['removed']:,} removed, {rows['changed']:,} changed"
    return f"{verdict.day} ({verdict.cause}): {verdict.status}{changes}"
