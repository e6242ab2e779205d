"""A few of the rows by which speed and batch layer differ: key, coordinates on both sides, what explains it.

A key is shown as far as the contract lets it be shown.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

Difference = Literal["late", "quarantined", "pending", "missing", "extra", "other_copy"]

_PLACE: Final = "struct<topic: string, partition: int, offset: bigint>"
SAMPLE: Final = (
    f"key array<struct<column: string, value: string>>, batch {_PLACE}, speed {_PLACE},"
    " event_time string, ingested_at string, watermark string"
)


@dataclass(frozen=True)
class LayerSample:
    """One event by which the layers differ.

    Attributes:
        difference: how.
        key: the parts of its key, each with `column` and `value`; the value is null if it may not be shown.
        batch: coordinates of the batch layer's row: `topic`, `partition`, `offset`; None without one.
        speed: the same of the speed layer.
        event_time: of the batch layer's row; text, UTC.
        ingested_at: when that record came into bronze; text, UTC.
        watermark: the latest that the speed layer's watermark can have been then; text, UTC.
    """

    difference: Difference
    key: list[dict[str, str | None]]
    batch: dict[str, Any] | None
    speed: dict[str, Any] | None
    event_time: str | None
    ingested_at: str | None
    watermark: str | None


@dataclass(frozen=True)
class LayerDifference:
    """How speed and batch layer differ on one event day, in keys.

    Attributes:
        other_copy: both have the key, from different records; or the batch layer has no row of it since a
            copy of it wins, or may win, on a neighbouring day that is open.
        late: only the batch layer has it, and a record behind the watermark explains that.
        quarantined: only the batch layer has it: the record was in quarantine under an earlier contract.
        pending: only the batch layer has it, and the speed layer has not come that far.
        missing: only the batch layer has it, and nothing explains it.
        extra: only the speed layer has it.
        samples: a few of each.
    """

    other_copy: int = 0
    late: int = 0
    quarantined: int = 0
    pending: int = 0
    missing: int = 0
    extra: int = 0
    samples: tuple[LayerSample, ...] = ()
