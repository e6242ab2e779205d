"""Batch: rebuild closed days from bronze, audit what was written, certify what passed."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any, NoReturn

from delta.exceptions import DeltaConcurrentModificationException
from pyspark.sql import SparkSession
from tenacity import (
    RetryCallState,
    retry,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from pipelines.config import PipelineConfig
from pipelines.contract import DataContract
from pipelines.decode import valid
from pipelines.dedup import winners
from pipelines.errors import ConfigError, InfrastructureError
from pipelines.faults import FIRST_DAY
from pipelines.ops.bronze_index import Pieces, pieces_of
from pipelines.ops.certification import (
    Certified,
    certified_in,
    history,
    newest_audited,
    record_verdicts,
)
from pipelines.ops.due import Repair, due_days
from pipelines.ops.indexing import index_bronze
from pipelines.ops.layer_samples import record_samples
from pipelines.ops.lease import lease
from pipelines.ops.leftovers import back_to_certified
from pipelines.ops.retention import require_whole
from pipelines.ops.runs import Steps
from pipelines.ops.seal import seal
from pipelines.ops.writer_schemas import decode_all
from pipelines.quality.audit import Audit, audit, record_checks
from pipelines.quality.changes import Changes, changes, moves
from pipelines.quality.decision import Run, decide, failed_days, failure, summary, words
from pipelines.quality.facts import around, reach
from pipelines.quality.integrity import fail_together
from pipelines.sinks.delta import by_day_and_key, on_days, read, replace_days, restore
from pipelines.sinks.event_tables import ensure_batch, require_same_days
from pipelines.sinks.tables import conform, events_schema, require_table, version

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
    if first < FIRST_DAY:
        raise ConfigError(f"{first}: Kafka knows no day before {FIRST_DAY}; mend the date")
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
    asked: Sequence[date],
    repair: Repair = "nothing",
) -> dict[str, Any]:
    """Seals, rebuilds, audits and certifies closed days.

    All days are written as one atomic commit and audited as written. Days that fail their audit are
    taken back, so that readers and the next run find the last certified state; the others are certified.
    Each step is recorded in `ops/runs`.

    Args:
        spark: the session.
        config: the pipeline's configuration.
        contract: what the records ought to be.
        run_id: recorded with everything that the run decides.
        asked: the days, sorted.
        repair: which days before them are rebuilt as well.

    Returns:
        `counts`; `days`, the verdict on each; and what was left, since it lies before the lookback or only
        some days were asked for: `late_days_left`, certified days that have late records, and
        `missed_days_left`, days with events that no run has certified.

    Raises:
        AuditFailed: at least one day failed; the other days are certified.
        SourceError: bronze has not come as far as the days.
        InfrastructureError: another run holds the lease, or others wrote to the batch table meanwhile.
    """
    require_table(spark, config, "bronze")
    require_whole(spark, config, asked)
    steps = Steps(config, run_id, list(asked))
    with lease(spark, config, run_id) as held:
        try:
            ledger = history(spark, config)
            with steps.step("seal") as detail:
                index = seal(spark, config, contract, asked[-1])
                due = due_days(spark, config, contract, index, asked, repair, ledger)
                detail.append(f"bronze version {index.version}")
            steps.days = due.days
            before = certified_in(ledger)
            base = _undo_leftovers(spark, config, contract, before)
            _log.info("rebuilding %s from bronze version %d", words(due.causes), index.version)
            near = around(due.days, reach(contract, config.batch.dedup_horizon_days))
            pieces = pieces_of(spark, config, index, near, newest_audited(ledger))
            with steps.step("build") as detail:
                built = _build(spark, config, contract, run_id, due.days, pieces)
                detail.append(f"batch version {built}")
            with steps.step("audit") as detail:
                closed = {*due.days, *(before.days if before else ())}
                found = audit(spark, config, contract, due.days, closed, pieces, built)
                found = _with_moves(spark, config, contract, found, due.days, before, built)
                _record(spark, config, run_id, found, index.version, built)
                detail.append(
                    f"{len(found.checks)} checks; Great Expectations took {found.expectations_s:.1f} s of it"
                )
            with steps.step("certify") as detail:
                changed = _changes(spark, config, contract, due.days, before, built)
                held.require()
                kept = _keep_what_passed(spark, config, contract, found, run_id, due.days, (base, built))
                run = Run(config.name, run_id, index.version, built, kept)
                decided = decide(run, found, due, before, changed)
                held.require()
                record_verdicts(spark, config, decided)
                detail.append(f"{sum(v.status == 'certified' for v in decided)} of {len(decided)} days")
        finally:
            steps.write(spark)
    told = summary(run, found, decided, due)
    told["warnings"] += steps.warnings
    if failed := failed_days(decided):
        raise failure(found, failed, "not certified; readers keep the last certified state", told)
    return told


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
        ConfigError: the day is not certified.
        SourceError: there is no bronze.
    """
    require_table(spark, config, "bronze")
    require_whole(spark, config, [day])
    ledger = history(spark, config)
    state = certified_in(ledger)
    if state is None or day not in state.days:
        raise ConfigError(
            f"{day} is not certified, so readers have nothing of it that could be validated; run"
            f" nightly_batch --date {day}"
        )
    require_same_days(spark, config, contract)
    index = index_bronze(spark, config, contract, version(spark, config.table("bronze")), keep=False)
    near = around([day], reach(contract, config.batch.dedup_horizon_days))
    pieces = pieces_of(spark, config, index, near, newest_audited(ledger))
    found = audit(spark, config, contract, [day], state.days, pieces, state.version)
    _record(spark, config, run_id, found, index.version, state.version)
    if not found.passed(day):
        raise failure(found, [day], "the day is not what bronze holds now: rebuild it with nightly_batch")
    return {"counts": {"checks": len(found.checks), "rows": found.rows.get(day, 0)}}


def _record(
    spark: SparkSession, config: PipelineConfig, run_id: str, found: Audit, bronze: int, batch: int
) -> None:
    record_checks(spark, config, found.checks, run_id=run_id, bronze_version=bronze, batch_version=batch)
    record_samples(spark, config, found.differences, run_id)


def _undo_leftovers(
    spark: SparkSession, config: PipelineConfig, contract: DataContract, state: Certified | None
) -> int:
    """Puts the batch table back to the certified state if a run died between writing and deciding.

    Returns:
        The version that holds the certified state.
    """
    back_to_certified(spark, config, state)
    # Only now: columns that it adds are a version of their own.
    ensure_batch(spark, config, contract)
    return version(spark, config.table("batch"))


def _others_wrote(state: RetryCallState) -> NoReturn:
    raise InfrastructureError(
        f"{state.args[1].table('batch')}: other writers changed these days at the same time, again and again;"
        " nothing was changed here. Start again when they have ended"
    )


@retry(
    retry=retry_if_exception_type(DeltaConcurrentModificationException),
    wait=wait_random_exponential(multiplier=1, max=30),
    stop=stop_after_attempt(4),
    retry_error_callback=_others_wrote,
)
def _build(
    spark: SparkSession,
    config: PipelineConfig,
    contract: DataContract,
    run_id: str,
    days: Sequence[date],
    pieces: Pieces,
) -> int:
    horizon = config.batch.dedup_horizon_days
    events = valid(decode_all(spark, config, contract, pieces.envelopes), contract)
    candidates = events.where(on_days(around(days, reach(contract, horizon))))
    rows = winners(candidates, contract, horizon).where(on_days(days))
    return replace_days(
        by_day_and_key(rows, contract.key), config.table("batch"), days, note=f"build {run_id}"
    )


def _keep_what_passed(
    spark: SparkSession,
    config: PipelineConfig,
    contract: DataContract,
    found: Audit,
    run_id: str,
    days: Sequence[date],
    versions: tuple[int, int],
) -> int:
    """Takes back the days that failed; returns the version that holds those that passed."""
    base, built = versions
    passed = [day for day in days if found.passed(day)]
    if len(passed) == len(days):
        return built
    table = config.table("batch")
    restore(spark, table, base)
    if not passed:
        return built
    rows = by_day_and_key(read(spark, table, built).where(on_days(passed)), contract.key)
    return replace_days(rows, table, passed, note=f"keep {run_id}")


def _with_moves(
    spark: SparkSession,
    config: PipelineConfig,
    contract: DataContract,
    found: Audit,
    days: Sequence[date],
    before: Certified | None,
    built: int,
) -> Audit:
    """Lets days fail together between which events move: one alone would hold these twice, or not at all."""
    failed = {day for day in days if not found.passed(day)}
    horizon = reach(contract, config.batch.dedup_horizon_days)
    if before is None or not horizon or not 0 < len(failed) < len(days):
        return found
    old, new = (read(spark, config.table("batch"), at).where(on_days(days)) for at in (before.version, built))
    return replace(found, checks=(*found.checks, *fail_together(failed, moves(old, new, contract, horizon))))


def _changes(
    spark: SparkSession,
    config: PipelineConfig,
    contract: DataContract,
    days: Sequence[date],
    before: Certified | None,
    built: int,
) -> dict[date, Changes]:
    """What the rebuild changed of days that were certified before."""
    again = [day for day in days if before is not None and day in before.days]
    if before is None or not again:
        return {}
    schema = events_schema(contract)
    old, new = (
        conform(read(spark, config.table("batch"), at).where(on_days(again)), schema)
        for at in (before.version, built)
    )
    return changes(old, new, contract)
