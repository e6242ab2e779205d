"""Certified days that nobody has sent are told with the commands that send them, and with what is known."""

from datetime import date, timedelta

import pytest

from pipelines.config.loader import load_config
from pipelines.publishing.unsent_days import SettledBy, UnsentDays, how_to_send, sort_out

ONE = date(2013, 1, 1)


def test_days_with_gaps_are_sent_by_a_command_for_each_range() -> None:
    config = load_config("flights", environ={})
    days = tuple(ONE + timedelta(days=n) for n in (0, 1, 3, 5, 7, 8))
    (line,) = how_to_send(config, UnsentDays(never=days))
    assert line.startswith("6 certified day(s) from 2013-01-01 to 2013-01-09 are not on the topic")
    assert line.count("oncelake publish") == 3
    assert line.endswith("--from 2013-01-06 --to 2013-01-06; and 1 more ranges of days")
    assert how_to_send(config, UnsentDays()) == []
    all_of_them, some = how_to_send(config, UnsentDays(days[:1], days[3:]))
    assert "2013-01-01 to 2013-01-01 are not on the topic" in all_of_them
    assert some.startswith(
        "3 certified day(s) from 2013-01-06 to 2013-01-09 may be on the topic only in part"
    )
    assert UnsentDays((days[4],), (days[0],)).days == [days[0], days[4]]


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        # Nobody has published before.
        ([], UnsentDays(never=(ONE,))),
        # It began with the day, and sent only what was changed.
        ([SettledBy(9, {ONE: False})], UnsentDays(never=(ONE,))),
        # It had sent the day as it was certified when this one began.
        ([SettledBy(4, {ONE: True})], UnsentDays()),
        ([SettledBy(9, {ONE: False}), SettledBy(4, {ONE: True})], UnsentDays()),
        # The day was rebuilt after it had stopped.
        ([SettledBy(3, {ONE: True})], UnsentDays(partly=(ONE,))),
        # It was not certified by then.
        ([SettledBy(3, {})], UnsentDays(partly=(ONE,))),
        ([SettledBy(9, {ONE: False}), SettledBy(3, {})], UnsentDays(partly=(ONE,))),
        # An earlier release did not keep where it had published it.
        ([SettledBy(9, {ONE: None})], UnsentDays(partly=(ONE,))),
    ],
)
def test_what_an_earlier_checkpoint_has_published_decides_what_is_left(
    earlier: list[SettledBy], expected: UnsentDays
) -> None:
    assert sort_out([ONE], earlier, {ONE: 4}) == expected


def test_a_day_whose_verdict_is_unknown_may_be_there_in_part() -> None:
    assert sort_out([ONE], [SettledBy(9, {ONE: True})], {}) == UnsentDays(partly=(ONE,))
