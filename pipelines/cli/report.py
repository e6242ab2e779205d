"""`oncelake report`: a day's report in several formats, the index of reports, figures for Prometheus."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any, Final, cast

import click

from pipelines.cli.job_runner import Job, run_job
from pipelines.cli.options import CommonOptions, day_option, log_options, once, place_options
from pipelines.cli.parameter_types import Folder
from pipelines.report.render.files import FORMATS, ReportFormat, write_index
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.metrics import WrittenMetrics, metrics
from pipelines.steps.report import WrittenReport, report
from pipelines.steps.serving import stale_view

_PROMETHEUS: Final = "prometheus"


@click.command("report")
@once("--pipeline", metavar="NAME", help="The pipeline, e.g. flights; not needed with --index.")
@place_options
@log_options
@day_option("--date", "day", "Event day. Default: the last day with a verdict.")
@click.option(
    "--format",
    "report_format",
    type=click.Choice([*FORMATS, _PROMETHEUS]),
    help="html (default): page, JSON and index; markdown: a short text; json: JSON only; prometheus: metrics"
    " of the last nightly run.",
)
@click.option(
    "--index", is_flag=True, help="Only write the index of the reports in the folder, without Spark."
)
@click.option(
    "--out",
    type=Folder(),
    default=Path("reports"),
    show_default=True,
    help="The folder to write to.",
)
def write_day_report(
    day: datetime | None, report_format: str | None, index: bool, out: Path, **common: Any
) -> None:
    """Write the data quality report of a day.

    With --index, write the index of all reports.
    """
    if index:
        if day or report_format or common["pipeline"]:
            raise click.UsageError(
                "--index reads only the files in --out, of all pipelines and days:"
                " leave out --pipeline, --date and --format"
            )
        _index(out, common["log_format"])
        return
    if not common["pipeline"]:
        raise click.UsageError("Missing option '--pipeline' (only --index works without it)")
    if report_format == _PROMETHEUS and day:
        raise click.UsageError("--format prometheus is about the last nightly run: leave out --date")
    options = CommonOptions(**common)

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        if report_format == _PROMETHEUS:
            return summary_of_metrics(metrics(pipeline, options.env, out))
        form = cast(ReportFormat, report_format or FORMATS[0])
        written = report(pipeline, day.date() if day else None, out, form)
        return {**summary_of(written), "warnings": stale_view(pipeline)}

    run_job(Job("report", body), options)


def summary_of(written: WrittenReport) -> dict[str, Any]:
    """Tell what a report says in short, and where it is.

    Args:
        written: The report.

    Returns:
        `day`, `verdict`, `counts`, `lines`, and the path of each file by its sort.
    """
    data, files = written.data, written.files
    return {
        "day": data.day.isoformat(),
        "verdict": data.verdict.status,
        "counts": data.flow.model_dump(),
        "lines": [f"{sort:<8} {path}" for sort, path in files.items()],
        **{sort: str(path) for sort, path in files.items()},
    }


def summary_of_metrics(written: WrittenMetrics) -> dict[str, Any]:
    """Tell of which run the figures are, and where they are.

    Args:
        written: The figures.

    Returns:
        `run`, `lines`, and the path of the file as `prometheus`.
    """
    path = written.path
    return {"run": written.run, "lines": [f"{_PROMETHEUS:<10} {path}"], _PROMETHEUS: str(path)}


def _index(out: Path, log_format: str) -> None:
    path = str(write_index(out))
    done = {"job": "report", "status": "done", "exit_code": 0, "index": path}
    click.echo(json.dumps(done) if log_format == "json" else f"index    {path}")
