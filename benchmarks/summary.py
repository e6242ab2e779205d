"""What measurements come to: medians, ratios to the raw append, the cost of one more event."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import numpy as np

from benchmarks.items import ITEMS
from benchmarks.runner import Result

REFERENCE: Final = "raw"


@dataclass(frozen=True)
class AtSize:
    """What an item cost with so many events; medians over the repetitions.

    Attributes:
        events: how many records the topic holds.
        wall_s: seconds, starting Spark not included.
        cpu_s: CPU seconds of all processes in that time.
        compile_s: those of them that Java's compilers took.
        peak_mb: the largest resident memory of all processes, in megabytes.
        records_per_s: records for each second of wall time.
        ratio_wall: how fast it was against the raw append of as many records in the same run; more is faster.
        ratio_wall_range: the least and the greatest of the repetitions.
        ratio_cpu: the same by CPU seconds.
        written: bytes written for each byte of the records' values; None where that is not counted.
    """

    events: int
    wall_s: float
    cpu_s: float
    compile_s: float
    peak_mb: int
    records_per_s: int
    ratio_wall: float
    ratio_wall_range: tuple[float, float]
    ratio_cpu: float
    written: float | None


@dataclass(frozen=True)
class Summary:
    """What an item cost.

    Attributes:
        item: a name of `ITEMS`, or `build`.
        label: how tables call it.
        sizes: the cost at each size, the smallest first.
        marginal_us: CPU microseconds for each further event: the slope over the sizes, by least squares. None
            with a single size.
        warm_us: the same without Java's compilers, whose work ends after some minutes.
        fixed_s: CPU seconds with no event at all, by the line of `marginal_us`: planning, compiling, commits.
    """

    item: str
    label: str
    sizes: tuple[AtSize, ...]
    marginal_us: float | None
    warm_us: float | None
    fixed_s: float | None


def summarize(results: Sequence[Result]) -> list[Summary]:
    """Return what each item cost, in the order in which they were measured first.

    Args:
        results: of any number of runs, a run being one size and one repetition; each begins with the
            reference, and the last may have been ended early.
    """
    return [_summary(item, results) for item in dict.fromkeys(result.item for result in results)]


def label_of(item: str) -> str:
    """Return how tables call an item."""
    return ITEMS[item].label if item in ITEMS else "rebuild alone"


def _summary(item: str, results: Sequence[Result]) -> Summary:
    share = ITEMS[item].share if item in ITEMS else 1.0
    references = {result.run: result for result in results if result.item == REFERENCE}
    own = [result for result in results if result.item == item]
    sizes = tuple(
        _at_size([result for result in own if result.events == events], references, share)
        for events in sorted({result.events for result in own})
    )
    marginal, fixed = _line((size.events * share, size.cpu_s) for size in sizes)
    warm, _ = _line((size.events * share, size.cpu_s - size.compile_s) for size in sizes)
    return Summary(item, label_of(item), sizes, marginal, warm, fixed)


def _at_size(same: Sequence[Result], references: dict[tuple[int, int], Result], share: float) -> AtSize:
    raw = [references[result.run] for result in same]
    wall = [one.wall_s * share / result.wall_s for one, result in zip(raw, same, strict=True)]
    cpu = [one.cpu_s * share / result.cpu_s for one, result in zip(raw, same, strict=True)]
    wall_s = median(result.wall_s for result in same)
    written = [
        result.details["mb"]["written"] * 1e6 / (result.value_bytes * share)
        for result in same
        if "mb" in result.details
    ]
    return AtSize(
        events=same[0].events,
        wall_s=round(wall_s, 2),
        cpu_s=round(median(result.cpu_s for result in same), 2),
        compile_s=round(median(result.compile_s for result in same), 2),
        peak_mb=round(median(result.peak_mb for result in same)),
        records_per_s=round(same[0].events * share / wall_s),
        ratio_wall=round(median(wall), 3),
        ratio_wall_range=(round(min(wall), 3), round(max(wall), 3)),
        ratio_cpu=round(median(cpu), 3),
        written=round(median(written), 2) if written else None,
    )


def _line(points: Iterable[tuple[float, float]]) -> tuple[float | None, float | None]:
    """Return the slope, in microseconds, and the offset, in seconds, of a line through events and seconds."""
    events, seconds = zip(*points, strict=True)
    if len(events) < 2:
        return None, None
    slope, offset = np.polyfit(events, seconds, 1)
    return round(float(slope) * 1e6, 2), round(float(offset), 2)
