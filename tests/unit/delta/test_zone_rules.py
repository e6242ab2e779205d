"""New rules of a time zone matter to the days for which they give an event another day, and to no other."""

from datetime import date

from pipelines.delta.zone_rules import days_that_differ

# New York's winter, the summer of 2013 from 10 March 2 a.m. to 3 November 2 a.m., and winter again.
NOW = "0-18000 1362898800-14400 1383458400-18000"


def test_the_same_rules_differ_on_no_day() -> None:
    assert days_that_differ(NOW, NOW) == []


def test_a_summer_that_begins_later_changes_the_days_between() -> None:
    later = NOW.replace("1362898800", str(1362898800 + 7 * 86_400))
    assert days_that_differ(NOW, later) == [(date(2013, 3, 10), date(2013, 3, 17))]
    assert days_that_differ(later, NOW) == [(date(2013, 3, 10), date(2013, 3, 17))]


def test_a_summer_that_does_not_end_changes_no_day_before_its_end() -> None:
    assert days_that_differ(NOW, NOW.rpartition(" ")[0]) == [(date(2013, 11, 3), date(2050, 12, 31))]


def test_a_change_that_is_written_otherwise_is_none() -> None:
    assert days_that_differ(NOW, "0-18000 86400-18000" + NOW.removeprefix("0-18000")) == []
