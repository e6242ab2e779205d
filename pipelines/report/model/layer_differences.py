"""Where the layers differ: samples, as a report shows them."""

from pipelines.ledger.layer_samples import Difference
from pipelines.report.model.records import Coordinates, KeyPart, Model, Text


class DifferenceSample(Model):
    """One event by which the layers differ.

    Attributes:
        key: the dedup key.
        batch: the record that the batch layer has, if it has one.
        speed: the record that the speed layer has, if it has one.
        reason: what explains it, for this event.
    """

    key: tuple[KeyPart, ...]
    batch: Coordinates | None = None
    speed: Coordinates | None = None
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
