"""Rebuild past days from bronze, audit what was written, certify what passed."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime

from pyspark.sql import DataFrame

from pipelines.audit.audit import Audit, audit, record_audit
from pipelines.audit.audited_days import AuditedDays, span_of
from pipelines.audit.integrity_checks import fail_together
from pipelines.audit.rebuild_diff import Changes, changes_by_day, days_with_added_rows, moved_days
from pipelines.config.clusters import retired
from pipelines.contracts.event_days import Span
from pipelines.delta.clocks import require_same_clock
from pipelines.delta.epochs import Commit, Stamp
from pipelines.delta.event_tables import ensure_batch, events_schema
from pipelines.delta.fenced_commits import commits_since, restore_fenced
from pipelines.delta.first_complete_day import first_complete_day
from pipelines.delta.io import on_days
from pipelines.delta.record_tables import require_table
from pipelines.delta.small_tables import most_records, read_small
from pipelines.delta.tables import conform, exists
from pipelines.delta.time_travel import commit_hash
from pipelines.ledger.bronze_index import BronzeSlice
from pipelines.ledger.bronze_verdicts import slice_to_audit
from pipelines.ledger.certifications import (
    Certified,
    Verdict,
    certified_in,
    history,
    record_verdicts,
    require_certified,
)
from pipelines.ledger.forgotten_places import require_forgotten, times_remembered
from pipelines.ledger.kept_values import delete_if_forgotten
from pipelines.ledger.leases import Lease, lease
from pipelines.ledger.ops_tables import CERTIFICATIONS
from pipelines.ledger.replayed_records import judge_again
from pipelines.ledger.retention_properties import require_complete_days
from pipelines.ledger.runs import RunRecorder, Step
from pipelines.nightly.commit_order import steps
from pipelines.nightly.night_run import NightPlan, NightRun
from pipelines.nightly.rebuild import build_days
from pipelines.nightly.rebuild_plan import RebuildCause, RepairScope, due_days
from pipelines.nightly.recovery import back_to_certified
from pipelines.nightly.seal import seal
from pipelines.nightly.verdicts import (
    NightFailed,
    NightResult,
    failed_days,
    log_lines,
    night_result,
)
from pipelines.records.decode import VALID
from pipelines.spark.few_rows import sized_for
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
        run_id: Recorded with everything that the run decides.
        requested_days: The days, sorted.
        repair: Which days before them are rebuilt as well.
        cause: Why the days are rebuilt, as recorded with the verdicts.

    Raises:
        NightFailed: At least one day failed; the other days are certified.
        SourceError: Bronze has not come so far, or holds what was forgotten, or others wrote to the table.
        InfrastructureError: Another run holds the lease, or has taken it over; nothing was certified.
    """
    require_table(pipeline, "bronze")
    require_complete_days(pipeline, requested_days)
    night = Night(pipeline, run_id, requested_days, repair, cause)
    with sized_for(pipeline, most_records(pipeline.spark, pipeline.table("bronze"))):
        for _ in steps(night):
            pass
        return night.result()


@dataclass(frozen=True)
class _Look:
    """What a run has found, and what it works on.

    Attributes:
        plan: What the run goes by.
        span: The days, and those around them of which all records are looked at.
        pieces: What of bronze may hold records of these.
        times_remembered: How many times records were forgotten before, see `times_remembered`.
    """

    plan: NightPlan
    span: Span
    pieces: BronzeSlice
    times_remembered: int


@dataclass
class _Tables:
    """The tables of a lake, see `pipelines.nightly.night_run.NightTables`."""

    pipeline: Pipeline
    run_id: str
    requested_days: Sequence[date]
    repair: RepairScope
    cause: RebuildCause
    _lease: Lease = field(init=False)
    _steps: RunRecorder = field(init=False)
    _look: _Look = field(init=False)
    _base: int = field(init=False)

    @contextmanager
    def hold(self) -> Iterator[Lease]:
        """Hold the pipeline's lease, and record the steps at the end."""
        self._steps = RunRecorder(self.pipeline, self.run_id, list(self.requested_days))
        began = datetime.now(UTC)
        with lease(self.pipeline, self.run_id, "nightly_batch") as self._lease:
            # To take the lease was a commit to the verdicts.
            require_same_clock(self.pipeline, CERTIFICATIONS.path(self.pipeline), began)
            try:
                yield self._lease
            finally:
                self._steps.write()

    def step(self, name: Step) -> AbstractContextManager[list[str]]:
        return self._steps.step(name)

    @property
    def warnings(self) -> list[str]:
        """What people should know, beside the days."""
        return self._steps.warnings

    def plan(self) -> NightPlan:
        pipeline = self.pipeline
        ledger = history(pipeline)
        certified = certified_in(ledger)
        require_certified(pipeline, certified)
        known = times_remembered(pipeline)
        require_forgotten(pipeline)
        with self.step("seal") as detail:
            index = seal(pipeline, self.requested_days[-1], self._lease)
            # Upkeep may have removed records since the run began, and ingest may have begun. Each says so
            # before it changes bronze, so what is sealed is known by now.
            require_complete_days(pipeline, self.requested_days)
            due = due_days(pipeline, index, self.requested_days, self.repair, ledger)
            causes = {day: self.cause if why == "asked" else why for day, why in due.causes.items()}
            due = replace(due, causes=causes)
            detail.append(f"bronze version {index.version}")
            if opened := judge_again(pipeline, index, self._lease):
                self._steps.warnings.append(opened)
            if not_asked := retired(pipeline.config.kafka):
                detail.append(f"not asked, as retired: {', '.join(not_asked)}")
        self._steps.days = due.days
        span = span_of(pipeline, due.days, first_complete_day(pipeline))
        pieces = slice_to_audit(pipeline, ledger, index, span.near)
        self._look = _Look(NightPlan(certified, due, index.version, index.bronze_id), span, pieces, known)
        return self._look.plan

    def make_batch(self) -> None:
        if not exists(self.pipeline.spark, self.pipeline.table("batch")):
            ensure_batch(self.pipeline)

    def to_certified(self, certified: Certified | None, stamp: Stamp) -> int:
        self._base = back_to_certified(self.pipeline, certified, stamp).version
        # Only now: columns that it adds are a version of their own.
        ensure_batch(self.pipeline, certified.days if certified else ())
        return self._base

    def build(self, stamp: Stamp) -> int:
        return build_days(self.pipeline, self._look.span, self._look.pieces, stamp)

    def audit(self, built: int) -> Audit:
        plan = self._look.plan
        certified = {*plan.due.days, *(plan.certified.days if plan.certified else ())}
        audited = AuditedDays(self.pipeline, self._look.span, certified, self._look.pieces, built)
        day_audit = _with_shared_events(audited, audit(audited), plan.certified, self._base)
        record_audit(self.pipeline, self.run_id, day_audit, plan.bronze_version, built)
        # Its lease may have gone to a run that forgets.
        delete_if_forgotten(self.pipeline, self._look.times_remembered, plan.due.days)
        return day_audit

    def take_back(self, base: int, days: Sequence[date], stamp: Stamp) -> int:
        return restore_fenced(self.pipeline.spark, self.pipeline.table("batch"), base, stamp, days).version

    def changes(self, built: int) -> Mapping[date, Changes]:
        plan = self._look.plan
        certified = plan.certified.days if plan.certified else {}
        again = [day for day in plan.due.days if day in certified]
        return _changes(self.pipeline, again, self._base, built) if again else {}

    def batch_since(self, base: int) -> list[Commit]:
        return commits_since(self.pipeline.spark, self.pipeline.table("batch"), base)

    def hashes(self, kept: int) -> tuple[str | None, str | None]:
        spark, plan = self.pipeline.spark, self._look.plan
        return (
            commit_hash(spark, self.pipeline.table("batch"), kept),
            commit_hash(spark, self.pipeline.table("bronze"), plan.bronze_version),
        )

    def record(self, decided: Sequence[Verdict], stamp: Stamp) -> None:
        record_verdicts(self.pipeline, decided, stamp)

    def now(self) -> datetime:
        return datetime.now(UTC)


class Night(NightRun):
    """A nightly run on a lake; the parameters are those of `nightly`."""

    def __init__(
        self,
        pipeline: Pipeline,
        run_id: str,
        requested_days: Sequence[date],
        repair: RepairScope = "nothing",
        cause: RebuildCause = "asked",
    ) -> None:
        self._lake = _Tables(pipeline, run_id, requested_days, repair, cause)
        super().__init__(pipeline.config.name, run_id, self._lake, pipeline.table("batch"))

    def result(self) -> NightResult:
        """Return what the run did, when it has taken all steps, and log what it warns of.

        Raises:
            NightFailed: At least one day failed.
        """
        result = night_result(self._run, self._day_audit, self._decided, self._plan.due)
        for line in log_lines(result):
            _log.warning("%s", line)
        # Those of the tables are in the log already.
        result = replace(result, warnings=(*result.warnings, *self._lake.warnings))
        if failed := failed_days(self._decided):
            heading = "not certified; readers keep the last certified state"
            raise NightFailed(self._day_audit.failure(failed, heading), result)
        return result


def _with_shared_events(
    audited: AuditedDays, day_audit: Audit, certified: Certified | None, base: int
) -> Audit:
    """Return the audit, in which days that share events fail together.

    A day that fails gets its earlier rows back. Of an event that the rebuild moves, one of its days alone
    would hold it twice, or not at all. Of an event that it adds to a day, the copies on other days would have
    no row; that is accepted only for a day that no run has certified.
    """
    pipeline, days = audited.pipeline, audited.span.days
    failed = {day for day in days if not day_audit.passed(day)}
    contract, horizon = pipeline.contract, pipeline.horizon
    if certified is None or not horizon or not 0 < len(failed) < len(days):
        return day_audit
    old, new = (_rows_of(pipeline, at, days) for at in (base, audited.batch_version))
    moves = moved_days(old, new, contract, horizon)
    pairs = moves | {(after, before) for before, after in moves}
    if again := [day for day in days if day in certified.days]:
        copies = audited.records.where(VALID).where(on_days(days))
        before, after = old.where(on_days(again)), new.where(on_days(again))
        pairs |= days_with_added_rows(before, after, copies, contract, horizon)
    return replace(day_audit, checks=(*day_audit.checks, *fail_together(failed, pairs)))


def _rows_of(pipeline: Pipeline, version: int, days: Sequence[date]) -> DataFrame:
    rows = read_small(pipeline.spark, pipeline.table("batch"), version).where(on_days(days))
    return conform(rows, events_schema(pipeline.contract))


def _changes(pipeline: Pipeline, days: Sequence[date], base: int, built: int) -> dict[date, Changes]:
    """Return what the rebuild changed of days that were certified before.

    Args:
        pipeline: The pipeline.
        days: The days.
        base: The run's base, which holds what is certified. Other than of the certified version itself, its
            files were listed when the days were written.
        built: The version that the run has built.
    """
    old, new = (_rows_of(pipeline, at, days) for at in (base, built))
    return changes_by_day(old, new, pipeline.contract)
