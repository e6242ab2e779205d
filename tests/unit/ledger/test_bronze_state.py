"""Whether bronze is still what its index was made from, without a lake."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import SourceError
from pipelines.ledger.bronze_state import (
    BronzeState,
    Indexed,
    bronze_id,
    is_continued,
    require_offsets_of_index,
    without_removed,
)
from pipelines.ledger.offset_ranges import PartitionOffsets

BRONZE = BronzeState("bronze", 9, "id", "c9", "topic", None, {})
INDEXED = Indexed("made", 5, "id", "c5", "topic", None)
LOG = {5: "c5", 9: "c9"}.get


def test_bronze_continues_what_was_indexed() -> None:
    assert is_continued(BRONZE, INDEXED, LOG)
    assert is_continued(BRONZE, replace(INDEXED, bronze_id="id/12345678"), LOG)


@pytest.mark.parametrize(
    ("indexed", "log"),
    [
        (replace(INDEXED, bronze_id="another"), LOG),
        (INDEXED, {5: "of a restored copy"}.get),
        (INDEXED, dict[int, str]().get),
        (replace(INDEXED, until_commit=None), LOG),
    ],
)
def test_another_table_or_one_that_was_put_back_does_not(
    indexed: Indexed, log: Callable[[int], str | None]
) -> None:
    assert not is_continued(BRONZE, indexed, log)


def test_an_index_of_an_earlier_release_goes_by_the_version_alone() -> None:
    old = replace(INDEXED, bronze_id=None, until_commit=None)
    assert is_continued(BRONZE, old, LOG)
    assert not is_continued(replace(BRONZE, version=4), old, LOG)


def test_another_bronze_gets_another_name() -> None:
    assert bronze_id(BRONZE, None, is_same=False) == "id"
    assert bronze_id(BRONZE, INDEXED, is_same=True) == "id"
    first = bronze_id(BRONZE, INDEXED, is_same=False)
    assert re.fullmatch("id/[0-9a-f]{8}", first)
    assert first == bronze_id(BRONZE, INDEXED, is_same=False)
    assert first != bronze_id(replace(BRONZE, commit="c8"), INDEXED, is_same=False)


def test_one_that_is_put_back_from_the_same_copy_twice_gets_two_names() -> None:
    first = bronze_id(BRONZE, INDEXED, is_same=False)
    went_on = replace(INDEXED, bronze_id=first, until=11, until_commit="c11")
    assert bronze_id(BRONZE, went_on, is_same=False) not in {"id", first}


def test_offsets_that_are_gone_are_refused_unless_bronze_says_that_it_was_cut() -> None:
    require_offsets_of_index(BRONZE, INDEXED, list)
    with pytest.raises(SourceError, match="records are gone that nightly runs have seen"):
        require_offsets_of_index(BRONZE, INDEXED, lambda: ["flights-0: all of the offsets 0..9"])
    with pytest.raises(SourceError, match="it was filled from another topic"):
        require_offsets_of_index(replace(BRONZE, topic_id="other"), INDEXED, list)
    cut = replace(BRONZE, whole_from=date(2013, 1, 2), first_kept=None)
    require_offsets_of_index(cut, INDEXED, lambda: ["flights-0: all of the offsets 0..9"])
    with pytest.raises(SourceError, match="records are gone"):
        require_offsets_of_index(
            cut, replace(INDEXED, whole_from=date(2013, 1, 2)), lambda: ["flights-0: all of the offsets 0..9"]
        )


def test_what_retention_has_removed_explains_no_more_than_that() -> None:
    removed = replace(BRONZE, whole_from=date(2013, 1, 2), first_kept={("flights", 0): 4})
    with pytest.raises(SourceError, match="records are gone that nightly runs have seen"):
        require_offsets_of_index(removed, INDEXED, lambda: ["flights-0: all of the offsets 4..9"])
    with pytest.raises(SourceError, match="it was filled from another topic"):
        require_offsets_of_index(replace(removed, topic_id="other"), INDEXED, list)


@pytest.mark.parametrize(
    ("first", "last", "distinct", "expected"),
    [
        (0, 9, 10, (4, 9, 6)),
        # Which of its offsets are not there is unknown: those that are left may be fewer.
        (0, 9, 8, (4, 9, 4)),
        (0, 9, 3, (4, 9, 1)),
        (0, 9, None, (4, 9, None)),
        (4, 9, 6, (4, 9, 6)),
        (7, 9, 2, (7, 9, 2)),
        (0, 3, 4, None),
    ],
)
def test_offsets_that_retention_has_removed_are_not_expected(
    first: int, last: int, distinct: int | None, expected: tuple[int, int, int | None] | None
) -> None:
    sent = datetime(2013, 1, 1, tzinfo=UTC)
    known = PartitionOffsets("flights", 0, first, last, 12, distinct, sent)
    other = replace(known, partition=1)
    found = without_removed([known, other], {("flights", 0): 4, ("flight", 1): 4})
    assert found.pop() == other
    assert [(each.first, each.last, each.distinct) for each in found] == ([expected] if expected else [])


@given(st.sets(st.integers(0, 40), min_size=1), st.data())
def test_no_more_is_expected_than_retention_kept(offsets: set[int], data: st.DataObject) -> None:
    cut = data.draw(st.sampled_from(sorted(offsets)))
    sent = datetime(2013, 1, 1, tzinfo=UTC)
    known = PartitionOffsets("flights", 0, min(offsets), max(offsets), len(offsets), len(offsets), sent)
    (expected,) = without_removed([known], {("flights", 0): cut})
    kept = {offset for offset in offsets if offset >= cut}
    assert (expected.first, expected.last) == (min(kept), max(kept))
    assert expected.distinct is not None
    assert expected.distinct <= len(kept)
    if len(offsets) == max(offsets) - min(offsets) + 1:
        assert expected.distinct == len(kept)
