"""A month in one run: days of 23 and 25 hours are whole, and a day without data is certified empty."""

from datetime import UTC, date, datetime

import pytest

from pipelines.contracts.event_days import days_of
from pipelines.ledger.certifications import history
from tests.support.lakes import Lake, Record, flight
from tests.support.nights import run

FIRST, LAST = date(2013, 3, 1), date(2013, 3, 31)
SILENT = date(2013, 3, 17)
# Clocks in New York went from 02:00-05:00 to 03:00-04:00, and in November from 02:00-04:00 to 01:00-05:00.
SHORT, LONG = date(2013, 3, 10), date(2013, 11, 3)


def at(moment: str) -> Record:
    sent = datetime.fromisoformat(moment).astimezone(UTC)
    return Record(flight(scheduled_departure=moment), sent=sent)


def departures(lake: Lake, day: date) -> list[str]:
    rows = lake.table("batch").where(f"_event_date = '{day}'").select("scheduled_departure")
    return sorted(f"{row[0].astimezone(UTC):%d %H:%M}" for row in rows.toLocalIterator())


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
    assert departures(lake, SHORT) == ["10 05:00", "10 06:59", "10 07:00", "11 03:59"]


def test_the_hour_that_comes_twice_is_two_hours_of_its_day(lake: Lake) -> None:
    edges = ["00:00:00-04:00", "01:30:00-04:00", "01:30:00-05:00", "23:59:00-05:00"]
    lake.ingest([at(f"{LONG}T{edge}") for edge in edges])
    lake.ingest([at("2013-11-02T23:59:00-04:00"), at("2013-11-04T00:00:00-05:00")])
    run(lake, LONG)
    assert departures(lake, LONG) == ["03 04:00", "03 05:30", "03 06:30", "04 04:59"]
