"""Event days, and the neighbouring days on which copies of an event can lie."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError

FIRST_DAY: Final = date(1970, 1, 1)
"""Kafka knows no earlier day, and none can be certified."""

_DAY: Final = timedelta(days=1)


def days_of(first: date, last: date) -> list[date]:
    """Return all days from the first to the last."""
    return [first + n * _DAY for n in range((last - first).days + 1)]


def around(days: Iterable[date], horizon: int) -> list[date]:
    """Return the days and their neighbours within the horizon, sorted."""
    return sorted({day + n * _DAY for day in days for n in range(-horizon, horizon + 1)})


def effective_horizon(contract: DataContract, horizon: int) -> int:
    """Return over how many neighbouring days, each way, copies of a key can lie.

    Args:
        contract: Names the key. With the event time in it, all copies of a key lie on one day.
        horizon: The configured number of days.
    """
    return 0 if contract.event_time in contract.key else horizon


@dataclass(frozen=True)
class Span:
    """Days, and those whose records decide on them.

    Attributes:
        days: The days, sorted.
        near: The days of which all records are looked at, these among them, sorted.
        horizon: Over how many neighbouring days, each way, copies of a key are one event.
        gone: Days around these that lie before the first day of which bronze holds all records: nothing more
            can be learned of them.
    """

    days: Sequence[date]
    near: Sequence[date]
    horizon: int
    gone: Sequence[date] = ()

    @property
    def known_days(self) -> list[date]:
        """The days for which no copy has to wait, see `pipelines.records.dedup.winners_on_known_days`."""
        return [*self.gone, *self.near]


def past_days(contract: DataContract, first: date | None, last: date | None) -> tuple[date, date]:
    """Return the range of past days to work on; yesterday in the contract's zone if none is named.

    Raises:
        ConfigError: The range is empty, or a day of it is not over yet.
    """
    today = datetime.now(contract.zone).date()
    yesterday = today - timedelta(days=1)
    first = first or last or yesterday
    last = last or first
    if first > last:
        raise ConfigError(f"--from {first} --to {last}: the first day is after the last; swap them")
    if first < FIRST_DAY:
        raise ConfigError(f"{first}: expected {FIRST_DAY} or later: Kafka has no earlier timestamps")
    if last >= today:
        raise ConfigError(
            f"{last} is not over in {contract.day_time_zone}, where today is {today};"
            f" the last day that can be rebuilt is {yesterday}"
        )
    return first, last
