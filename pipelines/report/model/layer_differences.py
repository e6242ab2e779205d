"""Where the layers differ: samples as a report shows them, with the reason in words."""

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from pipelines.ledger.layer_samples import Difference, LayerSample
from pipelines.report.model.records import Count, KeyPart, Model, Text

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


class Place(Model):
    """Coordinates of a record in Kafka.

    Attributes:
        topic: the topic.
        partition: the partition.
        offset: the offset.
    """

    topic: Text
    partition: Count
    offset: Count


class DifferenceSample(Model):
    """One event by which the layers differ.

    Attributes:
        key: the dedup key.
        batch: the record that the batch layer has, if it has one.
        speed: the record that the speed layer has, if it has one.
        reason: what explains it, for this event.
    """

    key: tuple[KeyPart, ...]
    batch: Place | None = None
    speed: Place | None = None
    reason: Text


class LayerDifferences(Model):
    """Samples of one class of difference.

    Attributes:
        difference: the class, as the check ``layers_agree`` counts it.
        title: the same in words.
        meaning: what it means.
        samples: the first few by coordinates.
    """

    difference: Difference
    title: Text
    meaning: Text
    samples: tuple[DifferenceSample, ...]


def group_samples(samples: Iterable[LayerSample]) -> tuple[LayerDifferences, ...]:
    """Put samples under their classes, what is unexplained first.

    Args:
        samples: as `pipelines.ledger.layer_samples` has kept them.
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
        batch=Place.model_validate(sample.batch) if sample.batch else None,
        speed=Place.model_validate(sample.speed) if sample.speed else None,
        reason=_reason(sample),
    )


def _reason(sample: LayerSample) -> str:
    match sample.difference:
        case "late":
            return f"event time {sample.event_time}, watermark {sample.watermark} UTC at the latest"
        case "pending":
            return (
                f"read from Kafka at {sample.ingested_at} UTC, with or after the speed layer's newest record"
            )
        case "quarantined" | "remembered" | "missing":
            return f"event time {sample.event_time}, read from Kafka at {sample.ingested_at} UTC"
        case "extra":
            return "no row of the batch layer has this key, neighbouring days included"
        case "other_copy":
            return f"the batch layer's was read from Kafka at {sample.ingested_at} UTC"
