"""The parts of a report that say in words what values mean; the JSON of the report has these texts."""

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from pipelines.ledger.certifications import Verdict
from pipelines.ledger.layer_samples import Difference, LayerSample
from pipelines.report.model.history import Comparison, SampledChanges, Withheld
from pipelines.report.model.layer_differences import DifferenceSample, LayerDifferences
from pipelines.report.model.records import Coordinates, KeyPart
from pipelines.report.model.report import LatenessBucket, LatenessCount

_TITLES: Final[dict[Difference, tuple[str, str]]] = {
    "missing": ("only in the batch layer", "Nothing explains why the speed layer lacks these events."),
    "extra": ("only in the speed layer", "The current rules refuse these events, or the rebuild lacks them."),
    "late": ("only in the batch layer", "The speed layer drops what comes behind its watermark."),
    "quarantined": (
        "only in the batch layer",
        "An earlier contract refused the record; it is in quarantine.",
    ),
    "remembered": (
        "only in the batch layer",
        "The state of the speed layer still held the key of an event that lies beyond the horizon.",
    ),
    "pending": ("only in the batch layer", "The speed layer had not read as far when the day was audited."),
    "other_copy": (
        "from another copy",
        "The speed layer keeps the copy it saw first, the batch layer the winner.",
    ),
}
_NOT_SHOWN: Final = "(not shown)"
_HOUR_S: Final = 3600
_DAY_S: Final = 24 * _HOUR_S
_RANGES: Final[dict[float | None, str]] = {
    0: "sent ahead",
    60: "under 1 min",
    600: "1 to 10 min",
    _HOUR_S: "10 to 60 min",
    6 * _HOUR_S: "1 to 6 h",
    _DAY_S: "6 to 24 h",
    7 * _DAY_S: "1 to 7 days",
    None: "over 7 days",
}
"""Ranges of lateness, by their upper bound in seconds."""


def grouped_differences(samples: Iterable[LayerSample]) -> tuple[LayerDifferences, ...]:
    """Group samples by their class, what is unexplained first, and say what each class and sample means.

    Args:
        samples: As `pipelines.ledger.layer_samples` has kept them.
    """
    order = list(_TITLES)
    ordered = sorted(samples, key=lambda each: order.index(each.difference))
    return tuple(
        LayerDifferences(
            difference=difference,
            title=_TITLES[difference][0],
            meaning=_TITLES[difference][1],
            samples=tuple(_sample(each) for each in of_class),
        )
        for difference, of_class in groupby(ordered, key=lambda each: each.difference)
    )


def _sample(sample: LayerSample) -> DifferenceSample:
    return DifferenceSample(
        key=tuple(KeyPart.model_validate(part) for part in sample.key),
        batch=Coordinates.model_validate(sample.batch) if sample.batch else None,
        speed=Coordinates.model_validate(sample.speed) if sample.speed else None,
        reason=_reason(sample),
    )


def _reason(sample: LayerSample) -> str:
    event_time = sample.event_time or _NOT_SHOWN
    match sample.difference:
        case "late":
            return f"event time {event_time}, watermark {sample.watermark} UTC at the latest"
        case "pending":
            return (
                f"read from Kafka at {sample.ingested_at} UTC, with or after the speed layer's newest record"
            )
        case "quarantined" | "remembered" | "missing":
            return f"event time {event_time}, read from Kafka at {sample.ingested_at} UTC"
        case "extra":
            return "no row of the batch layer has this key, neighbouring days included"
        case "other_copy":
            return f"the batch layer's was read from Kafka at {sample.ingested_at} UTC"


def lateness_buckets(counts: Iterable[LatenessCount]) -> tuple[LatenessBucket, ...]:
    """Name the ranges of a histogram of lateness."""
    return tuple(
        LatenessBucket(
            label=_RANGES[each.upper_s], lower_s=each.lower_s, upper_s=each.upper_s, records=each.records
        )
        for each in counts
    )


def comparison(verdict: Verdict, changes: SampledChanges | Withheld | None) -> Comparison | None:
    """Say what a rebuild changed; None if nobody had certified the day before.

    Args:
        verdict: The verdict on the day.
        changes: The rows that differ, or why they are not shown, as `row_changes.changes` gives them.
    """
    if verdict.previous_version is None or changes is None:
        return None
    sampled = changes if isinstance(changes, SampledChanges) else None
    counts = sampled or verdict
    return Comparison(
        previous_version=verdict.previous_version,
        batch_version=verdict.batch_version,
        added=counts.added,
        removed=counts.removed,
        changed=counts.changed,
        samples=sampled.samples if sampled else (),
        gone=None if isinstance(changes, SampledChanges) else _withheld(changes, verdict.previous_version),
    )


def _withheld(why: Withheld, previous: int) -> str:
    match why:
        case "forgotten":
            return "The run forgot events, so no rows are shown."
        case "version_gone":
            return (
                f"Version {previous} of the batch table is gone: Delta has cleaned its log, or VACUUM its"
                " files. So the rows can no longer be compared."
            )
