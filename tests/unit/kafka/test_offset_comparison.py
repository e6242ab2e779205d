"""What bronze lacks of Kafka is named, with what explains it."""

from dataclasses import replace

import pytest

from pipelines.kafka.offset_comparison import (
    BronzeOffsets,
    Tail,
    TopicPolicy,
    asked_behind,
    compare_offsets,
)
from pipelines.kafka.topic_offsets import BrokerOffsets

KEPT = {0: BrokerOffsets(0, 100)}
WHOLE = BronzeOffsets(0, 99)
HOLES = replace(WHOLE, holes=((10, 12),))


@pytest.mark.parametrize(
    ("kept", "held", "habits", "expected"),
    [
        (KEPT, {0: WHOLE}, TopicPolicy(), []),
        (KEPT, {}, TopicPolicy(), [("lag", 100, False, "0..99: not read yet")]),
        ({0: BrokerOffsets(5, 5)}, {}, TopicPolicy(), []),
        (KEPT, {0: BronzeOffsets(0, 98)}, TopicPolicy(), [("lag", 1, False, "99: not read yet")]),
        (
            {0: BrokerOffsets(60, 100)},
            {0: BronzeOffsets(0, 49)},
            TopicPolicy(),
            [("deleted", 10, True, "50..59: deleted"), ("lag", 40, False, "60..99: not read yet")],
        ),
        (
            {0: BrokerOffsets(7, 100)},
            {0: BronzeOffsets(5, 99)},
            TopicPolicy(),
            [("before", 5, False, "0..4: from before")],
        ),
        (
            {0: BrokerOffsets(2, 100)},
            {0: BronzeOffsets(5, 99, skipped=3)},
            TopicPolicy(),
            [("skipped", 3, True, "3 records of 2..4")],
        ),
        (
            KEPT,
            {0: BronzeOffsets(5, 99, skipped=5)},
            TopicPolicy(began_late=True),
            [("skipped", 5, False, "latest")],
        ),
        # Nothing lies before the first record: compaction, or markers.
        (KEPT, {0: BronzeOffsets(5, 99)}, TopicPolicy(), []),
        (
            KEPT,
            {0: replace(HOLES, lost=3)},
            TopicPolicy(is_compacted=True),
            [("gap", 3, True, "Kafka has them")],
        ),
        (KEPT, {0: replace(HOLES, empty=3)}, TopicPolicy(), [("gap", 3, False, "transaction markers")]),
        (
            KEPT,
            {0: replace(HOLES, empty=3)},
            TopicPolicy(is_compacted=True),
            [("gap", 3, False, "compaction")],
        ),
        (
            {0: BrokerOffsets(50, 100)},
            {0: replace(HOLES, gone=3)},
            TopicPolicy(),
            [("gap", 3, True, "whether they were records is unknown")],
        ),
        (
            KEPT,
            {0: replace(HOLES, gone=3)},
            TopicPolicy(is_compacted=True),
            [("gap", 3, False, "is compacted")],
        ),
        (
            KEPT,
            {0: replace(HOLES, gone=3)},
            TopicPolicy(gaps_are_lawful=True),
            [("gap", 3, False, "offset_gaps")],
        ),
        (
            {0: BrokerOffsets(50, 100)},
            {0: replace(HOLES, gone=3, known=2)},
            TopicPolicy(),
            [("gap", 2, False, "audit.known_gaps"), ("gap", 1, True, "whether they were records is unknown")],
        ),
        (
            {0: BrokerOffsets(60, 100)},
            {0: BronzeOffsets(0, 49, is_end_known=True)},
            TopicPolicy(),
            [("deleted", 10, False, "audit.known_gaps"), ("lag", 40, False, "60..99: not read yet")],
        ),
        (
            KEPT,
            {0: BronzeOffsets(0, 100)},
            TopicPolicy(),
            [("made_anew", 101, True, "end offset is 100")],
        ),
        (KEPT, {0: WHOLE}, TopicPolicy(is_anew=True), [("made_anew", 100, True, "recreated")]),
        ({}, {0: WHOLE}, TopicPolicy(), [("made_anew", 100, True, "Kafka has no such partition")]),
    ],
)
def test_each_difference_is_named_once(
    kept: dict[int, BrokerOffsets],
    held: dict[int, BronzeOffsets],
    habits: TopicPolicy,
    expected: list[tuple[str, int, bool, str]],
) -> None:
    found = compare_offsets(kept, held, habits, {})
    assert [(f.kind, f.offsets, f.alarm) for f in found] == [each[:3] for each in expected]
    for finding, (*_, words) in zip(found, expected, strict=True):
        assert words in finding.words


@pytest.mark.parametrize(
    ("held", "tail", "expected"),
    [
        (
            {0: BronzeOffsets(0, 79)},
            Tail(100, lost=20),
            [("gap", 20, True, "checkpoint says they were read")],
        ),
        ({0: BronzeOffsets(0, 79)}, Tail(100), [("gap", 20, False, "80..99: Kafka has no record there")]),
        (
            {0: BronzeOffsets(0, 79)},
            Tail(90, lost=4),
            [
                ("gap", 4, True, "4 records within 80..89"),
                ("gap", 6, False, "6 offsets within 80..89"),
                ("lag", 10, False, "90..99: not read yet"),
            ],
        ),
        ({}, Tail(100, lost=100), [("gap", 100, True, "100 records within 0..99")]),
        ({0: WHOLE}, Tail(100), []),
        # A checkpoint that is older than bronze.
        ({0: BronzeOffsets(0, 89)}, Tail(50), [("lag", 10, False, "90..99: not read yet")]),
    ],
)
def test_what_was_read_behind_the_last_record_of_bronze_is_lost_or_no_record(
    held: dict[int, BronzeOffsets], tail: Tail, expected: list[tuple[str, int, bool, str]]
) -> None:
    found = compare_offsets(KEPT, held, TopicPolicy(), {0: tail})
    assert [(f.kind, f.offsets, f.alarm) for f in found] == [each[:3] for each in expected]
    for finding, (*_, words) in zip(found, expected, strict=True):
        assert words in finding.words


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
