"""What bronze lacks of Kafka is named, with what explains it."""

from dataclasses import replace
from typing import get_args

import pytest

from pipelines.config.audit import KnownGap
from pipelines.kafka.topic_offsets import BrokerOffsets
from pipelines.lineage.offset_comparison import (
    KINDS,
    BronzeOffsets,
    DifferenceCause,
    Kind,
    OffsetDifference,
    Tail,
    TopicPolicy,
    asked_behind,
    compare_offsets,
)

KEPT = {0: BrokerOffsets(0, 100)}
WHOLE = BronzeOffsets(0, 99)
HOLES = replace(WHOLE, holes=((10, 12),))


def in_short(found: list[OffsetDifference]) -> list[tuple[DifferenceCause, int, int, int]]:
    return [(each.cause, each.offsets, each.first, each.last) for each in found]


@pytest.mark.parametrize(
    ("kept", "held", "habits", "expected"),
    [
        (KEPT, {0: WHOLE}, TopicPolicy(), []),
        (KEPT, {}, TopicPolicy(), [("not_read", 100, 0, 99)]),
        ({0: BrokerOffsets(5, 5)}, {}, TopicPolicy(), []),
        # Ingest had begun, and Kafka deleted what it had not read.
        ({0: BrokerOffsets(5, 5)}, {}, TopicPolicy(began={0: 0}), [("deleted", 5, 0, 4)]),
        (
            {0: BrokerOffsets(60, 100)},
            {},
            TopicPolicy(began={0: 10}, is_cut=True),
            [("deleted", 50, 10, 59), ("not_read", 40, 60, 99)],
        ),
        ({0: BrokerOffsets(5, 5)}, {}, TopicPolicy(began={0: 5}), []),
        (
            {0: BrokerOffsets(5, 5)},
            {},
            TopicPolicy(began={0: 0}, gaps_are_lawful=True),
            [("gone_accepted", 5, 0, 4)],
        ),
        (
            {0: BrokerOffsets(7, 100)},
            {0: BronzeOffsets(5, 99)},
            TopicPolicy(began={0: 2}, is_compacted=True),
            [("gone_compacted", 3, 2, 4), ("before", 2, 0, 1)],
        ),
        # A partition that was added later begins with its first record.
        ({0: BrokerOffsets(5, 5)}, {}, TopicPolicy(began={1: 7}), [("deleted", 5, 0, 4)]),
        (
            {0: BrokerOffsets(5, 5)},
            {},
            TopicPolicy(began={0: 0}, known_gaps=[KnownGap(partition=0, first=0, last=9, why="known")]),
            [("deleted_known", 5, 0, 4)],
        ),
        (
            {0: BrokerOffsets(7, 100)},
            {0: BronzeOffsets(5, 99)},
            TopicPolicy(began={0: 2}),
            [("deleted", 3, 2, 4), ("before", 2, 0, 1)],
        ),
        (
            {0: BrokerOffsets(7, 100)},
            {0: BronzeOffsets(5, 99)},
            TopicPolicy(began={0: 2}, is_cut=True),
            [("before", 5, 0, 4)],
        ),
        (
            {0: BrokerOffsets(3, 100)},
            {0: BronzeOffsets(5, 99, skipped=2)},
            TopicPolicy(began={0: 0}),
            [("deleted", 3, 0, 2), ("skipped", 2, 3, 4)],
        ),
        (KEPT, {0: BronzeOffsets(0, 98)}, TopicPolicy(), [("not_read", 1, 99, 99)]),
        (
            {0: BrokerOffsets(60, 100)},
            {0: BronzeOffsets(0, 49)},
            TopicPolicy(),
            [("deleted", 10, 50, 59), ("not_read", 40, 60, 99)],
        ),
        (
            {0: BrokerOffsets(7, 100)},
            {0: BronzeOffsets(5, 99)},
            TopicPolicy(),
            [("before", 5, 0, 4)],
        ),
        (
            {0: BrokerOffsets(2, 100)},
            {0: BronzeOffsets(5, 99, skipped=3)},
            TopicPolicy(),
            [("skipped", 3, 2, 4)],
        ),
        (
            KEPT,
            {0: BronzeOffsets(5, 99, skipped=5)},
            TopicPolicy(began_late=True),
            [("skipped_by_setting", 5, 0, 4)],
        ),
        # Nothing lies before the first record: compaction, or markers.
        (KEPT, {0: BronzeOffsets(5, 99)}, TopicPolicy(), []),
        (
            KEPT,
            {0: replace(HOLES, lost=3)},
            TopicPolicy(is_compacted=True),
            [("lost", 3, 0, 99)],
        ),
        (KEPT, {0: replace(HOLES, empty=3)}, TopicPolicy(), [("no_record", 3, 0, 99)]),
        (
            KEPT,
            {0: replace(HOLES, empty=3)},
            TopicPolicy(is_compacted=True),
            [("removed_by_compaction", 3, 0, 99)],
        ),
        (
            {0: BrokerOffsets(50, 100)},
            {0: replace(HOLES, gone=3)},
            TopicPolicy(),
            [("gone_unknown", 3, 0, 99)],
        ),
        (
            KEPT,
            {0: replace(HOLES, gone=3)},
            TopicPolicy(is_compacted=True),
            [("gone_compacted", 3, 0, 99)],
        ),
        (
            KEPT,
            {0: replace(HOLES, gone=3)},
            TopicPolicy(gaps_are_lawful=True),
            [("gone_accepted", 3, 0, 99)],
        ),
        (
            {0: BrokerOffsets(50, 100)},
            {0: replace(HOLES, gone=3, known=2)},
            TopicPolicy(),
            [("gone_known", 2, 0, 99), ("gone_unknown", 1, 0, 99)],
        ),
        (
            {0: BrokerOffsets(60, 100)},
            {0: BronzeOffsets(0, 49, is_end_known=True)},
            TopicPolicy(),
            [("deleted_known", 10, 50, 59), ("not_read", 40, 60, 99)],
        ),
        (
            KEPT,
            {0: BronzeOffsets(0, 100)},
            TopicPolicy(),
            [("made_anew", 101, 0, 100)],
        ),
        (KEPT, {0: WHOLE}, TopicPolicy(is_anew=True), [("made_anew", 100, 0, 99)]),
        ({}, {0: WHOLE}, TopicPolicy(), [("made_anew", 100, 0, 99)]),
    ],
)
def test_each_difference_is_named_once(
    kept: dict[int, BrokerOffsets],
    held: dict[int, BronzeOffsets],
    habits: TopicPolicy,
    expected: list[tuple[DifferenceCause, int, int, int]],
) -> None:
    found = compare_offsets(kept, held, habits, {})
    assert in_short(found) == expected


@pytest.mark.parametrize(
    ("held", "tail", "expected"),
    [
        (
            {0: BronzeOffsets(0, 79)},
            Tail(100, lost=20),
            [("lost_though_read", 20, 80, 99)],
        ),
        ({0: BronzeOffsets(0, 79)}, Tail(100), [("no_record", 20, 80, 99)]),
        (
            {0: BronzeOffsets(0, 79)},
            Tail(90, lost=4),
            [
                ("lost_though_read", 4, 80, 89),
                ("no_record", 6, 80, 89),
                ("not_read", 10, 90, 99),
            ],
        ),
        ({}, Tail(100, lost=100), [("lost_though_read", 100, 0, 99)]),
        ({0: WHOLE}, Tail(100), []),
        # A checkpoint that is older than bronze.
        ({0: BronzeOffsets(0, 89)}, Tail(50), [("not_read", 10, 90, 99)]),
    ],
)
def test_what_was_read_behind_the_last_record_of_bronze_is_lost_or_no_record(
    held: dict[int, BronzeOffsets], tail: Tail, expected: list[tuple[DifferenceCause, int, int, int]]
) -> None:
    found = compare_offsets(KEPT, held, TopicPolicy(), {0: tail})
    assert in_short(found) == expected


def test_kafka_is_asked_for_what_was_read_and_bronze_lacks() -> None:
    kept = {
        0: BrokerOffsets(0, 100),
        1: BrokerOffsets(40, 100),
        2: BrokerOffsets(0, 100),
        3: BrokerOffsets(0, 5),
    }
    held = {0: BronzeOffsets(0, 79), 1: BronzeOffsets(0, 9), 2: BronzeOffsets(0, 99)}
    until = {0: 90, 1: 100, 2: 100, 3: 7, 4: 3}
    assert asked_behind(kept, held, until) == {0: range(80, 90), 1: range(40, 100), 3: range(5)}


def test_a_topic_that_was_made_anew_is_told_with_its_end_offset() -> None:
    ends = [compare_offsets(kept, {0: BronzeOffsets(0, 100)}, TopicPolicy(), {}) for kept in (KEPT, {})]
    assert [difference.kafka_end for (difference,) in ends] == [100, None]


def test_holes_are_named_where_bronze_has_records_around_them() -> None:
    behind = {0: Tail(100, lost=2)}
    found = compare_offsets(KEPT, {0: replace(HOLES, last=89, lost=3)}, TopicPolicy(), behind)
    assert [(each.cause, each.holes) for each in found] == [
        ("lost", ((10, 12),)),
        ("lost_though_read", ()),
        ("no_record", ()),
    ]


def test_each_cause_is_counted_and_some_are_alarms() -> None:
    assert set(KINDS) == set(get_args(DifferenceCause))
    assert set(KINDS.values()) == set(get_args(Kind))
    counted = {cause: OffsetDifference(0, cause, 1, 0, 0) for cause in KINDS}
    assert {(cause, each.kind) for cause, each in counted.items() if each.alarm} == {
        ("deleted", "deleted"),
        ("skipped", "skipped"),
        ("lost", "gap"),
        ("lost_though_read", "gap"),
        ("gone_unknown", "gap"),
        ("made_anew", "made_anew"),
    }
