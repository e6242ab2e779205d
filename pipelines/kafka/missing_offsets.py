"""Which ranges of offsets bronze lacks, and how they are divided into chunks.

Bronze is counted by blocks of offsets, so what the driver gets is bounded, however long the ranges are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.delta.io import small_rows

_MOST_BLOCKS: Final = 10_000
_LEAST_OFFSETS: Final = 100
_JOINED_OVER: Final = 10_000
"""Offsets between two missing ranges that are read as well: a read and a commit more would cost more."""


@dataclass(frozen=True)
class Block:
    """What bronze has of a block of offsets: its first and last offset there, and how many different ones."""

    first: int
    last: int
    distinct: int


@dataclass(frozen=True)
class MissingRange:
    """A range of offsets that is read from Kafka.

    Attributes:
        offsets: The range.
        is_partial: Whether bronze may have some of them, which are then left out one by one.
        from_end: Whether its last offsets are read first.
    """

    offsets: range
    is_partial: bool
    from_end: bool = False


@dataclass(frozen=True)
class MissingOffsets:
    """What bronze lacks of a range of offsets.

    Attributes:
        offsets: How many different offsets it lacks.
        ranges: Where they are, in order.
    """

    offsets: int = 0
    ranges: tuple[MissingRange, ...] = ()


def within_ranges(ranges: Iterable[tuple[int, range]]) -> str:
    """Return an SQL condition: whether a record of bronze lies within one of the ranges of its partition."""
    parts = (
        f"(_partition = {number} AND _offset BETWEEN {offsets.start} AND {offsets.stop - 1})"
        for number, offsets in ranges
        if offsets
    )
    return " OR ".join(parts) or "false"


Blocks = Mapping[int, Mapping[int, Block]]
"""What bronze has, by partition and by the number of the block: `offset // size`."""


def lacking(
    blocks_of: Callable[[Mapping[int, range], int], Blocks], spans: Mapping[int, range]
) -> dict[int, MissingOffsets]:
    """Return what bronze lacks of a range of offsets of each partition.

    Args:
        blocks_of: Returns what bronze has of ranges, by blocks of a size; see `held_blocks`.
        spans: The ranges by partition.

    Returns:
        A value for each partition of `spans`.
    """
    size = max(_LEAST_OFFSETS, -(-sum(map(len, spans.values())) // _MOST_BLOCKS))
    blocks = blocks_of(spans, size)
    return {number: lack_of(span, blocks.get(number, {}), size) for number, span in spans.items()}


def held_blocks(offsets: DataFrame, spans: Mapping[int, range], size: int) -> Blocks:
    """Return what bronze has of a range of offsets of each partition.

    Files of bronze without offsets of the ranges are not read.

    Args:
        offsets: `_partition int, _offset bigint` of bronze, of one topic.
        spans: The ranges by partition.
        size: How many offsets a block has.
    """
    block = F.expr(f"_offset DIV {size} AS block")
    held = offsets.where(within_ranges(spans.items())).groupBy("_partition", block)
    counted = held.agg(
        F.min("_offset").alias("first"),
        F.max("_offset").alias("last"),
        F.count_distinct("_offset").alias("distinct"),
    )
    blocks: dict[int, dict[int, Block]] = {number: {} for number in spans}
    for row in small_rows(counted):
        blocks[row["_partition"]][row["block"]] = Block(row["first"], row["last"], row["distinct"])
    return blocks


def lack_of(span: range, blocks: Mapping[int, Block], size: int) -> MissingOffsets:
    """Return what bronze lacks of a range of offsets.

    Args:
        span: The range.
        blocks: What bronze has of it, by the number of the block: `offset // size`.
        size: How many offsets a block has.
    """
    if not span:
        return MissingOffsets()
    ranges, missing = list[MissingRange](), 0
    for number in range(span.start // size, (span.stop - 1) // size + 1):
        offsets = range(max(span.start, number * size), min(span.stop, (number + 1) * size))
        block = blocks.get(number)
        missing += len(offsets) - (block.distinct if block else 0)
        for each in _of_block(offsets, block):
            _join(ranges, each)
    return MissingOffsets(missing, tuple(ranges))


def _of_block(offsets: range, block: Block | None) -> Iterator[MissingRange]:
    if block is None:
        yield MissingRange(offsets, is_partial=False)
    elif block.distinct < block.last - block.first + 1:
        yield MissingRange(offsets, is_partial=True)
    else:
        for edge in (range(offsets.start, block.first), range(block.last + 1, offsets.stop)):
            if edge:
                yield MissingRange(edge, is_partial=False)


def _join(ranges: list[MissingRange], following: MissingRange) -> None:
    """Add a range to those before it, to the last of them if little lies in between."""
    last = ranges[-1] if ranges else None
    if last is None or following.offsets.start - last.offsets.stop > _JOINED_OVER:
        ranges.append(following)
        return
    is_partial = last.is_partial or following.is_partial or last.offsets.stop < following.offsets.start
    ranges[-1] = MissingRange(range(last.offsets.start, following.offsets.stop), is_partial)


def in_reading_order(ranges: Iterable[MissingRange], first: int) -> list[MissingRange]:
    """Return ranges in the order in which they are read, so that no gap is left wherever a run ends.

    Behind the first offset in bronze the lowest come first, so bronze ends where its gaps do. Before it the
    highest come first, so bronze begins earlier with each chunk, and has no gap that it did not have.

    Args:
        ranges: The ranges in order.
        first: The first offset in bronze; see `pipelines.kafka.backfill_plan.PartitionPlan`.
    """
    behind, before = list[MissingRange](), list[MissingRange]()
    for each in ranges:
        start, stop = each.offsets.start, each.offsets.stop
        if higher := range(max(start, first), stop):
            behind.append(MissingRange(higher, each.is_partial))
        if lower := range(start, min(stop, first)):
            before.append(MissingRange(lower, each.is_partial, from_end=True))
    return [*behind, *reversed(before)]


def chunks(missing: Mapping[int, Iterable[MissingRange]], most: int) -> Iterator[dict[int, MissingRange]]:
    """Yield ranges to read at once: of each partition the next that are left.

    Args:
        missing: By partition, the ranges in the order in which they are read.
        most: How many offsets a chunk has, over all partitions; one of each partition at least.
    """
    left = {number: list(ranges) for number, ranges in sorted(missing.items())}
    while left := {number: ranges for number, ranges in left.items() if ranges}:
        share = max(1, most // len(left))
        chunk: dict[int, MissingRange] = {}
        for number, ranges in left.items():
            following = ranges.pop(0)
            offsets = following.offsets
            at = max(0, len(offsets) - share) if following.from_end else min(share, len(offsets))
            parts = [replace(following, offsets=part) for part in (offsets[:at], offsets[at:])]
            rest, chunk[number] = parts if following.from_end else reversed(parts)
            if rest.offsets:
                ranges.insert(0, rest)
        yield chunk
