"""Rebuild past days from bronze, audit what was written, certify what passed."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date

from pipelines.audit.audit import Audit, audit, record_audit
from pipelines.audit.audited_days import AuditedDays, span_of
from pipelines.audit.integrity_checks import fail_together
from pipelines.audit.rebuild_diff import Changes, changes_by_day, moved_days
from pipelines.contracts.event_days import Span
from pipelines.delta.event_tables import ensure_batch, events_schema
from pipelines.delta.fenced_commits import restore_fenced
from pipelines.delta.io import on_days, read
from pipelines.delta.record_tables import require_table
from pipelines.delta.tables import conform, exists
from pipelines.delta.time_travel import commit_hash
from pipelines.fault_points import Point
from pipelines.ledger.bronze_index import BronzeIndex, BronzeSlice
from pipelines.ledger.bronze_verdicts import slice_to_audit
from pipelines.ledger.certifications import (
    Certified,
    Verdict,
    certified_in,
    history,
    record_verdicts,
    require_certified,
)
from pipelines.ledger.forgotten_places import require_forgotten
from pipelines.ledger.leases import Lease, lease
from pipelines.ledger.retention_marks import first_whole_day, require_whole
from pipelines.ledger.runs import RunRecorder
from pipelines.nightly.commit_order import steps, stop_at
from pipelines.nightly.rebuild import build_days, require_alone
from pipelines.nightly.rebuild_plan import Due, RebuildCause, RepairScope, due_days
from pipelines.nightly.recovery import back_to_certified
from pipelines.nightly.seal import seal
from pipelines.nightly.verdicts import (
    NightFailed,
    NightResult,
    Run,
    days_text,
    decide,
    failed_days,
    night_result,
)
from pipelines.spark.pipeline import Pipeline

_log = logging.getLogger(__name__)


def nightly(
    pipeline: Pipeline,
    run_id: str,
    requested_days: Sequence[date],
    repair: RepairScope = "nothing",
    cause: RebuildCause = "asked",
) -> NightResult:
    """Seal, rebuild, audit and certify past days.

    All days are written as one atomic commit and audited as written. Days that fail their audit are
    taken back, so that readers and the next run find the last certified state; the others are certified.
    Each step is recorded in `ops/runs`.

    Args:
        pipeline: The pipeline.
        run_id: recorded with everything that the run decides.
        requested_days: the days, sorted.
        repair: which days before them are rebuilt as well.
        cause: why the days are rebuilt, as recorded with the verdicts.

    Raises:
        NightFailed: at least one day failed; the other days are certified.
        SourceError: bronze has not come so far, or holds what was forgotten, or others wrote to the table.
        InfrastructureError: another run holds the lease, or has taken it over; nothing was certified.
    """
    require_table(pipeline, "bronze")
    require_whole(pipeline, requested_days)
    night = Night(pipeline, run_id, requested_days, repair, cause)
    for _ in steps(night):
        pass
    return night.result()


@dataclass(frozen=True)
class _Plan:
    """What a run has found before it writes, and what it works on.

    Attributes:
        certified: what readers have of the batch layer; None if no day was ever certified.
        index: the index of the bronze that was sealed.
        due: the days, and why they are rebuilt.
        span: the days, and those around them of which all records are looked at.
        pieces: what of bronze may hold records of these.
    """

    certified: Certified | None
    index: BronzeIndex
    due: Due
    span: Span
    pieces: BronzeSlice


@dataclass
class Night:
    """A nightly run, step by step; the order is that of `pipelines.nightly.commit_order`.

    Each step sets, once, what later ones go by: `hold` the lease and the recorder of steps, `look` the plan,
    `audit` the audit, `certify` the run and its verdicts. Of the versions of the batch table `undo` sets the
    base, `build` the built one, and `keep` the kept one, which is the built one if all days passed.
    """

    pipeline: Pipeline
    run_id: str
    requested_days: Sequence[date]
    repair: RepairScope = "nothing"
    cause: RebuildCause = "asked"
    _lease: Lease = field(init=False)
    _steps: RunRecorder = field(init=False)
    _plan: _Plan = field(init=False)
    _base: int = field(init=False)
    _built: int = field(init=False)
    _day_audit: Audit = field(init=False)
    _kept: int = field(init=False)
    _run: Run = field(init=False)
    _decided: list[Verdict] = field(init=False)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the pipeline's lease, and record the steps at the end."""
        self._steps = RunRecorder(self.pipeline, self.run_id, list(self.requested_days))
        with lease(self.pipeline, self.run_id) as self._lease:
            try:
                yield
            finally:
                self._steps.write()

    def look(self) -> Iterator[Point]:
        """Seal the days, and find which are due."""
        yield from stop_at(Point.LEASE_HELD)
        pipeline = self.pipeline
        # Upkeep may have removed records since; it cannot any more.
        require_whole(pipeline, self.requested_days)
        ledger = history(pipeline)
        certified = certified_in(ledger)
        require_certified(pipeline, certified)
        require_forgotten(pipeline)
        with self._steps.step("seal") as detail:
            index = seal(pipeline, self.requested_days[-1], self._lease)
            due = due_days(pipeline, index, self.requested_days, self.repair, ledger)
            causes = {day: self.cause if why == "asked" else why for day, why in due.causes.items()}
            due = replace(due, causes=causes)
            detail.append(f"bronze version {index.version}")
        self._steps.days = due.days
        span = span_of(pipeline, due.days, first_whole_day(pipeline))
        pieces = slice_to_audit(pipeline, ledger, index, span.near)
        self._plan = _Plan(certified, index, due, span, pieces)

    def undo(self) -> Iterator[Point]:
        """Put the batch table back to the certified state if a run died between writing and deciding."""
        if not exists(self.pipeline.spark, self.pipeline.table("batch")):
            ensure_batch(self.pipeline)
        yield from stop_at(Point.DAYS_DUE)
        self._base = back_to_certified(self.pipeline, self._plan.certified, self._lease).version
        # Only now: columns that it adds are a version of their own.
        ensure_batch(self.pipeline)

    def build(self) -> Iterator[Point]:
        """Write the days from bronze."""
        yield from stop_at(Point.BATCH_CLAIMED)
        plan = self._plan
        _log.info("rebuilding %s from bronze version %d", days_text(plan.due.causes), plan.index.version)
        with self._steps.step("build") as detail:
            stamp = self._lease.stamp("build")
            self._built = build_days(self.pipeline, plan.span, plan.pieces, stamp)
            detail.append(f"batch version {self._built}")

    def audit(self) -> Iterator[Point]:
        """Audit the days as written."""
        plan, built = self._plan, self._built
        with self._steps.step("audit") as detail:
            yield from stop_at(Point.DAYS_BUILT)
            certified = {*plan.due.days, *(plan.certified.days if plan.certified else ())}
            day_audit = audit(AuditedDays(self.pipeline, plan.span, certified, plan.pieces, built))
            self._day_audit = _with_moves(self.pipeline, day_audit, plan.due.days, plan.certified, built)
            record_audit(self.pipeline, self.run_id, self._day_audit, plan.index.version, built)
            detail.append(
                f"{len(self._day_audit.checks)} checks;"
                f" Great Expectations took {day_audit.expectations_s:.1f} s of it"
            )

    def keep(self) -> Iterator[Point]:
        """Take back the days that failed."""
        yield from stop_at(Point.DAYS_AUDITED)
        stamp = self._lease.stamp("keep")
        self._kept = self._built
        if failed := [day for day in self._plan.due.days if not self._day_audit.passed(day)]:
            spark, table = self.pipeline.spark, self.pipeline.table("batch")
            self._kept = restore_fenced(spark, table, self._base, stamp, failed).version

    def certify(self) -> Iterator[Point]:
        """Write the verdicts."""
        spark, config, plan = self.pipeline.spark, self.pipeline.config, self._plan
        with self._steps.step("certify") as detail:
            changed = _changes(self.pipeline, plan.due.days, plan.certified, self._built)
            self._run = Run(
                pipeline=config.name,
                run_id=self.run_id,
                bronze_version=plan.index.version,
                bronze_id=plan.index.bronze_id,
                built=self._built,
                kept_version=self._kept,
                epoch=self._lease.epoch,
                kept_commit=commit_hash(spark, config.table("batch"), self._kept),
                bronze_commit=commit_hash(spark, config.table("bronze"), plan.index.version),
            )
            decided = decide(self._run, self._day_audit, plan.due, plan.certified, changed)
            require_alone(self.pipeline, sorted({self._base, self._built, self._kept}))
            yield from stop_at(Point.DAYS_KEPT)
            record_verdicts(self.pipeline, decided, self._lease.stamp("certify"))
            yield from stop_at(Point.VERDICTS_WRITTEN)
            self._decided = decided
            detail.append(f"{sum(v.status == 'certified' for v in decided)} of {len(decided)} days")

    def result(self) -> NightResult:
        """Return what the run did, when it has taken all steps.

        Raises:
            NightFailed: at least one day failed.
        """
        result = night_result(self._run, self._day_audit, self._decided, self._plan.due)
        result = replace(result, warnings=(*result.warnings, *self._steps.warnings))
        if failed := failed_days(self._decided):
            heading = "not certified; readers keep the last certified state"
            raise NightFailed(self._day_audit.failure(failed, heading), result)
        return result


def _with_moves(
    pipeline: Pipeline,
    day_audit: Audit,
    days: Sequence[date],
    certified: Certified | None,
    built: int,
) -> Audit:
    """Return the audit, in which days between which events move fail together.

    One of them alone would hold such an event twice, or not at all.
    """
    failed = {day for day in days if not day_audit.passed(day)}
    horizon = pipeline.horizon
    if certified is None or not horizon or not 0 < len(failed) < len(days):
        return day_audit
    old, new = (
        read(pipeline.spark, pipeline.table("batch"), at).where(on_days(days))
        for at in (certified.version, built)
    )
    return replace(
        day_audit,
        checks=(*day_audit.checks, *fail_together(failed, moved_days(old, new, pipeline.contract, horizon))),
    )


def _changes(
    pipeline: Pipeline,
    days: Sequence[date],
    certified: Certified | None,
    built: int,
) -> dict[date, Changes]:
    """Return what the rebuild changed of days that were certified before."""
    again = [day for day in days if certified is not None and day in certified.days]
    if certified is None or not again:
        return {}
    schema = events_schema(pipeline.contract)
    old, new = (
        conform(read(pipeline.spark, pipeline.table("batch"), at).where(on_days(again)), schema)
        for at in (certified.version, built)
    )
    return changes_by_day(old, new, pipeline.contract)
