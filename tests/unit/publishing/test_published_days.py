"""Certified days that nobody has sent are told with the commands that send them."""

from datetime import date, timedelta

from pipelines.config.loader import load_config
from pipelines.publishing.published_days import how_to_send

ONE = date(2013, 1, 1)


def test_days_with_gaps_are_sent_by_a_command_for_each_range() -> None:
    config = load_config("flights", environ={})
    days = [ONE + timedelta(days=n) for n in (0, 1, 3, 5, 7, 8)]
    (line,) = how_to_send(config, days)
    assert line.startswith("6 certified day(s) from 2013-01-01 to 2013-01-09 are not on the topic")
    assert line.count("oncelake publish") == 3
    assert line.endswith("--from 2013-01-06 --to 2013-01-06; and 1 more ranges of days")
    assert how_to_send(config, []) == []
