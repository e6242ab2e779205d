"""What of the offsets that bronze lacks was accepted as lost."""

import pytest
from pydantic import ValidationError

from pipelines.config.audit import AuditConfig, KnownGap
from pipelines.kafka.known_gaps import is_known_gap

GAPS = [
    KnownGap(partition=0, first=10, last=19, why="retention"),
    KnownGap(partition=0, first=20, last=24, why="retention again"),
    KnownGap(partition=1, first=5, last=5, why="a broken disk"),
]


@pytest.mark.parametrize(
    ("partition", "offsets", "known"),
    [
        (0, range(10, 25), True),
        (0, range(12, 21), True),
        (0, range(9, 12), False),
        (0, range(24, 26), False),
        (1, range(5, 6), True),
        (1, range(5, 7), False),
        (2, range(5, 6), False),
    ],
)
def test_what_is_lost_is_known_if_all_of_it_is(partition: int, offsets: range, known: bool) -> None:
    assert is_known_gap(partition, offsets, GAPS) is known


@pytest.mark.parametrize(
    ("gaps", "said"),
    [
        ([{"partition": 0, "first": 5, "last": 4, "why": "x"}], "last: found 4, expected first (5) or more"),
        ([{"partition": 0, "first": 5, "last": 6}], "why"),
        (
            [
                {"partition": 0, "first": 6, "last": 9, "why": "x"},
                {"partition": 0, "first": 1, "last": 6, "why": "y"},
            ],
            "partition 0: found 1..6 and 6..9, expected ranges that do not overlap",
        ),
    ],
)
def test_what_means_nothing_is_refused(gaps: list[dict[str, object]], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        AuditConfig.model_validate({"known_gaps": gaps})
    assert said in str(refused.value)
