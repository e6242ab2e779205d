"""The demo's input is the real data, with every flight on its local day."""

import zipfile
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from demo import source
from demo.source import DAYLIGHT_SAVING_DAY, ZONE, demo_days, read_flights, read_weather
from pipelines.errors import ConfigError, SourceError

pytestmark = pytest.mark.patient

HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,"
    "tailnum,origin,dest,air_time,distance,hour,minute,time_hour\n"
)


def archive(folder: Path, *rows: str) -> Path:
    path = folder / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("flights.csv", HEADER + "".join(row + "\n" for row in rows))
    return path


def flight_row(day: str, scheduled: str, time_hour: str, delay: str = "NA", tailnum: str = "") -> str:
    hour, minute = divmod(int(scheduled), 100)
    times = f"1,{scheduled},{delay},1,1,{delay}"
    return f"{day},{times},UA,7,{tailnum},EWR,IAH,{delay},1400,{hour},{minute},{time_hour}"


def test_default_days_are_the_first_with_the_23_hour_day_moved_in() -> None:
    days = demo_days(14)
    assert days[:13] == [date(2013, 1, day) for day in range(1, 14)]
    assert days[13] == DAYLIGHT_SAVING_DAY


@pytest.mark.parametrize("count", [2, 14, 68, 69, 70, 365])
def test_any_number_of_days_is_distinct_ascending_and_holds_the_23_hour_day(count: int) -> None:
    days = demo_days(count)
    assert len(set(days)) == count
    assert days == sorted(days)
    assert DAYLIGHT_SAVING_DAY in days


@pytest.mark.parametrize("count", [-1, 0, 1, 366])
def test_numbers_of_days_that_the_year_does_not_have_are_refused(count: int) -> None:
    with pytest.raises(ConfigError, match=f"found {count}, expected 2 to 365"):
        demo_days(count)


@pytest.mark.thorough
def test_the_whole_year_has_336776_distinct_flights_each_on_its_local_day() -> None:
    flights = read_flights(demo_days(365))
    assert len(flights) == 336_776
    assert len({flight.key for flight in flights}) == 336_776
    assert all(flight.key.scheduled_departure.astimezone(ZONE).date() == flight.day for flight in flights)


def test_only_the_asked_days_are_read() -> None:
    flights = read_flights([DAYLIGHT_SAVING_DAY])
    assert {flight.day for flight in flights} == {DAYLIGHT_SAVING_DAY}
    assert len(flights) == 908


def test_what_is_missing_in_the_source_is_none(tmp_path: Path) -> None:
    path = archive(tmp_path, flight_row("2013,1,1", "515", "2013-01-01T10:00:00Z"))
    (flight,) = read_flights([date(2013, 1, 1)], path)
    assert flight.payload.tailnum is None
    assert flight.payload.departure_delay is None
    assert flight.payload.air_time is None


def test_utc_decides_between_the_two_hours_of_autumn(tmp_path: Path) -> None:
    day = date(2013, 11, 3)
    path = archive(
        tmp_path,
        flight_row("2013,11,3", "130", "2013-11-03T05:00:00Z"),
        flight_row("2013,11,3", "130", "2013-11-03T06:00:00Z"),
    )
    first, second = (flight.key.scheduled_departure for flight in read_flights([day], path))
    assert first == datetime(2013, 11, 3, 5, 30, tzinfo=UTC)
    assert (second - first).total_seconds() == 3600


@pytest.mark.parametrize(
    ("day", "scheduled", "time_hour"),
    [
        ("2013,3,10", "230", "2013-03-10T07:00:00Z"),  # the skipped hour does not exist
        ("2013,1,1", "515", "2013-01-01T09:00:00Z"),  # summer's offset in winter
        ("2013,1,1", "2330", "2013-01-01T23:00:00Z"),  # local time said to be UTC
    ],
)
def test_a_row_that_contradicts_itself_is_refused(
    tmp_path: Path, day: str, scheduled: str, time_hour: str
) -> None:
    path = archive(tmp_path, flight_row(day, scheduled, time_hour))
    year, month, number = (int(part) for part in day.split(","))
    with pytest.raises(SourceError, match=rf"line 2: time_hour {time_hour}"):
        read_flights([date(year, month, number)], path)


def test_a_minute_that_is_not_the_scheduled_one_is_refused(tmp_path: Path) -> None:
    row = flight_row("2013,1,1", "515", "2013-01-01T10:00:00Z").replace(",5,15,", ",5,16,")
    with pytest.raises(SourceError, match="minute 16"):
        read_flights([date(2013, 1, 1)], archive(tmp_path, row))


def test_a_missing_package_is_said_in_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "DISTRIBUTION", "nycflights1313")
    with pytest.raises(ConfigError, match="nycflights1313 is not installed"):
        read_flights(demo_days(2))


def test_weather_tells_the_repeated_hour_apart() -> None:
    weather = list(read_weather([date(2013, 11, 3)]))
    repeated = [row["time_hour"] for row in weather if row["origin"] == "EWR"][:3]
    assert repeated[:2] == ["2013-11-03T01:00:00-04:00", "2013-11-03T01:00:00-05:00"]
    assert len({(row["origin"], row["time_hour"]) for row in weather}) == len(weather)
