"""What a nightly run decides about its days, and its summary; no table is read."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from typing import TypedDict

from pipelines.audit.audit import Audit
from pipelines.audit.rebuild_diff import Changes
from pipelines.durations import days_in_a_row
from pipelines.ledger.certifications import Certified, Verdict
from pipelines.ledger.checks import LATE_WITHIN_LIMIT
from pipelines.nightly.rebuild_plan import Due

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """A run and the versions that it worked on.

    Attributes:
        pipeline: the pipeline's name.
        run_id: the run.
        bronze_version: the version of bronze that the days were built from.
        bronze_id: which bronze that is, see `pipelines.ledger.bronze_index.BronzeIndex`.
        built: the version of the batch table that was audited.
        kept_version: the version that holds the days that passed.
        epoch: the epoch of the run's lease.
        kept_commit: the hash of the commit that made `kept_version`.
        bronze_commit: the hash of the commit that made `bronze_version`.
    """

    pipeline: str
    run_id: str
    bronze_version: int
    bronze_id: str
    built: int
    kept_version: int
    epoch: int
    kept_commit: str | None
    bronze_commit: str | None


def decide(
    run: Run, audit: Audit, due: Due, before: Certified | None, changed: Mapping[date, Changes]
) -> list[Verdict]:
    """Return the verdict on each day.

    Args:
        run: the run.
        audit: what its audit found.
        due: the days and why they were rebuilt.
        before: what readers had before.
        changed: what the rebuild changed of days that were certified before.
    """
    verdicts = []
    for day in due.days:
        facts, rows, difference = audit.bronze.days[day], audit.rows.get(day, 0), audit.differences.get(day)
        verdict = Verdict(
            pipeline=run.pipeline,
            day=day,
            status="certified" if audit.passed(day) else "failed",
            run_id=run.run_id,
            batch_version=run.kept_version if audit.passed(day) else run.built,
            bronze_version=run.bronze_version,
            bronze_id=run.bronze_id,
            records=facts.records,
            rows=rows,
            duplicates=max(0, facts.records - rows),
            conflicts=facts.conflicts,
            late=difference.late if difference else 0,
            quarantined=audit.bronze.quarantined,
            other_days=facts.other_days,
            bronze=audit.bronze.total,
            decided_at=datetime.now(UTC),
            cause=due.causes[day],
            came_late=due.came_late.get(day, 0),
            base_version=before.version if before else -1,
            epoch=run.epoch,
            batch_commit=run.kept_commit if audit.passed(day) else None,
            bronze_commit=run.bronze_commit,
        )
        if before is not None and day in before.days:
            changes = asdict(changed.get(day, Changes()))
            verdict = replace(verdict, previous_version=before.version, **changes)
        verdicts.append(verdict)
    return verdicts


def failed_days(decided: Sequence[Verdict]) -> list[date]:
    """Return the days that did not pass."""
    return [verdict.day for verdict in decided if verdict.status == "failed"]


class RowChanges(TypedDict):
    """How many rows of a certified day a rebuild has changed."""

    added: int
    removed: int
    changed: int


class AlsoRebuilt(TypedDict):
    """A day that was rebuilt for another cause than a request.

    Attributes:
        cause: The cause.
        status: `certified` or `failed`.
        rows: What changed for readers; None if the day was not certified before, or is not now.
    """

    cause: str | None
    status: str
    rows: RowChanges | None


class NightSummary(TypedDict):
    """What a nightly run did.

    Attributes:
        counts: `days`, `days_certified`, `days_repaired`; `records`, `rows`, `duplicates`, `conflicts`,
            `late` and `quarantined`, of all days together.
        days: By day, `certified` or `failed`.
        batch_version: The version of the batch table that is certified; None if no day passed.
        bronze_version: The version of bronze that was read.
        late_days_left: Certified days with late records that this run did not rebuild.
        missed_days_left: Days with events, before the requested ones, that no run has certified.
        warnings: Texts: days with many late events, steps that could not be recorded.
        also_rebuilt: By day that was rebuilt for another cause than a request: why, and what changed.
    """

    counts: dict[str, int]
    days: dict[str, str]
    batch_version: int | None
    bronze_version: int
    late_days_left: list[str]
    missed_days_left: list[str]
    warnings: list[str]
    also_rebuilt: dict[str, AlsoRebuilt]


def summary(run: Run, audit: Audit, decided: Sequence[Verdict], due: Due) -> NightSummary:
    """Return the summary of a run, and log what it leaves undone and what it warns of.

    Args:
        run: the run.
        audit: what its audit found.
        decided: its verdicts.
        due: the days and why they were rebuilt.
    """
    failed = failed_days(decided)
    if due.left:
        _log.warning(
            "records came late for days that this run leaves as they are: %s; rebuild with --from and --to",
            days_text(due.left),
        )
    if due.never_certified:
        _log.warning(
            "days that no run has certified, and that this run leaves: %s; rebuild with --from and --to",
            days_text(due.never_certified),
        )
    return {
        "counts": {
            "days": len(decided),
            "days_certified": len(decided) - len(failed),
            "records": sum(v.records for v in decided),
            "rows": sum(v.rows for v in decided),
            "duplicates": sum(v.duplicates for v in decided),
            "conflicts": sum(v.conflicts for v in decided),
            "late": sum(v.late for v in decided),
            "quarantined": audit.bronze.quarantined,
            "days_repaired": sum(v.is_repair for v in decided),
        },
        "days": {v.day.isoformat(): v.status for v in decided},
        "batch_version": run.kept_version if len(failed) < len(decided) else None,
        "bronze_version": run.bronze_version,
        "late_days_left": [day.isoformat() for day in due.left],
        "missed_days_left": [day.isoformat() for day in due.never_certified],
        "warnings": _many_late(audit),
        "also_rebuilt": {v.day.isoformat(): _also_rebuilt(v) for v in decided if v.cause != "asked"},
    }


def _many_late(audit: Audit) -> list[str]:
    """Return days of which real time lacked many events, as text for the summary; the log warns of them."""
    many = (check for check in audit.checks if check.name == LATE_WITHIN_LIMIT and check.status == "warned")
    warnings = [f"late events on {check.day}: {check.observed}; expected {check.expected}" for check in many]
    for warning in warnings:
        _log.warning("%s; see docs/runbook.md, 'Many late records'", warning)
    return warnings


def days_text(days: Iterable[date]) -> str:
    """Return days as people write them: `2013-01-01 to 2013-01-05, 2013-01-09`."""
    runs = days_in_a_row(sorted(days))
    return ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in runs)


def _also_rebuilt(verdict: Verdict) -> AlsoRebuilt:
    rows: RowChanges = {
        "added": verdict.added or 0,
        "removed": verdict.removed or 0,
        "changed": verdict.changed or 0,
    }
    return {"cause": verdict.cause, "status": verdict.status, "rows": rows if verdict.is_repair else None}
