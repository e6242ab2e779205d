"""An interval means what it says, or is refused with what was found."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.durations import format_interval, parse_interval


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("2 hours", timedelta(hours=2)),
        ("1 day 12 hours", timedelta(days=1, hours=12)),
        ("1second", timedelta(seconds=1)),
        ("500 milliseconds", timedelta(milliseconds=500)),
        ("0 seconds", timedelta()),
    ],
)
def test_an_interval_is_read(text: str, length: timedelta) -> None:
    assert parse_interval(text) == length


@pytest.mark.parametrize(
    "text", ["2", "", "hours", "2 hourss", "two hours", "2 hours and", "-2 hours", 2, None]
)
def test_anything_else_is_refused_with_an_example_and_what_was_found(text: object) -> None:
    with pytest.raises(ValueError, match=r"expected an interval such as '2 hours', got") as refused:
        parse_interval(text)
    assert repr(text) in str(refused.value)


@given(st.integers(0, 10**12).map(lambda n: timedelta(milliseconds=n)))
def test_what_is_written_is_read_again(length: timedelta) -> None:
    assert parse_interval(format_interval(length)) == length


def test_the_largest_unit_is_written() -> None:
    assert format_interval(timedelta(hours=6)) == "6 hours"
    assert format_interval(timedelta(days=1)) == "1 day"
    assert format_interval(timedelta(minutes=90)) == "90 minutes"
