"""A month in one run: a day of 23 hours is whole, and a day without data is certified empty."""

from datetime import date

import pytest

from pipelines.contracts.event_days import days_of
from pipelines.ledger.certifications import history
from tests.support.lakes import Lake
from tests.support.nights import at, departures, run

FIRST, LAST = date(2013, 3, 1), date(2013, 3, 31)
SILENT = date(2013, 3, 17)
# Clocks in New York went from 02:00-05:00 to 03:00-04:00.
SHORT = date(2013, 3, 10)


@pytest.mark.thorough
def test_a_month_with_a_day_of_23_hours_and_one_without_data_in_one_run(lake: Lake) -> None:
    month = [day for day in days_of(FIRST, LAST) if day not in (SHORT, SILENT)]
    edges = ["10T00:00:00-05:00", "10T01:59:00-05:00", "10T03:00:00-04:00", "10T23:59:00-04:00"]
    lake.ingest([at(f"{day}T12:00:00-04:00") for day in month])
    lake.ingest([at(f"2013-03-{edge}") for edge in edges])
    done = run(lake, FIRST, LAST)
    assert done.days == dict.fromkeys(days_of(FIRST, LAST), "certified")
    rows = {verdict.day: verdict.rows for verdict in history(lake.pipeline)}
    assert rows == {**dict.fromkeys(month, 1), SHORT: 4, SILENT: 0}
    assert departures(lake.table("batch"), SHORT) == ["10 05:00", "10 06:59", "10 07:00", "11 03:59"]
