"""What micro-batches spend their time on: a chart of shapes alone, and the sums below it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipelines.spark.stream_progress import BatchFigures

PHASES: Final = ("source", "planning", "write", "log", "other")

_STEP: Final = 10.0
_BAR: Final = 8.0
_HEIGHT: Final = 100.0


@dataclass(frozen=True)
class Bar:
    """A part of a column, in the units of the chart."""

    phase: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class PhaseSum:
    """A phase over all micro-batches that are shown.

    Attributes:
        phase: Its name.
        seconds: In all of them.
        share: Of their time, from 0 to 1.
    """

    phase: str
    seconds: float
    share: float


@dataclass(frozen=True)
class BatchChart:
    """The last micro-batches with records.

    Attributes:
        bars: All parts of all columns, one column for each micro-batch.
        width: Of the chart.
        longest_s: What the highest column stands for.
        sums: By phase.
        batches: How many micro-batches.
        records: What they read.
        seconds: What they took.
    """

    bars: tuple[Bar, ...]
    width: float
    longest_s: float
    sums: tuple[PhaseSum, ...]
    batches: int
    records: int
    seconds: float


def batch_chart(batches: Sequence[BatchFigures]) -> BatchChart | None:
    """Return what micro-batches spent their time on; None if there are none.

    Args:
        batches: The last micro-batches with records, the oldest first.
    """
    if not batches:
        return None
    parts = [_phases(batch) for batch in batches]
    longest = max(sum(each.values()) for each in parts) or 1.0
    bars: list[Bar] = []
    for number, each in enumerate(parts):
        top = _HEIGHT
        for phase in PHASES:
            height = each[phase] / longest * _HEIGHT
            top -= height
            if height:
                bars.append(Bar(phase, number * _STEP, round(top, 2), _BAR, round(height, 2)))
    whole = sum(sum(each.values()) for each in parts)
    totals = {phase: sum(each[phase] for each in parts) for phase in PHASES}
    sums = tuple(PhaseSum(name, took, took / whole if whole else 0.0) for name, took in totals.items())
    records = sum(batch.records for batch in batches)
    return BatchChart(tuple(bars), len(parts) * _STEP, longest, sums, len(parts), records, whole)


def _phases(batch: BatchFigures) -> dict[str, float]:
    known = {phase: batch.phases.get(phase, 0.0) for phase in PHASES}
    return {**known, "other": max(batch.seconds - sum(batch.phases.values()), 0.0)}
