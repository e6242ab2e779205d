"""Offsets that the configuration accepts as lost (`audit.known_gaps`).

Of such a range only the offsets that bronze lacks count: one that is wider than the loss hides no other.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.config.audit import KnownGap
from pipelines.delta.io import small_rows
from pipelines.kafka.missing_offsets import within_ranges


def known_missing(
    offsets: DataFrame, gaps: Sequence[KnownGap], within: Mapping[int, range]
) -> dict[int, int]:
    """Return how many offsets of each partition are missing and known to be.

    Args:
        offsets: `_partition int, _offset bigint` of bronze, of one topic; files without offsets of the gaps
            are not read.
        gaps: What is known.
        within: By partition, the offsets that are looked at.

    Returns:
        By partition; those without any are left out.
    """
    return known_of(partial(held_within, offsets), gaps, within)


def known_of(
    held: Callable[[Sequence[tuple[int, range]]], Mapping[int, int]],
    gaps: Sequence[KnownGap],
    within: Mapping[int, range],
) -> dict[int, int]:
    """Return the same by whoever knows what bronze has.

    Args:
        held: Returns how many different offsets bronze has within ranges, by partition; see `held_within`.
        gaps: What is known.
        within: By partition, the offsets that are looked at.
    """
    ranges = [
        (gap.partition, overlap)
        for gap in gaps
        if (overlap := _common(gap.offsets, within.get(gap.partition, range(0))))
    ]
    if not ranges:
        return {}
    missing: dict[int, int] = {}
    for partition, overlap in ranges:
        missing[partition] = missing.get(partition, 0) + len(overlap)
    for partition, n in held(ranges).items():
        missing[partition] -= n
    return {partition: n for partition, n in missing.items() if n}


def held_within(offsets: DataFrame, ranges: Sequence[tuple[int, range]]) -> dict[int, int]:
    """Return how many different offsets there are within ranges, by partition.

    Args:
        offsets: `_partition int, _offset bigint`.
        ranges: Partitions and offsets; not empty.
    """
    by_partition = offsets.where(within_ranges(ranges)).groupBy("_partition")
    counts = by_partition.agg(F.countDistinct("_offset").alias("n"))
    return {row["_partition"]: row["n"] for row in small_rows(counts)}


def is_known_gap(partition: int, offsets: range, gaps: Sequence[KnownGap]) -> bool:
    """Return whether all of some offsets are known to be lost."""
    of_partition = (gap.offsets for gap in gaps if gap.partition == partition)
    return sum(len(_common(gap, offsets)) for gap in of_partition) == len(offsets)


def _common(left: range, right: range) -> range:
    return range(max(left.start, right.start), min(left.stop, right.stop))
