"""The log warns of what a nightly run leaves undone, and of nothing if it leaves nothing."""

from dataclasses import replace
from datetime import date

from pipelines.nightly.verdicts import NightResult, log_lines

QUIET = NightResult((), 0, None, 7, (), (), ())


def test_the_log_names_the_days_that_are_left_and_each_warning() -> None:
    assert [*log_lines(QUIET)] == []
    days = date(2012, 12, 30), date(2012, 12, 31)
    night = replace(QUIET, late_days_left=days, missed_days_left=days[:1], warnings=("one", "two"))
    late, missed, *warnings = log_lines(night)
    assert late.startswith(
        "records came late for days that this run leaves as they are: 2012-12-30 to 2012-1"
    )
    assert missed.startswith("days that no run has certified, and that this run leaves: 2012-12-30; rebuild")
    assert warnings == ["one", "two"]
