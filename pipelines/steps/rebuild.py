"""Rebuild certified days whose records another step has changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from pipelines.errors import OncelakeError
from pipelines.ledger.certifications import VerdictStatus
from pipelines.nightly.rebuild_plan import RebuildCause
from pipelines.nightly.verdicts import NightFailed
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.nightly import nightly


@dataclass(frozen=True)
class Rebuild:
    """What became of the days.

    Attributes:
        verdicts: The status of each day that was audited.
        failure: What kept the rebuild from its end, or days from being certified; None if nothing did.
        warnings: What people should know, beside the days.
    """

    verdicts: Mapping[date, VerdictStatus]
    failure: OncelakeError | None = None
    warnings: tuple[str, ...] = ()

    def certified(self, days: Sequence[date]) -> list[date]:
        """Return the days among these that are certified."""
        return [day for day in days if self.verdicts.get(day) == "certified"]


def rebuild(pipeline: Pipeline, run_id: str, days: Sequence[date], cause: RebuildCause = "asked") -> Rebuild:
    """Rebuild and audit days, if there are any. A failure is returned, so that the caller can report its own.

    Args:
        pipeline: The pipeline.
        run_id: Recorded with the verdicts.
        days: The days.
        cause: Why, as recorded with the verdicts.
    """
    if not days:
        return Rebuild({})
    try:
        night = nightly(pipeline, run_id, days, cause=cause)
        return Rebuild(night.days, warnings=night.warnings)
    except NightFailed as failure:
        return Rebuild(failure.result.days, failure, failure.result.warnings)
    except OncelakeError as failure:
        return Rebuild({}, failure)
