"""Where the layers differ: samples, as a report shows them."""

from pipelines.ledger.layer_samples import Difference
from pipelines.report.model.records import Coordinates, KeyPart, Model, Text


class DifferenceSample(Model):
    """One event by which the layers differ.

    Attributes:
        key: The dedup key.
        batch: The record that the batch layer has, if it has one.
        speed: The record that the speed layer has, if it has one.
        reason: What explains it, for this event.
    """

    key: tuple[KeyPart, ...]
    batch: Coordinates | None = None
    speed: Coordinates | None = None
    reason: Text


class LayerDifferences(Model):
    """Samples of one class of difference.

    Attributes:
        difference: The class, as the check ``layers_agree`` counts it.
        title: The same in words.
        meaning: What it means.
        samples: The first few by coordinates.
    """

    difference: Difference
    title: Text
    meaning: Text
    samples: tuple[DifferenceSample, ...]
