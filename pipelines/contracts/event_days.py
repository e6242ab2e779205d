"""Event days, and the neighbouring days on which copies of an event can lie."""

from collections.abc import Iterable
from datetime import date, timedelta
from typing import Final

from pipelines.contracts.contract import DataContract

_DAY: Final = timedelta(days=1)


def days_of(first: date, last: date) -> list[date]:
    """All days from the first to the last."""
    return [first + n * _DAY for n in range((last - first).days + 1)]


def around(days: Iterable[date], horizon: int) -> list[date]:
    """The days and their neighbours within the horizon, sorted."""
    return sorted({day + n * _DAY for day in days for n in range(-horizon, horizon + 1)})


def effective_horizon(contract: DataContract, horizon: int) -> int:
    """Over how many neighbouring days copies of a key can lie.

    Args:
        contract: names the key. With the event time in it, all copies of a key lie on one day.
        horizon: the configured number of days.
    """
    return 0 if contract.event_time in contract.key else horizon
