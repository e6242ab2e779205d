"""Report: gathers what the lake says of a day and writes it for people and for programs."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import pipelines
from pipelines.config import PipelineConfig
from pipelines.contract import DataContract
from pipelines.decode import invalid, valid
from pipelines.errors import SourceError
from pipelines.ops import certification
from pipelines.ops.writer_schemas import decode_all
from pipelines.quality import conflicts, profile
from pipelines.quality.data_docs import Audited, write_data_docs
from pipelines.quality.report_model import Flow, ReportCheck, ReportData, TrendDay, Verdict
from pipelines.sinks.delta import read, small_rows
from pipelines.sinks.tables import exists

_TREND_DAYS = 60


def report(
    spark: SparkSession, config: PipelineConfig, contract: DataContract, day: date | None, out: Path
) -> dict[str, Any]:
    """Writes the data quality report of a day as `OUT/PIPELINE-DAY.html` and `.json`, and its Data Docs.

    Args:
        spark: the session.
        config: the pipeline's configuration.
        contract: what the records ought to be.
        day: the event day; None for the last one that a nightly run has decided on.
        out: the folder to write to.

    Raises:
        SourceError: no nightly run has decided on the day yet.
    """
    verdicts = certification.verdicts(spark, config)
    wanted = [v for v in verdicts if day in (None, v.day)]
    if not wanted:
        known = f"days {verdicts[0].day} to {verdicts[-1].day}" if verdicts else "no day"
        raise SourceError(
            f"{config.name}: nothing to report of {day or 'any day'}: nightly runs have decided on {known};"
            " run nightly_batch first"
        )
    # The chart libraries take over a second to import, which the other jobs need not wait for.
    from pipelines.quality.report import write_report

    audited = _audited(spark, config, wanted[-1])
    data = _gather(spark, config, contract, wanted[-1], verdicts, data_docs=bool(audited.results))
    page, figures = write_report(data, out)
    docs = [f"docs    {write_data_docs(audited, out)}"] if audited.results else []
    return {
        "day": data.day.isoformat(),
        "verdict": data.verdict.status,
        "counts": data.flow.model_dump(),
        "lines": [f"page    {page}", f"figures {figures}", *docs],
        "html": str(page),
        "json": str(figures),
    }


def _gather(
    spark: SparkSession,
    config: PipelineConfig,
    contract: DataContract,
    verdict: certification.Verdict,
    verdicts: list[certification.Verdict],
    *,
    data_docs: bool,
) -> ReportData:
    bronze = read(spark, config.table("bronze"), verdict.bronze_version)
    decoded = decode_all(spark, config, contract, bronze)
    events = profile.of_day(valid(decoded, contract), verdict.day).persist()
    rows = profile.of_day(read(spark, config.table("batch"), verdict.batch_version), verdict.day)
    speed = 0
    if exists(spark, config.table("speed")):
        speed = profile.of_day(read(spark, config.table("speed")), verdict.day).count()
    checks = _checks(spark, config, verdict)
    try:
        return ReportData(
            pipeline=config.name,
            day=verdict.day,
            time_zone=contract.day_time_zone,
            generated_at=datetime.now(UTC),
            version=pipelines.__version__,
            verdict=_verdict(verdict, checks),
            flow=Flow(
                bronze=verdict.bronze,
                other_days=verdict.other_days,
                quarantined=verdict.quarantined,
                day_records=verdict.records,
                duplicates=verdict.duplicates,
                conflicts=verdict.conflicts,
                batch=verdict.rows,
                speed=speed,
                late=verdict.late,
            ),
            duplicates_by_hour=profile.by_hour(events, rows, contract, verdict.day),
            lateness=profile.lateness(events, contract),
            quarantine=profile.quarantine_reasons(
                invalid(decoded, contract), config.audit.examples, values=not contract.personal
            ),
            # The search groups all records of the day, so a day without a conflict is spared it.
            conflict_samples=conflicts.samples(events, contract, config.audit.examples)
            if verdict.conflicts
            else (),
            checks=checks,
            trend=_trend(verdicts, verdict.day),
            data_docs=data_docs,
        )
    finally:
        events.unpersist()


def _results(spark: SparkSession, config: PipelineConfig, verdict: certification.Verdict) -> DataFrame:
    return read(spark, config.ops_table("validation_results")).where(
        (F.col("pipeline") == config.name)
        & (F.col("day") == F.lit(verdict.day))
        & (F.col("run_id") == verdict.run_id)
    )


def _audited(spark: SparkSession, config: PipelineConfig, verdict: certification.Verdict) -> Audited:
    results = _results(spark, config, verdict)
    # An audit of an earlier version of Oncelake has kept no results.
    kept = results.where("result IS NOT NULL").select("result") if "result" in results.columns else None
    said = [row["result"] for row in small_rows(kept)] if kept else []
    return Audited(config.name, verdict.day, verdict.run_id, verdict.decided_at, said)


def _checks(
    spark: SparkSession, config: PipelineConfig, verdict: certification.Verdict
) -> tuple[ReportCheck, ...]:
    results = _results(spark, config, verdict)
    names = ("name", "kind", "status", "observed", "expected", "detail")
    return tuple(ReportCheck(**row) for row in results.select(*names).toArrow().to_pylist())


def _verdict(verdict: certification.Verdict, checks: tuple[ReportCheck, ...]) -> Verdict:
    statuses = [check.status for check in checks]
    return Verdict(
        status=verdict.status,
        certified_at=verdict.decided_at if verdict.status == "certified" else None,
        run_id=verdict.run_id,
        batch_version=verdict.batch_version,
        bronze_version=verdict.bronze_version,
        passed=statuses.count("passed"),
        failed=statuses.count("failed"),
        warned=statuses.count("warned"),
    )


def _trend(verdicts: list[certification.Verdict], day: date) -> tuple[TrendDay, ...]:
    return tuple(
        TrendDay(
            day=v.day,
            status=v.status,
            rows=v.rows,
            records=v.records,
            duplicates=max(0, v.duplicates),
            conflicts=v.conflicts,
            late=v.late,
        )
        for v in [v for v in verdicts if v.day <= day][-_TREND_DAYS:]
    )
