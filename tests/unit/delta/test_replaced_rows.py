"""Which files a commit removes is told by their partitions and statistics, and by nothing else."""

import json
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.delta.replaced_rows import RowsOfDays, RowsOfPartition

NUMBERS = st.one_of(st.none(), st.integers(0, 9))


def file_of(numbers: list[int | None], pipeline: str | None = "a") -> dict[str, Any]:
    """A file as Delta's log has it, with its statistics of a column."""
    there = [number for number in numbers if number is not None]
    bounds = {"minValues": {"until": min(there)}, "maxValues": {"until": max(there)}} if there else {}
    nulls = {"nullCount": {"until": numbers.count(None)}}
    return {"partitionValues": {"pipeline": pipeline}, "stats": json.dumps({**bounds, **nulls})}


@given(st.lists(NUMBERS, min_size=1), st.integers(0, 9), st.sampled_from(["a", "b", None]))
def test_a_file_is_removed_only_if_each_of_its_rows_is_replaced_and_stays_only_if_none_is(
    numbers: list[int | None], above: int, pipeline: str | None
) -> None:
    replaced = [pipeline == "a" and number is not None and number > above for number in numbers]
    told = RowsOfPartition({"pipeline": "a"}, "until", above).are_all(file_of(numbers, pipeline))
    assert told in {None, all(replaced)}
    assert told in {None, any(replaced)}


@pytest.mark.parametrize(
    ("numbers", "told"), [([1, 5], False), ([6, 9], True), ([5, 6], None), ([None, 9], None), ([None], None)]
)
def test_statistics_tell_of_rows_above_a_bound(numbers: list[int | None], told: bool | None) -> None:
    assert RowsOfPartition({"pipeline": "a"}, "until", 5).are_all(file_of(numbers)) is told


@pytest.mark.parametrize("stats", [None, "", "{}", '{"minValues": {"until": 7}}'])
def test_without_statistics_it_cannot_be_told(stats: str | None) -> None:
    file = {**file_of([7]), "stats": stats}
    assert RowsOfPartition({"pipeline": "a"}, "until", 5).are_all(file) is None
    assert RowsOfPartition({"pipeline": "a"}, "until", None).are_all(file) is True


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("2013-01-01", True),
        ("2013-01-03", True),
        ("2013-01-02", False),
        (None, False),
        # Delta takes it for a day. So it is left to Delta.
        ("2013-1-1", None),
    ],
)
def test_a_file_of_a_day_is_told_by_its_partition(value: str | None, told: bool | None) -> None:
    replaced = RowsOfDays([date(2013, 1, 1), date(2013, 1, 3)])
    file = {"partitionValues": {"_event_date": value}}
    assert replaced.are_all(file) is told


def test_conditions_on_partitions_stand_apart() -> None:
    of_partition = "pipeline = 'a\\'b'"
    assert RowsOfPartition({"pipeline": "a'b"}, "until", 5).conditions == (of_partition, "until > 5")
    assert RowsOfPartition({"pipeline": "a'b"}, "until", None).conditions == (of_partition,)
