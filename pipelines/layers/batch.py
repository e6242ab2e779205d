"""Batch: rebuild closed days from bronze, audit what was written, certify what passed."""

import logging
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from delta.exceptions import DeltaConcurrentModificationException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.config import PipelineConfig
from pipelines.contract import DataContract
from pipelines.decode import sent_at, valid
from pipelines.dedup import winners
from pipelines.errors import AuditFailed, ConfigError, InfrastructureError, SourceError
from pipelines.ops.certification import Verdict, certified, record_verdicts
from pipelines.ops.lease import lease
from pipelines.ops.leftovers import back_to_certified
from pipelines.ops.writer_schemas import decode_all
from pipelines.quality.audit import Audit, audit, record_checks
from pipelines.quality.facts import days_of
from pipelines.sinks.delta import days_between, read, replace_days, restore
from pipelines.sinks.tables import ensure_batch, exists, version

_FIRST_DAY: Final = date(1970, 1, 1)

_log = logging.getLogger(__name__)


def closed_days(contract: DataContract, first: date | None, last: date | None) -> tuple[date, date]:
    """The range of days to work on; yesterday in the contract's zone if none is named.

    Raises:
        ConfigError: the range is empty, or a day of it is not over yet.
    """
    today = datetime.now(contract.zone).date()
    yesterday = today - timedelta(days=1)
    first = first or last or yesterday
    last = last or first
    if first > last:
        raise ConfigError(f"--from {first} --to {last}: the first day lies after the last; swap them")
    if first < _FIRST_DAY:
        raise ConfigError(f"{first}: Kafka knows no day before {_FIRST_DAY}; mend the date")
    if last >= today:
        raise ConfigError(
            f"{last} is not over in {contract.day_time_zone}, where it is {today} now;"
            f" the last day that can be rebuilt is {yesterday}"
        )
    return first, last


def nightly(
    spark: SparkSession,
    config: PipelineConfig,
    contract: DataContract,
    run_id: str,
    first: date,
    last: date,
) -> dict[str, Any]:
    """Rebuilds, audits and certifies a range of closed days.

    All days are written as one atomic commit and audited as written. Days that fail their audit are
    taken back, so that readers and the next run find the last certified state; the others are certified.

    Args:
        spark: the session.
        config: the pipeline's configuration.
        contract: what the records ought to be.
        run_id: recorded with everything that the run decides.
        first: the first day.
        last: the last day.

    Returns:
        `counts` and `days`, the verdict on each.

    Raises:
        AuditFailed: at least one day failed; the other days are certified.
        SourceError: bronze has not come as far as the days.
        InfrastructureError: another run holds the lease, or wrote to the batch table meanwhile.
    """
    _require_bronze(spark, config, contract, last)
    with lease(spark, config, run_id) as held:
        base = _undo_leftovers(spark, config, contract)
        bronze_version = version(spark, config.table("bronze"))
        _log.info("rebuilding %s to %s from bronze version %d", first, last, bronze_version)
        try:
            built = _build(spark, config, contract, run_id, first, last, bronze_version)
        except DeltaConcurrentModificationException as error:
            raise InfrastructureError(
                f"{config.table('batch')}: another writer changed these days at the same time;"
                " nothing was changed here. Start again when it has ended"
            ) from error
        versions = {"bronze_version": bronze_version, "batch_version": built}
        found = audit(spark, config, contract, days_of(first, last), **versions)
        record_checks(spark, config, found.checks, run_id=run_id, **versions)
        held.require()
        certified_at = _keep_what_passed(spark, config, found, run_id, (first, last), (base, built))
        decided = [
            _verdict(config, found, day, run_id, certified_at if found.passed(day) else built, bronze_version)
            for day in days_of(first, last)
        ]
        record_verdicts(spark, config, decided)
    return _summary(found, decided)


def validate(
    spark: SparkSession,
    config: PipelineConfig,
    contract: DataContract,
    run_id: str,
    day: date,
) -> dict[str, Any]:
    """Audits a day as it stands, against bronze as it is now, and changes nothing but the record of checks.

    Raises:
        AuditFailed: a check failed, e.g. since late events have come after the day was certified.
        SourceError: there is no batch table or no bronze.
    """
    _require_bronze(spark, config, contract, day)
    if not exists(spark, config.table("batch")):
        raise SourceError(f"{config.table('batch')}: no such table; run nightly_batch for {day} first")
    state = certified(spark, config)
    versions = {
        "bronze_version": version(spark, config.table("bronze")),
        "batch_version": state.version if state else version(spark, config.table("batch")),
    }
    found = audit(spark, config, contract, [day], **versions)
    record_checks(spark, config, found.checks, run_id=run_id, **versions)
    if not found.passed(day):
        raise _failure(found, [day], "the day is not what bronze holds now: rebuild it with nightly_batch")
    return {"counts": {"checks": len(found.checks), "rows": found.rows.get(day, 0)}}


def _require_bronze(spark: SparkSession, config: PipelineConfig, contract: DataContract, day: date) -> None:
    bronze = config.table("bronze")
    if not exists(spark, bronze):
        raise SourceError(f"{bronze}: no such table; run ingest_stream first, or mend lake.root")
    newest = read(spark, bronze).agg(F.max(sent_at()).alias("t")).first()
    if newest is None or newest["t"] is None:
        raise SourceError(f"{bronze}: empty; run ingest_stream first")
    reached = newest["t"].astimezone(UTC)
    if reached.astimezone(contract.zone).date() < day:
        raise SourceError(
            f"{bronze}: nothing of {day} yet: its newest record was sent at {reached:%Y-%m-%d %H:%M} UTC;"
            " run ingest_stream until it has caught up"
        )


def _undo_leftovers(spark: SparkSession, config: PipelineConfig, contract: DataContract) -> int:
    """Puts the batch table back to the certified state if a run died between writing and deciding.

    Returns:
        The version that holds the certified state.
    """
    back_to_certified(spark, config)
    # Only now: columns that it adds are a version of their own.
    ensure_batch(spark, config, contract)
    return version(spark, config.table("batch"))


def _build(
    spark: SparkSession,
    config: PipelineConfig,
    contract: DataContract,
    run_id: str,
    first: date,
    last: date,
    bronze_version: int,
) -> int:
    bronze = read(spark, config.table("bronze"), bronze_version)
    horizon = timedelta(days=config.batch.dedup_horizon_days)
    events = valid(decode_all(spark, config, contract, bronze), contract)
    candidates = events.where(days_between(first - horizon, last + horizon))
    chosen = winners(candidates, contract, config.batch.dedup_horizon_days)
    rows = chosen.where(days_between(first, last))
    return replace_days(
        rows.hint("rebalance", "_event_date"),
        config.table("batch"),
        days_of(first, last),
        note=f"build {run_id}",
    )


def _keep_what_passed(
    spark: SparkSession,
    config: PipelineConfig,
    found: Audit,
    run_id: str,
    between: tuple[date, date],
    versions: tuple[int, int],
) -> int:
    """Takes back the days that failed; returns the version that holds those that passed."""
    base, built = versions
    passed = [day for day in days_of(*between) if found.passed(day)]
    if len(passed) == len(days_of(*between)):
        return built
    table = config.table("batch")
    restore(spark, table, base)
    if not passed:
        return built
    rows = read(spark, table, built).where(F.col("_event_date").isin(passed))
    return replace_days(rows, table, passed, note=f"keep {run_id}")


def _verdict(
    config: PipelineConfig, found: Audit, day: date, run_id: str, batch_version: int, bronze_version: int
) -> Verdict:
    facts = found.bronze.days[day]
    rows = found.rows.get(day, 0)
    difference = found.differences.get(day)
    return Verdict(
        pipeline=config.name,
        day=day,
        status="certified" if found.passed(day) else "failed",
        run_id=run_id,
        batch_version=batch_version,
        bronze_version=bronze_version,
        records=facts.records,
        rows=rows,
        duplicates=max(0, facts.records - rows),
        conflicts=facts.conflicts,
        late=difference.late if difference else 0,
        quarantined=found.bronze.quarantined,
        other_days=facts.other_days,
        bronze=found.bronze.total,
        decided_at=datetime.now(UTC),
    )


def _summary(found: Audit, decided: list[Verdict]) -> dict[str, Any]:
    failed = [verdict.day for verdict in decided if verdict.status == "failed"]
    summary: dict[str, Any] = {
        "counts": {
            "days": len(decided),
            "days_certified": len(decided) - len(failed),
            "records": sum(v.records for v in decided),
            "rows": sum(v.rows for v in decided),
            "duplicates": sum(v.duplicates for v in decided),
            "conflicts": sum(v.conflicts for v in decided),
            "late": sum(v.late for v in decided),
            "quarantined": found.bronze.quarantined,
        },
        "days": {v.day.isoformat(): v.status for v in decided},
        "batch_version": decided[0].batch_version,
        "bronze_version": decided[0].bronze_version,
    }
    if failed:
        raise _failure(found, failed, "not certified; readers keep the last certified state", summary)
    return summary


def _failure(
    found: Audit, days: list[date], heading: str, summary: dict[str, Any] | None = None
) -> AuditFailed:
    reasons = [
        f"{check.day} {check.name}: found {check.observed}; expected {check.expected}"
        + (f" ({check.detail})" if check.detail else "")
        for day in days
        for check in found.failed_checks(day)
    ]
    return AuditFailed("\n".join([heading, *reasons]), summary)
