"""Up to which offsets retention has removed records, as a property of bronze."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.delta.retention_cut import RetentionCut, explained_by, parse_cut

DAY = date(2013, 1, 15)
TOPICS = st.text("abyzAZ019._-/", min_size=1, max_size=290)
KEPT = st.dictionaries(
    st.tuples(TOPICS, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), min_size=1, max_size=9
)


@given(KEPT)
def test_the_property_is_read_as_it_was_written(kept: dict[tuple[str, int], int]) -> None:
    cut = RetentionCut(DAY, kept)
    assert parse_cut(cut.text()) == cut


def test_it_is_text_that_a_person_can_read() -> None:
    assert RetentionCut(DAY, {("a-b", 1): 7, ("a-b", 0): 99}).text() == "2013-01-15 a-b-0@99,a-b-1@7"


@pytest.mark.parametrize(
    "text", ["", "2013-01-15", "2013-01-15 ", "2013-01-15 a-0@1,", "x a-0@1", "2013-01-15 a@1"]
)
def test_what_retention_did_not_write_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_cut(text)


def test_it_explains_what_bronze_lacks_while_nobody_else_has_set_the_first_day() -> None:
    cut = RetentionCut(DAY, {("flights", 0): 4})
    assert explained_by(cut, DAY) == cut.first_kept
    assert explained_by(cut, date(2013, 1, 16)) is None
    assert explained_by(None, DAY) is None
    assert explained_by(None, None) == explained_by(cut, None) == {}
