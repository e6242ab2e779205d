"""Which ranges of offsets bronze lacks, and how they are divided into chunks."""

import random
from collections.abc import Iterable

import pytest

from pipelines.kafka.missing_offsets import (
    Block,
    MissingOffsets,
    MissingRange,
    chunks,
    in_reading_order,
    lack_of,
    within_ranges,
)


def blocks(held: Iterable[int], size: int) -> dict[int, Block]:
    """What bronze has, counted by blocks."""
    counted: dict[int, Block] = {}
    for offset in sorted(set(held)):
        number = offset // size
        before = counted.get(number, Block(offset, offset, 0))
        counted[number] = Block(before.first, offset, before.distinct + 1)
    return counted


def whole(offsets: range) -> MissingRange:
    return MissingRange(offsets, is_partial=False)


def partial(offsets: range) -> MissingRange:
    return MissingRange(offsets, is_partial=True)


@pytest.mark.parametrize(
    ("held", "lack"),
    [
        (range(5, 37), MissingOffsets()),
        ((), MissingOffsets(32, (whole(range(5, 37)),))),
        (range(20, 37), MissingOffsets(15, (whole(range(5, 20)),))),
        (range(5, 12), MissingOffsets(25, (whole(range(12, 37)),))),
        # Some of a block are there, and some between them are not.
        ([*range(5, 22), 24, *range(26, 37)], MissingOffsets(3, (partial(range(20, 30)),))),
        # Two ends, with what is between them.
        (range(8, 30), MissingOffsets(10, (partial(range(5, 37)),))),
    ],
)
def test_a_range_without_a_record_is_read_whole_and_one_with_some_is_compared(
    held: Iterable[int], lack: MissingOffsets
) -> None:
    assert lack_of(range(5, 37), blocks(held, 10), 10) == lack


def test_what_lies_far_apart_is_read_apart() -> None:
    lack = lack_of(range(100_000), blocks(range(1_000, 99_000), 1_000), 1_000)
    assert lack == MissingOffsets(2_000, (whole(range(1_000)), whole(range(99_000, 100_000))))
    assert lack_of(range(7, 7), {}, 10) == MissingOffsets()


@pytest.mark.parametrize("seed", range(50))
def test_nothing_that_bronze_lacks_is_left_out_and_nothing_that_it_has_is_taken_for_missing(
    seed: int,
) -> None:
    dice = random.Random(seed)  # noqa: S311 - nothing secret
    span, size = range(dice.randrange(50), 50 + dice.randrange(300)), dice.randrange(1, 40)
    edges = sorted(dice.choices(span, k=6))
    held = [o for a, b in zip(edges[::2], edges[1::2], strict=True) for o in range(a, b)]
    held = [offset for offset in held if dice.random() > 0.05]
    lack = lack_of(span, blocks(held, size), size)
    missing = set(span) - set(held)
    read = [offset for each in lack.ranges for offset in each.offsets]
    assert lack.offsets == len(missing)
    assert read == sorted(set(read))
    assert missing <= set(read) <= set(span)
    # Whatever is not compared with bronze one by one must not be there.
    assert not {o for each in lack.ranges if not each.is_partial for o in each.offsets} & set(held)

    most = dice.randrange(1, 60)
    divided = list(chunks({0: lack.ranges, 3: lack.ranges[:1]}, most))
    for number, ranges in ((0, lack.ranges), (3, lack.ranges[:1])):
        pieces = [chunk[number] for chunk in divided if number in chunk]
        assert [o for each in pieces for o in each.offsets] == [o for each in ranges for o in each.offsets]
    assert all(sum(len(each.offsets) for each in chunk.values()) <= max(most, 2) for chunk in divided)

    begins = dice.choice([0, *held, span.stop])
    ordered = in_reading_order(lack.ranges, begins)
    behind = [o for chunk in chunks({0: ordered}, most) for o in chunk[0].offsets if o >= begins]
    before = [chunk[0].offsets for chunk in chunks({0: ordered}, most) if chunk[0].offsets.start < begins]
    assert behind == [offset for offset in read if offset >= begins]
    assert [o for each in reversed(before) for o in each] == [offset for offset in read if offset < begins]


def test_partitions_share_a_chunk() -> None:
    missing = {1: [whole(range(10)), partial(range(50, 53))], 0: [whole(range(4))]}
    assert list(chunks(missing, 8)) == [
        {0: whole(range(4)), 1: whole(range(4))},
        {1: whole(range(4, 10))},
        {1: partial(range(50, 53))},
    ]


def test_before_the_first_record_of_bronze_the_highest_offsets_come_first() -> None:
    ordered = in_reading_order([partial(range(25)), whole(range(40, 43))], 10)
    assert [chunk[0] for chunk in chunks({0: ordered}, 8)] == [
        *(partial(range(10, 18)), partial(range(18, 25)), whole(range(40, 43))),
        *(MissingRange(offsets, is_partial=True, from_end=True) for offsets in (range(2, 10), range(2))),
    ]


def test_ranges_become_a_condition() -> None:
    one = "(_partition = 0 AND _offset BETWEEN 3 AND 8)"
    assert within_ranges([(0, range(3, 9)), (1, range(5, 5))]) == one
    assert within_ranges([(0, range(3, 9)), (0, range(8, 9))]).startswith(f"{one} OR (")
    assert within_ranges([]) == "false"
