"""A check's outcome, the same for integrity checks and for expectations, and the table that keeps it."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from typing import Final, Literal

from pipelines.ledger.ops_tables import VALIDATION_RESULTS
from pipelines.spark.pipeline import Pipeline

CheckStatus = Literal["passed", "failed", "warned"]
CheckKind = Literal["integrity", "expectation"]

LAYERS_AGREE: Final = "layers_agree"
"""The check that says whether all that separates speed and batch layer is explained; reports ask for it."""
LATE_WITHIN_LIMIT: Final = "late_within_limit"
"""The check that warns of many events that came too late for the speed layer; the run's summary has it."""

KEYS_COME_TO_AN_END: Final = "keys_come_to_an_end"
"""The check whose detail begins with keys; a report cuts these off where they are personal data."""

CLUSTERS_ASKED: Final = "clusters_asked"
"""The check that warns of clusters that nobody asked for what they have; the run's summary has it."""

_WORST_FIRST: Final[tuple[CheckStatus, ...]] = ("failed", "warned", "passed")


@dataclass(frozen=True)
class Check:
    """What one check found on one event day.

    Attributes:
        day: The event day.
        name: What was checked, e.g. `no_duplicate_key`.
        kind: Whether Oncelake or Great Expectations looked.
        status: `failed` keeps the day from being certified, `warned` does not.
        observed: What was found, in words.
        expected: What had to be found, in words.
        detail: Examples, or how to fix it; may be empty.
        result: What Great Expectations said, as JSON, with `suite`; None for an integrity check.
    """

    day: date
    name: str
    kind: CheckKind
    status: CheckStatus
    observed: str
    expected: str
    detail: str = ""
    result: str | None = None


def worst(checks: Iterable[Check]) -> CheckStatus:
    """Return the status of a whole: that of its worst part; `passed` for no checks at all."""
    statuses = {check.status for check in checks}
    return next((status for status in _WORST_FIRST if status in statuses), "passed")


def record_checks(
    pipeline: Pipeline,
    checks: Sequence[Check],
    *,
    run_id: str,
    bronze_version: int,
    batch_version: int,
) -> None:
    """Append the outcome of checks to `ops/validation_results`, as one commit."""
    run = {
        "run_id": run_id,
        "batch_version": batch_version,
        "bronze_version": bronze_version,
        "checked_at": datetime.now(UTC),
    }
    VALIDATION_RESULTS.append(pipeline, [asdict(check) | run for check in checks])
