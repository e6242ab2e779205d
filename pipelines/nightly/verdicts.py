"""What a nightly run decides about its days, and its result; no table is read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime

from pipelines.audit.audit import Audit
from pipelines.audit.rebuild_diff import Changes
from pipelines.durations import days_in_a_row
from pipelines.errors import AuditFailed
from pipelines.ledger.certifications import Certified, Verdict, VerdictStatus
from pipelines.ledger.checks import CLUSTERS_ASKED, LATE_WITHIN_LIMIT
from pipelines.nightly.rebuild_plan import Due


@dataclass(frozen=True)
class Run:
    """A run and the versions that it worked on.

    Attributes:
        pipeline: The pipeline's name.
        run_id: The run.
        bronze_version: The version of bronze that the days were built from.
        bronze_id: Which bronze that is, see `pipelines.ledger.bronze_index.BronzeIndex`.
        built: The version of the batch table that was audited.
        kept_version: The version that holds the days that passed.
        epoch: The epoch of the run's lease.
        kept_commit: The hash of the commit that made `kept_version`.
        bronze_commit: The hash of the commit that made `bronze_version`.
        decided_at: When it decides, in UTC.
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
    decided_at: datetime


def decide_days(
    run: Run, audit: Audit, due: Due, before: Certified | None, changed: Mapping[date, Changes]
) -> list[Verdict]:
    """Return the verdict on each day.

    Args:
        run: The run.
        audit: What its audit found.
        due: The days and why they were rebuilt.
        before: What readers had before.
        changed: What the rebuild changed of days that were certified before.
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
            decided_at=run.decided_at,
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


@dataclass(frozen=True)
class NightCounts:
    """What a nightly run counted, of all its days together.

    Attributes:
        days: Days that were rebuilt.
        days_certified: Of these, the days that passed their audit.
        records: Valid records of the days in bronze.
        rows: Rows of the days in the batch layer.
        duplicates: `records` - `rows`.
        conflicts: Keys whose copies carry different payloads.
        late: Rows that the speed layer had dropped as late.
        quarantined: Records in bronze that break the contract, of whatever day.
        days_repaired: Days that were certified before and are certified again.
    """

    days: int
    days_certified: int
    records: int
    rows: int
    duplicates: int
    conflicts: int
    late: int
    quarantined: int
    days_repaired: int


@dataclass(frozen=True)
class NightResult:
    """What a nightly run did.

    Attributes:
        verdicts: The verdict on each day, in the order of the days.
        quarantined: Records in bronze that break the contract, of whatever day.
        batch_version: The version of the batch table that is certified; None if no day passed.
        bronze_version: The version of bronze that was read.
        late_days_left: Certified days with late records that this run did not rebuild.
        missed_days_left: Days with events, before the requested ones, that no run has certified.
        warnings: Texts: days with many late events, steps that could not be recorded.
    """

    verdicts: tuple[Verdict, ...]
    quarantined: int
    batch_version: int | None
    bronze_version: int
    late_days_left: tuple[date, ...]
    missed_days_left: tuple[date, ...]
    warnings: tuple[str, ...]

    @property
    def days(self) -> dict[date, VerdictStatus]:
        """The status of each day, in the order of the days."""
        return {verdict.day: verdict.status for verdict in self.verdicts}

    @property
    def counts(self) -> NightCounts:
        """What was counted, of all days together."""
        verdicts = self.verdicts
        return NightCounts(
            days=len(verdicts),
            days_certified=len(verdicts) - len(failed_days(verdicts)),
            records=sum(v.records for v in verdicts),
            rows=sum(v.rows for v in verdicts),
            duplicates=sum(v.duplicates for v in verdicts),
            conflicts=sum(v.conflicts for v in verdicts),
            late=sum(v.late for v in verdicts),
            quarantined=self.quarantined,
            days_repaired=sum(v.is_repair for v in verdicts),
        )

    @property
    def also_rebuilt(self) -> tuple[Verdict, ...]:
        """The verdicts on days that were rebuilt for another cause than a request."""
        return tuple(verdict for verdict in self.verdicts if verdict.cause != "asked")


class NightFailed(AuditFailed):
    """At least one day did not pass its audit; the other days are certified.

    Attributes:
        result: What the run did.
    """

    def __init__(self, message: str, result: NightResult) -> None:
        super().__init__(message)
        self.result = result


def night_result(run: Run, audit: Audit, decided: Sequence[Verdict], due: Due) -> NightResult:
    """Return what a run did, with what it warns of.

    Args:
        run: The run.
        audit: What its audit found.
        decided: Its verdicts.
        due: The days and why they were rebuilt.
    """
    return NightResult(
        verdicts=tuple(decided),
        quarantined=audit.bronze.quarantined,
        batch_version=run.kept_version if len(failed_days(decided)) < len(decided) else None,
        bronze_version=run.bronze_version,
        late_days_left=tuple(due.late_days_not_rebuilt),
        missed_days_left=tuple(due.never_certified),
        warnings=(*_not_asked(audit), *_many_late(audit)),
    )


def log_lines(result: NightResult) -> Iterator[str]:
    """Yield what the log warns of: what a run leaves undone, and its warnings.

    The summary has the days that are left as fields of their own, not as texts.
    """
    if result.late_days_left:
        yield (
            "records came late for days that this run leaves as they are:"
            f" {days_text(result.late_days_left)}; rebuild with --from and --to"
        )
    if result.missed_days_left:
        yield (
            "days that no run has certified, and that this run leaves:"
            f" {days_text(result.missed_days_left)}; rebuild with --from and --to"
        )
    yield from result.warnings


def _not_asked(audit: Audit) -> tuple[str, ...]:
    """Return what is certified without the word of a cluster, as text."""
    named = (each for each in audit.checks if (each.name, each.status) == (CLUSTERS_ASKED, "warned"))
    return tuple({each.observed: f"clusters {each.observed}: {each.detail}" for each in named}.values())


def _many_late(audit: Audit) -> tuple[str, ...]:
    """Return days of which real time lacked many events, as text."""
    many = (check for check in audit.checks if check.name == LATE_WITHIN_LIMIT and check.status == "warned")
    return tuple(
        f"late events on {check.day}: {check.observed}; expected {check.expected}; see docs/runbook.md,"
        " 'Many late records'"
        for check in many
    )


def days_text(days: Iterable[date]) -> str:
    """Return days as people write them: `2013-01-01 to 2013-01-05, 2013-01-09`."""
    runs = days_in_a_row(sorted(days))
    return ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in runs)
