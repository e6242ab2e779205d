"""Intervals as people write them: '2 hours', '1 day 12 hours', '500 milliseconds'."""

import re
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Annotated, Final

from pydantic import BeforeValidator, PlainSerializer

_UNITS: Final = {
    "millisecond": timedelta(milliseconds=1),
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
_PART: Final = re.compile(r"(\d{1,15}) ?(" + "|".join(_UNITS) + r")s?\b *")


def parse_interval(text: object) -> timedelta:
    """Read an interval.

    Args:
        text: One or more numbers with units, such as `2 hours` or `1 day 12 hours`.

    Returns:
        The length of the interval.

    Raises:
        ValueError: The text is not an interval; the message says what was expected and found.
    """
    refusal = f"expected an interval such as '2 hours', got {text!r}"
    if isinstance(text, timedelta):
        return text
    if not isinstance(text, str):
        raise ValueError(refusal)
    total, position = timedelta(), 0
    while match := _PART.match(text, position):
        try:
            total += int(match[1]) * _UNITS[match[2]]
        except OverflowError:
            raise ValueError(refusal) from None
        position = match.end()
    if position == 0 or position != len(text):
        raise ValueError(refusal)
    return total


def format_interval(interval: timedelta) -> str:
    """Write an interval as Spark and `parse_interval` read it, in the largest unit that divides it."""
    unit = next(name for name, length in reversed(_UNITS.items()) if not interval % length)
    number = interval // _UNITS[unit]
    return f"{number} {unit}{'' if number == 1 else 's'}"


def days_in_a_row(days: Sequence[date]) -> list[tuple[date, date]]:
    """Return the first and the last day of each run of sorted days without a gap."""
    runs: list[tuple[date, date]] = []
    for day in days:
        if runs and day - runs[-1][1] == timedelta(days=1):
            runs[-1] = (runs[-1][0], day)
        else:
            runs.append((day, day))
    return runs


Interval = Annotated[timedelta, BeforeValidator(parse_interval), PlainSerializer(format_interval)]


def about(seconds: float) -> str:
    """Return about how long something takes, for people: `4.2 s`, `45 s`, `12 min`, `3.5 h`, `2.1 d`."""
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"
