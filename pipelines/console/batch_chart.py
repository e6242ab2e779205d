"""What micro-batches spend their time on: charts of shapes alone, and the sums that say the same in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipelines.config.streams import Query
from pipelines.lag.phases import PHASES, phases_of
from pipelines.spark.stream_progress import BatchFigures

OTHER: Final = "other"
"""What a micro-batch takes and no phase does."""
SHOWN: Final[tuple[str, ...]] = (*PHASES, OTHER)
"""All that time is divided into, in the order in which it is shown."""

BAR_WIDTH: Final = 100.0
_STEP: Final = 10.0
_COLUMN: Final = 8.0
_HEIGHT: Final = 100.0


@dataclass(frozen=True)
class Bar:
    """A part of a column, or of a bar, in the units of the chart."""

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

    @property
    def words(self) -> str:
        """Its share for people; what is little is not nothing."""
        return "< 1 %" if self.share < 0.005 else f"{100 * self.share:.0f} %"


@dataclass(frozen=True)
class PhaseBar:
    """What the last micro-batches with records took, in one bar.

    Attributes:
        parts: Its parts, from the left.
        sums: The phases that took any time, the longest first.
    """

    parts: tuple[Bar, ...]
    sums: tuple[PhaseSum, ...]

    @property
    def words(self) -> str:
        """The same as the bar says."""
        return ", ".join(f"{each.phase} {each.words}" for each in self.sums)


@dataclass(frozen=True)
class BatchChart:
    """The last micro-batches with records.

    Attributes:
        bars: All parts of all columns, one column for each micro-batch.
        width: Of the chart.
        longest_s: What the highest column stands for.
        sums: The phases that took any time, in the order of `SHOWN`.
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


def batch_chart(batches: Sequence[BatchFigures], stage: Query) -> BatchChart | None:
    """Return what micro-batches spent their time on; None if there are none.

    Args:
        batches: The last micro-batches with records, the oldest first.
        stage: Whose they are.
    """
    if not batches:
        return None
    parts = [_phases(batch, stage) for batch in batches]
    longest = max(sum(each.values()) for each in parts) or 1.0
    bars: list[Bar] = []
    for number, each in enumerate(parts):
        top = _HEIGHT
        for phase in SHOWN:
            height = each[phase] / longest * _HEIGHT
            top -= height
            if height:
                bars.append(Bar(phase, number * _STEP, round(top, 2), _COLUMN, round(height, 2)))
    sums = _sums(parts)
    records, whole = sum(batch.records for batch in batches), sum(each.seconds for each in sums)
    return BatchChart(tuple(bars), len(parts) * _STEP, longest, sums, len(parts), records, whole)


def phase_bar(batches: Sequence[BatchFigures], stage: Query) -> PhaseBar | None:
    """Return the same for all of them together; None if there are none, or they took no time.

    Args:
        batches: The last micro-batches with records.
        stage: Whose they are.
    """
    sums = _sums([_phases(batch, stage) for batch in batches])
    if not sums:
        return None
    parts, left = [], 0.0
    for each in sums:
        width = BAR_WIDTH * each.share
        parts.append(Bar(each.phase, round(left, 1), 0.0, round(width, 1), 1.0))
        left += width
    return PhaseBar(tuple(parts), tuple(sorted(sums, key=lambda each: each.share, reverse=True)))


def _sums(parts: Sequence[Mapping[str, float]]) -> tuple[PhaseSum, ...]:
    """Return the sums of the phases that took any time, in the order of `SHOWN`."""
    totals = {phase: sum(each[phase] for each in parts) for phase in SHOWN}
    whole = sum(totals.values())
    return tuple(PhaseSum(name, took, took / whole) for name, took in totals.items() if took > 0)


def _phases(batch: BatchFigures, stage: Query) -> dict[str, float]:
    known = phases_of(batch, stage)
    found: dict[str, float] = {phase: known[phase] for phase in PHASES}
    return {**found, OTHER: max(batch.seconds - sum(known.values()), 0.0)}
