"""The jobs as commands. What they do is in `pipelines.layers`; here is only what the user may say."""

from contextlib import suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

import click
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.cli.options import CommonOptions, common_options
from pipelines.cli.running import refuse_unfit_expectations, run_job
from pipelines.config import PipelineConfig
from pipelines.contract import DataContract
from pipelines.errors import AuditFailed
from pipelines.layers.batch import closed_days, nightly, validate
from pipelines.layers.ingest import ingest
from pipelines.layers.report import report
from pipelines.layers.serving import refresh_view
from pipelines.layers.speed import speed

Summary = dict[str, Any]

_DAY: Final = click.DateTime(["%Y-%m-%d"])
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
        is_done_when_stopped=True,
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
        is_done_when_stopped=True,
    )


@click.command("nightly_batch")
@common_options
@click.option("--date", "day", type=_DAY, help="The event day; yesterday if no day is named.")
@click.option("--from", "first", type=_DAY, help="The first of several days.")
@click.option("--to", "last", type=_DAY, help="The last of several days.")
def nightly_batch(day: datetime | None, first: datetime | None, last: datetime | None, **common: Any) -> None:
    """Rebuild closed days from bronze, audit them, certify what passed."""
    if day and (first or last):
        raise click.UsageError("--date names one day, --from and --to several: use one or the other")
    between = (_date(day or first), _date(day or last))

    def check(config: PipelineConfig, contract: DataContract) -> None:
        closed_days(contract, *between)
        refuse_unfit_expectations(config, contract)

    def body(spark: SparkSession, config: PipelineConfig, contract: DataContract, run_id: str) -> Summary:
        try:
            summary = nightly(spark, config, contract, run_id, *closed_days(contract, *between))
        except AuditFailed:
            # Other days may have passed. Whatever becomes of the view, the audit is what counts.
            with suppress(PySparkException):
                refresh_view(spark, config)
            raise
        refresh_view(spark, config)
        return summary

    run_job("nightly_batch", CommonOptions(**common), body, check=check)


@click.command("validate")
@common_options
@click.option("--date", "day", type=_DAY, help="The event day; yesterday if it is not named.")
def validate_day(day: datetime | None, **common: Any) -> None:
    """Audit a day again without rebuilding it."""

    def check(config: PipelineConfig, contract: DataContract) -> None:
        closed_days(contract, _date(day), None)
        refuse_unfit_expectations(config, contract)

    def body(spark: SparkSession, config: PipelineConfig, contract: DataContract, run_id: str) -> Summary:
        return validate(spark, config, contract, run_id, closed_days(contract, _date(day), None)[0])

    run_job("validate", CommonOptions(**common), body, check=check)


@click.command("report")
@common_options
@click.option("--date", "day", type=_DAY, help="The event day; the last one decided on if it is not named.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reports"),
    show_default=True,
    help="The folder to write to.",
)
def write_day_report(day: datetime | None, out: Path, **common: Any) -> None:
    """Write the data quality report of a day: a page and the same as JSON."""
    run_job(
        "report",
        CommonOptions(**common),
        lambda spark, config, contract, run_id: report(spark, config, contract, _date(day), out),
    )


def _date(moment: datetime | None) -> date | None:
    return moment.date() if moment else None
