"""Audit a certified day again, without rebuilding it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from pipelines.audit.audit import audit, record_audit
from pipelines.audit.audited_days import AuditedDays, span_of
from pipelines.config.commands import command
from pipelines.delta.event_tables import require_same_days
from pipelines.delta.first_complete_day import first_complete_day
from pipelines.delta.record_tables import require_table
from pipelines.delta.tables import version
from pipelines.errors import AuditFailed, ConfigError, InfrastructureError, SourceError
from pipelines.fault_points import Point, reach
from pipelines.ledger.bronze_indexer import index_bronze
from pipelines.ledger.bronze_verdicts import slice_to_audit
from pipelines.ledger.certifications import (
    Verdict,
    certified_in,
    history,
    newest_certified,
    require_certified,
)
from pipelines.ledger.forgotten_places import forgotten_after, require_forgotten, times_remembered
from pipelines.ledger.kept_values import delete_if_forgotten
from pipelines.ledger.retention_properties import require_complete_days
from pipelines.spark.pipeline import Pipeline


@dataclass(frozen=True)
class Validation:
    """What the audit of a certified day has looked at, and found as it was certified.

    Attributes:
        checks: How many checks were made.
        rows: How many rows the batch layer has on the day.
    """

    checks: int
    rows: int


def validate(pipeline: Pipeline, run_id: str, day: date) -> Validation:
    """Audit a day as it is, against bronze as it is now. No rows of the day are changed.

    Raises:
        AuditFailed: A check failed, e.g. since late events have come after the day was certified.
        ConfigError: The day is not certified.
        SourceError: There is no bronze, or it, or the day, holds what was forgotten.
        InfrastructureError: Events were forgotten meanwhile.
    """
    require_table(pipeline, "bronze")
    require_complete_days(pipeline, [day])
    ledger = history(pipeline)
    state = certified_in(ledger)
    if state is None or day not in state.days:
        raise ConfigError(
            f"{day} is not certified, so readers have nothing of it that could be validated; run"
            f" {command(pipeline.config, 'nightly_batch', f'--date {day}')}"
        )
    require_certified(pipeline, state)
    require_same_days(pipeline)
    known = times_remembered(pipeline)
    require_forgotten(pipeline)
    _require_built_since(pipeline, ledger, day)
    index = index_bronze(pipeline, version(pipeline.spark, pipeline.table("bronze")))
    span = span_of(pipeline, [day], first_complete_day(pipeline))
    pieces = slice_to_audit(pipeline, ledger, index, span.near)
    day_audit = audit(AuditedDays(pipeline, span, state.days, pieces, state.version))
    reach(Point.DAYS_AUDITED)
    record_audit(pipeline, run_id, day_audit, index.version, state.version)
    # It holds no lease, so that it may have read what was forgotten meanwhile.
    if delete_if_forgotten(pipeline, known, [day]):
        raise InfrastructureError(
            f"{day}: events were forgotten while it was audited, so the values that the audit had kept of the"
            " day were deleted; run the command again"
        )
    if not day_audit.passed(day):
        again = command(pipeline.config, "nightly_batch", f"--date {day}")
        raise AuditFailed(day_audit.failure([day], f"the day is not what bronze holds now; run: {again}"))
    return Validation(checks=len(day_audit.checks), rows=day_audit.rows.get(day, 0))


def _require_built_since(pipeline: Pipeline, ledger: Sequence[Verdict], day: date) -> None:
    """Make sure that no event of a day was forgotten that its certified rows still have.

    The audit would keep samples of what it differs in from the other layers.

    Raises:
        SourceError: Some were.
    """
    decided = newest_certified(ledger)[day].decided_at
    if number := forgotten_after(pipeline, {day: decided}).get(day):
        raise SourceError(
            f"{pipeline.table('batch')}: {day} was certified before {number:,} of its records were forgotten,"
            " and readers have them until it is rebuilt. Nothing was audited. Run first:"
            f" {command(pipeline.config, 'nightly_batch', f'--date {day}')}; see docs/runbook.md,"
            " 'Forget a person'"
        )
