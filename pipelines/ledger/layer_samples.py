"""The samples of differences between the layers that audits have kept."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from typing import Any, Generic, Literal, TypeVar, get_args

from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.delta.io import small_rows
from pipelines.delta.tables import shape
from pipelines.ledger.ops_tables import LAYER_SAMPLES, SAMPLE
from pipelines.records.redaction import shown_found
from pipelines.spark.pipeline import Pipeline

Explanation = Literal["late", "quarantined", "pending", "remembered"]
"""Why the speed layer lacks an event, in order of precedence: of several that hold, the first one counts."""
Difference = Literal[Explanation, "missing", "extra", "other_copy"]
T = TypeVar("T")


@dataclass(frozen=True)
class Explanations(Generic[T]):
    """What each explanation needs: a condition, or a reason. Whoever explains has to give all of them.

    Attributes:
        late: A record behind the watermark, as in `LayerDifference`.
        quarantined: A record in quarantine, likewise.
        pending: A record that has not been read, likewise.
        remembered: A key that the state still held, likewise.
    """

    late: T
    quarantined: T
    pending: T
    remembered: T

    def by_precedence(self) -> list[tuple[Explanation, T]]:
        """Return what was given for each explanation, in the order in which they are to be tried."""
        return [(each, getattr(self, each)) for each in get_args(Explanation)]


@dataclass(frozen=True)
class LayerSample:
    """One event by which the layers differ.

    Attributes:
        difference: How.
        key: The parts of its key, each with `column` and `value`; the value is null if it may not be shown.
        batch: Coordinates of the batch layer's row: `topic`, `partition`, `offset`; None without one.
        speed: The same of the speed layer.
        event_time: Of the batch layer's row; text, UTC; None if it may not be shown.
        ingested_at: When that record came into bronze; text, UTC.
        watermark: The latest that the speed layer's watermark can have been then; text, UTC.
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
        other_copy: Both have the key, from different records; or the batch layer has no row of it since a
            copy of it wins, or may win, on an uncertified neighbouring day.
        late: Only the batch layer has it, and a record behind the watermark explains that.
        quarantined: Only the batch layer has it: the record was in quarantine under an earlier contract.
        pending: Only the batch layer has it, and the speed layer has not come that far.
        remembered: Only the batch layer has it, and the speed layer has another event of its key, beyond the
            horizon: its state may still have held that key, and dropped this one as a copy.
        missing: Only the batch layer has it, and nothing explains it.
        extra: Only the speed layer has it.
        samples: A few of each.
    """

    other_copy: int = 0
    late: int = 0
    quarantined: int = 0
    pending: int = 0
    remembered: int = 0
    missing: int = 0
    extra: int = 0
    samples: tuple[LayerSample, ...] = ()


def record_samples(pipeline: Pipeline, differences: Mapping[date, LayerDifference], run_id: str) -> None:
    """Append the samples of an audit to `ops/layer_samples`, as one commit; do nothing without any."""
    run = {"run_id": run_id, "recorded_at": datetime.now(UTC)}
    rows = [
        asdict(each) | run | {"day": day}
        for day, difference in differences.items()
        for each in difference.samples
    ]
    if rows:
        LAYER_SAMPLES.append(pipeline, rows)


def samples_of(pipeline: Pipeline, day: date, run_id: str) -> tuple[LayerSample, ...]:
    """Return the samples that a run has kept of a day, by difference and coordinates.

    A value that the current contract hides is None.
    """
    if not LAYER_SAMPLES.exists(pipeline):
        return ()
    of_run = (F.col("day") == F.lit(day)) & (F.col("run_id") == run_id)
    columns = ("difference", *shape(SAMPLE).fieldNames())
    rows = LAYER_SAMPLES.rows(pipeline).where(of_run).select(*columns)
    kept = [LayerSample(**row) for row in small_rows(rows.orderBy("difference", "batch", "speed"))]
    return tuple(_shown(pipeline.contract, sample) for sample in kept)


def _shown(contract: DataContract, sample: LayerSample) -> LayerSample:
    key = [{**part, "value": shown_found(contract, part["column"], part["value"])} for part in sample.key]
    return replace(sample, key=key, event_time=shown_found(contract, contract.event_time, sample.event_time))
