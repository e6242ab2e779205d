"""Report: gathers what the lake says of a day and writes it for people and for programs."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import pipelines
from pipelines.audit.integrity_checks import shown_detail
from pipelines.config.commands import command
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.delta.io import small_rows
from pipelines.delta.record_tables import require_table
from pipelines.delta.small_tables import read_small
from pipelines.delta.tables import exists, version
from pipelines.delta.time_travel import read_kept
from pipelines.errors import SourceError
from pipelines.expectations.outcomes import as_shown, stored_check
from pipelines.ledger import certifications
from pipelines.ledger.bronze_index import BronzeIndex, bronze_slice
from pipelines.ledger.bronze_indexer import index_as_of, index_bronze
from pipelines.ledger.bronze_verdicts import own_verdicts, slice_to_audit
from pipelines.ledger.decoding import decode_all
from pipelines.ledger.layer_samples import samples_of
from pipelines.ledger.ops_tables import VALIDATION_RESULTS
from pipelines.ledger.retention_properties import first_rebuildable_day
from pipelines.records.decode import invalid, valid
from pipelines.report.model import verdict_history
from pipelines.report.model.flow import flow_of, flow_so_far
from pipelines.report.model.report import DayStatus, DayVerdict, ReportCheck, ReportData, TrendDay
from pipelines.report.queries import conflicts, profile, row_changes
from pipelines.report.render import document
from pipelines.report.render.data_docs import Audited, write_data_docs
from pipelines.report.render.files import ReportFormat, write_report
from pipelines.spark.pipeline import Pipeline

_NOT_SHOWN: Final = "not shown, since the contract has personal data"


@dataclass(frozen=True)
class WrittenReport:
    """A report, and where it was written to.

    Attributes:
        data: What it says.
        files: Its files by sort: `html`, `json`, `index`, `markdown`, `docs`.
    """

    data: ReportData
    files: dict[str, Path]


def report(
    pipeline: Pipeline,
    day: date | None,
    out: Path,
    report_format: ReportFormat = "html",
) -> WrittenReport:
    """Write the data quality report of a day into a folder, as `OUT/PIPELINE-DAY.…`.

    Beside the page of a day that a nightly run has decided on stand Great Expectations' Data Docs of it.

    Args:
        pipeline: The pipeline.
        day: The event day; None for the last one that a nightly run has decided on. A day that none has
            decided on gets a short report that says so.
        out: The folder to write to.
        report_format: `html` stands for the page, the same as JSON, Data Docs, and the index of the folder.

    Raises:
        SourceError: No day is named and no nightly run has decided on one yet; there is no bronze; or a
            version that the verdict names is gone.
    """
    verdicts = certifications.history(pipeline)
    newest = {verdict.day: verdict for verdict in verdicts}
    requested_day = day or _last_decided(pipeline.config, newest)
    audited = None
    if requested_day in newest:
        if report_format == "html":
            audited = _audited(pipeline, newest[requested_day])
        data = _decided(pipeline, newest[requested_day], verdicts, data_docs=audited is not None)
    else:
        data = _undecided(pipeline, requested_day, verdicts)
    files = write_report(data, out, report_format)
    if audited:
        files["docs"] = write_data_docs(audited, out)
    return WrittenReport(data, files)


def _last_decided(config: PipelineConfig, days: Collection[date]) -> date:
    if not days:
        raise SourceError(
            f"{config.name}: nothing to report: no nightly run has decided on a day; name a day with --date,"
            f" or run first: {command(config, 'nightly_batch')}"
        )
    return max(days)


def _decided(
    pipeline: Pipeline,
    verdict: certifications.Verdict,
    verdicts: Sequence[certifications.Verdict],
    *,
    data_docs: bool,
) -> ReportData:
    contract = pipeline.contract
    day = verdict.day
    index = _index_then(pipeline, verdict, verdicts)
    rows = _rows_then(pipeline, verdict)
    verdicts_of_bronze = own_verdicts(pipeline, verdicts, index)
    since = certifications.newest_bronze_version(
        v for v in verdicts_of_bronze if v.bronze_version < verdict.bronze_version
    )
    pieces = bronze_slice(pipeline, index, [day], since)
    decoded = decode_all(pipeline, pieces.envelopes)
    events = profile.of_day(valid(decoded, contract), day).persist()
    checks = _checks(pipeline, verdict)
    trend = verdict_history.trend(verdicts, day, _quarantined(pipeline, verdicts, day))
    try:
        return ReportData(
            **_heading(pipeline, day),
            verdict=_verdict(verdict, checks),
            flow=flow_of(verdict, _in_speed(pipeline, day)),
            duplicates_by_hour=profile.by_hour(events, rows, contract, day),
            lateness=document.lateness_buckets(profile.lateness_counts(events, contract)),
            quarantine=profile.quarantine_reasons(
                index.reasons(),
                invalid(decoded, contract),
                pipeline.config.audit.examples,
                values=not contract.personal,
            ),
            # The search groups all records of the day, so a day without a conflict is spared it.
            conflict_samples=conflicts.samples(events, contract, pipeline.config.audit.examples)
            if verdict.conflicts
            else (),
            layer_differences=document.grouped_differences(samples_of(pipeline, verdict.day, verdict.run_id)),
            checks=checks,
            trend=trend,
            history=verdict_history.past_verdicts(verdicts, day),
            repairs=verdict_history.repairs(verdicts, [entry.day for entry in trend]),
            comparison=document.comparison(verdict, row_changes.changes(pipeline, verdict, rows)),
            data_docs=data_docs,
        )
    finally:
        events.unpersist()


def _rows_then(pipeline: Pipeline, verdict: certifications.Verdict) -> DataFrame:
    """Return the rows of a day as its verdict saw them."""
    rows = read_kept(pipeline.spark, pipeline.table("batch"), verdict.batch_version, [verdict.day])
    if rows is None:
        raise SourceError(
            f"{pipeline.table('batch')}: version {verdict.batch_version}, which the verdict on {verdict.day}"
            f" names, is gone: VACUUM has deleted its files. {_rebuild(pipeline.config, verdict.day)}"
        )
    return rows


def _undecided(
    pipeline: Pipeline,
    day: date,
    verdicts: Sequence[certifications.Verdict],
) -> ReportData:
    """Return what can be said of a day before any nightly run: what came, and what the speed layer has."""
    contract = pipeline.contract
    table = require_table(pipeline, "bronze")
    bronze_version = version(pipeline.spark, table)
    index = index_bronze(pipeline, bronze_version)
    pieces = slice_to_audit(pipeline, verdicts, index, [day])
    reasons = profile.quarantine_reasons(
        index.reasons(),
        invalid(decode_all(pipeline, pieces.envelopes), contract),
        pipeline.config.audit.examples,
        values=not contract.personal,
    )
    flow = flow_so_far(index.counts(), day, _in_speed(pipeline, day))
    quarantined = _quarantined(pipeline, verdicts, day)
    status: DayStatus = "not_certified" if day < datetime.now(contract.zone).date() else "open"
    trend = verdict_history.trend(verdicts, day, quarantined)
    this = TrendDay(
        day=day,
        status=status,
        rows=0,
        records=flow.day_records,
        duplicates=0,
        conflicts=0,
        late=0,
        quarantined=None if quarantined is None else quarantined.get(day, 0),
    )
    return ReportData(
        **_heading(pipeline, day),
        verdict=DayVerdict(status=status, bronze_version=bronze_version, passed=0, failed=0, warned=0),
        flow=flow,
        quarantine=reasons,
        trend=(*trend, this),
        repairs=verdict_history.repairs(verdicts, [entry.day for entry in trend]),
    )


def _heading(pipeline: Pipeline, day: date) -> dict[str, Any]:
    return {
        "pipeline": pipeline.config.name,
        "day": day,
        "time_zone": pipeline.contract.day_time_zone,
        "generated_at": datetime.now(UTC),
        "version": pipelines.__version__,
    }


def _index_then(
    pipeline: Pipeline,
    verdict: certifications.Verdict,
    verdicts: Sequence[certifications.Verdict],
) -> BronzeIndex:
    """Return the index of bronze as a verdict saw it."""
    table = require_table(pipeline, "bronze")
    first = first_rebuildable_day(pipeline)
    if first is not None and verdict.day < first:
        raise SourceError(
            f"{table}: records of {verdict.day} are gone from bronze. The"
            f" first day that can be reported is {first}; a report that was written earlier is still valid"
        )
    index = index_as_of(pipeline, verdict.bronze_version)
    if verdict not in own_verdicts(pipeline, verdicts, index):
        raise SourceError(
            f"{table}: the verdict on {verdict.day} names version {verdict.bronze_version} of another"
            f" table: found id {index.bronze_id}, expected {verdict.bronze_id or 'an earlier one'}."
            f" {_rebuild(pipeline.config, verdict.day)}"
        )
    return index


def _rebuild(config: PipelineConfig, day: date) -> str:
    rebuild = command(config, "nightly_batch", f"--date {day}")
    return f"Rebuild the day ({rebuild}), or use a report that was written earlier"


def _in_speed(pipeline: Pipeline, day: date) -> int:
    table = pipeline.table("speed")
    return (
        profile.of_day(read_small(pipeline.spark, table), day).count() if exists(pipeline.spark, table) else 0
    )


def _quarantined(
    pipeline: Pipeline,
    verdicts: Sequence[certifications.Verdict],
    day: date,
) -> dict[date, int] | None:
    """Return the records in quarantine that were not replayed, by the day on which they were sent."""
    table = pipeline.table("quarantine")
    if not exists(pipeline.spark, table):
        return None
    first = min([day, *verdict_history.trend_days(verdicts, day)])
    return profile.sent_by_day(
        read_small(pipeline.spark, table).where("_status <> 'replayed'"), pipeline.contract, first, day
    )


def _results(pipeline: Pipeline, verdict: certifications.Verdict) -> DataFrame:
    return VALIDATION_RESULTS.rows(pipeline).where(
        (F.col("day") == F.lit(verdict.day)) & (F.col("run_id") == verdict.run_id)
    )


def _audited(pipeline: Pipeline, verdict: certifications.Verdict) -> Audited | None:
    """Return what Great Expectations said in the audit; None if there is nothing of it."""
    results = _results(pipeline, verdict)
    # An audit of an earlier version of Oncelake has kept no results.
    stored = results.where("result IS NOT NULL").select("result") if "result" in results.columns else None
    texts = [as_shown(row["result"], pipeline.contract) for row in small_rows(stored)] if stored else []
    return (
        Audited(pipeline.config.name, verdict.day, verdict.run_id, verdict.decided_at, texts)
        if texts
        else None
    )


def _checks(pipeline: Pipeline, verdict: certifications.Verdict) -> tuple[ReportCheck, ...]:
    results = _results(pipeline, verdict)
    # An audit of an earlier version of Oncelake has kept no results.
    names = [name for name in (*ReportCheck.model_fields, "day", "result") if name in results.columns]
    return tuple(_check(pipeline.contract, **row) for row in results.select(*names).toArrow().to_pylist())


def _check(contract: DataContract, day: date, result: str | None = None, **stored: Any) -> ReportCheck:
    """Return a stored check, as far as the contract lets it be shown."""
    if stored["kind"] == "integrity":
        shown = {"detail": shown_detail(stored["name"], stored["detail"], contract)}
    elif contract.personal and result:
        check = stored_check(day, result, contract)
        shown = {"observed": check.observed, "detail": check.detail}
    else:
        # Of what an earlier version of Oncelake has found nobody can tell values apart.
        shown = {"observed": _NOT_SHOWN, "detail": ""} if contract.personal else {}
    return ReportCheck(**stored | shown)


def _verdict(verdict: certifications.Verdict, checks: tuple[ReportCheck, ...]) -> DayVerdict:
    statuses = [check.status for check in checks]
    return DayVerdict(
        status=verdict.status,
        certified_at=verdict.decided_at if verdict.status == "certified" else None,
        run_id=verdict.run_id,
        batch_version=verdict.batch_version,
        bronze_version=verdict.bronze_version,
        passed=statuses.count("passed"),
        failed=statuses.count("failed"),
        warned=statuses.count("warned"),
    )
