"""Whether bronze is still what its index was made from, without a lake."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date

import pytest

from pipelines.errors import SourceError
from pipelines.ledger.bronze_state import (
    BronzeState,
    Indexed,
    bronze_id,
    is_continued,
    require_offsets_of_index,
)

BRONZE = BronzeState("bronze", 9, "id", "c9", "topic", None)
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
    assert bronze_id(replace(BRONZE, commit="0123456789"), INDEXED, is_same=False) == "id/01234567"


def test_offsets_that_are_gone_are_refused_unless_bronze_says_that_it_was_cut() -> None:
    require_offsets_of_index(BRONZE, INDEXED, list)
    with pytest.raises(SourceError, match="records are gone that nightly runs have seen"):
        require_offsets_of_index(BRONZE, INDEXED, lambda: ["flights-0: all of the offsets 0..9"])
    with pytest.raises(SourceError, match="it was filled from another topic"):
        require_offsets_of_index(replace(BRONZE, topic_id="other"), INDEXED, list)
    cut = replace(BRONZE, whole_from=date(2013, 1, 2))
    require_offsets_of_index(cut, INDEXED, lambda: ["flights-0: all of the offsets 0..9"])
    with pytest.raises(SourceError, match="records are gone"):
        require_offsets_of_index(
            cut, replace(INDEXED, whole_from=date(2013, 1, 2)), lambda: ["flights-0: all of the offsets 0..9"]
        )
