"""Offsets of bronze, added up from the pieces in which it came."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from pipelines.ops.seal import above_bronze
from pipelines.quality.broker_offsets import Kept
from pipelines.quality.offset_ledger import PartitionOffsets, partition_offsets

MIDNIGHT = datetime(2013, 1, 2, tzinfo=UTC)


def piece(offsets: list[int], partition: int = 0) -> dict[str, object]:
    return {
        "topic": "t",
        "partition": partition,
        "first": min(offsets),
        "last": max(offsets),
        "records": len(offsets),
        "distinct": len(set(offsets)),
        "sent": MIDNIGHT,
        "appended": None,
    }


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=8), min_size=1, max_size=5))
def test_the_sum_is_that_of_all_offsets_or_is_not_told(pieces: list[list[int]]) -> None:
    every = [offset for offsets in pieces for offset in offsets]
    [found] = partition_offsets(map(piece, pieces))
    assert (found.first, found.last, found.records) == (min(every), max(every), len(every))
    assert found.distinct in (None, len(set(every)))


def test_pieces_that_were_read_again_are_counted_once() -> None:
    pieces = [piece([0, 1, 2, 3]), piece([2, 3, 4]), piece([7, 8]), piece([5], partition=1)]
    zero, one = partition_offsets(pieces)
    assert (zero.records, zero.distinct, zero.last) == (9, 7, 8)
    assert (one.partition, one.distinct) == (1, 1)
    [unsure] = partition_offsets([piece([0, 2]), piece([1, 2])])
    assert unsure.distinct is None


def test_a_partition_is_sealed_by_its_end_or_by_a_record_that_the_broker_took_afterwards() -> None:
    before = datetime(2013, 1, 1, 23, tzinfo=UTC)
    found = [
        # What the producer of the first says of the time counts for nothing.
        PartitionOffsets("t", 0, 0, 9, 10, 10, MIDNIGHT),
        PartitionOffsets("t", 1, 0, 9, 10, 10, MIDNIGHT, MIDNIGHT),
        PartitionOffsets("t", 2, 0, 9, 10, 10, before, before),
        PartitionOffsets("t", 6, 0, 9, 10, 10, before, before),
    ]
    kept = {0: 12, 1: 12, 2: 12, 3: 4, 4: 0, 5: 4, 6: 10}
    above = above_bronze(found, {number: Kept(0, end) for number, end in kept.items()}, MIDNIGHT, {5: 4})
    assert above == {0: 10, 2: 10, 3: 0}
    # Of a partition that bronze lacks, what was deleted before ingest began is not missed.
    assert above_bronze([], {0: Kept(3, 5), 1: Kept(5, 5)}, MIDNIGHT, {}) == {0: 3}
