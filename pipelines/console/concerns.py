"""What of a pipeline needs a person, the worst first."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from pipelines.console.jobs import LEASES, held_leases
from pipelines.console.view import ConcernSeverity, DiagnosedStage, LakeView, PipelineView, Reading
from pipelines.doctor.lake_checks import NO_NIGHT
from pipelines.report.render.text import plural

SEVERITIES: Final[tuple[ConcernSeverity, ...]] = ("failed", "warned", "open", "passed")

_FINE: Final = frozenset({"none", "source_quiet"})
# Nothing moves, or data is at risk.
_BAD: Final = frozenset({"other_topic", "retention", "stopped", "stuck", "kafka"})
# The nightly run of a day that has just ended may still be to come; they come every day.
_GRACE: Final = timedelta(days=2)


@dataclass(frozen=True)
class Concern:
    """One thing that needs a person.

    Attributes:
        severity: How much.
        place: The part of the page that has the figures: the id of its heading.
        text: What it is.
        advice: What helps; empty if that is plain.
    """

    severity: ConcernSeverity
    place: str
    text: str
    advice: str = ""


@dataclass(frozen=True)
class Judged:
    """A pipeline with its concerns, the worst first."""

    pipeline: PipelineView
    concerns: tuple[Concern, ...]

    @property
    def severity(self) -> ConcernSeverity:
        """That of the worst concern."""
        return self.concerns[0].severity if self.concerns else "passed"


def judged(view: LakeView, now: datetime) -> list[Judged]:
    """Return all pipelines with what needs a person, the worst first, then by name."""
    found = [Judged(each, concerns(each, now, view.old_after_s)) for each in view.pipelines]
    return sorted(found, key=_badness)


def _badness(one: Judged) -> tuple[int, int, str]:
    worst = [each for each in one.concerns if each.severity == one.severity]
    return SEVERITIES.index(one.severity), -len(worst), one.pipeline.name


def concerns(pipeline: PipelineView, now: datetime, old_after_s: float) -> tuple[Concern, ...]:
    """Return what of a pipeline needs a person, the worst first.

    Args:
        pipeline: What is known of it.
        now: The time.
        old_after_s: From which age on figures are old.
    """
    if pipeline.refusal is not None:
        return (Concern("failed", "top", f"refused: {pipeline.refusal}"),)
    found = [
        *_of_readings(pipeline, now, old_after_s),
        *_of_stages(pipeline),
        *_of_days(pipeline),
        *_of_runs(pipeline, now),
        *_of_leases(pipeline, now),
        *_of_quarantine(pipeline),
    ]
    return tuple(sorted(found, key=lambda each: SEVERITIES.index(each.severity)))


def _of_readings(pipeline: PipelineView, now: datetime, old_after_s: float) -> Iterator[Concern]:
    readings: tuple[tuple[str, str, Reading[Any]], ...] = (
        ("days", "tables under ops/", pipeline.ledger),
        ("batches", "checkpoints and quarantine", pipeline.lake),
        ("lag", "Kafka and lag", pipeline.cluster),
    )
    for place, what, reading in readings:
        if reading.failure is not None:
            yield Concern("failed", place, f"{what} cannot be read: {reading.failure}")
        elif reading.asked_at is not None:
            yield Concern("warned", place, f"{what}: no answer since {utc(reading.asked_at)}")
        elif reading.value is None:
            yield Concern("open", place, f"{what}: not read yet")
        elif reading.at and reading.is_old(now, old_after_s):
            yield Concern("warned", place, f"{what}: not read since {utc(reading.at)}")


def _of_stages(pipeline: PipelineView) -> Iterator[Concern]:
    for stage in pipeline.cluster.value.stages if pipeline.cluster.value else ():
        diagnosis = stage.diagnosis
        if diagnosis.cause not in _FINE:
            words = f"{stage.facts.name}: {diagnosis.cause.replace('_', ' ')}: {diagnosis.symptoms[0]}"
            yield Concern(severity_of(stage), "lag", words, diagnosis.advice)


def utc(instant: datetime) -> str:
    """Return a moment as pages tell it, which stays true however long a page is looked at."""
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def severity_of(stage: DiagnosedStage) -> ConcernSeverity:
    """Return how much a stage's lag needs a person."""
    cause, facts = stage.diagnosis.cause, stage.facts
    if cause in _FINE:
        return "passed"
    # A pipeline that nobody has started yet is no accident.
    is_new = cause == "stopped" and facts.stream is None and facts.refusal is None
    return "failed" if cause in _BAD and not is_new else "warned"


def _of_days(pipeline: PipelineView) -> Iterator[Concern]:
    if pipeline.ledger.value is None or pipeline.ledger.at is None:
        return
    failed = [each.day for each in pipeline.days if each.status == "failed"]
    if failed:
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        yield Concern("failed", "days", f"the audit of {failed[0]}{more} failed")
    if older := pipeline.ledger.value.older_failed:
        yield Concern("warned", "days", f"{plural(older, 'day')} before those shown failed their audit")
    last = (pipeline.ledger.at.astimezone(ZoneInfo(pipeline.zone)) - _GRACE).date()
    late = [each.day for each in pipeline.days if each.status == "not_certified" and each.day <= last]
    if late:
        yield Concern("warned", "days", f"{plural(len(late), 'day')} without a verdict, the last {late[0]}")


def _of_runs(pipeline: PipelineView, now: datetime) -> Iterator[Concern]:
    ledger = pipeline.ledger.value
    for step in ledger.steps if ledger else ():
        if step.status == "failed":
            detail = f": {step.detail}" if step.detail else ""
            yield Concern("failed", "runs", f"the last nightly run failed in step {step.step}{detail}")
    began = max((step.started_at for step in ledger.steps), default=None) if ledger else None
    if began and now - began > NO_NIGHT:
        yield Concern("warned", "runs", f"the last nightly run began {utc(began)}")


def _of_leases(pipeline: PipelineView, now: datetime) -> Iterator[Concern]:
    for each in (each for each in held_leases(pipeline, now) if each.state.is_gone):
        who = f"run {each.state.run_id}" + (f" of {each.state.job}" if each.state.job else "")
        yield Concern("warned", "jobs", f"{who} died while it held the lease of {LEASES[each.lease]}")


def _of_quarantine(pipeline: PipelineView) -> Iterator[Concern]:
    figures = pipeline.lake.value
    records = sum(reason.records for reason in figures.quarantine) if figures else 0
    if figures and records:
        what = f"{plural(records, 'unresolved record')} in quarantine, most: {figures.quarantine[0].reason}"
        yield Concern("warned", "quarantine", what)
