"""The time, and waiting: what protocols ask for, so that the simulation can have a clock of its own."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A clock."""

    def now(self) -> datetime:
        """Return the time."""

    def elapsed_s(self) -> float:
        """Return a number of seconds that grows evenly."""

    def pause(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The clock of this machine, see `Clock`."""

    def now(self) -> datetime:
        """Return the time."""
        return datetime.now(UTC)

    def elapsed_s(self) -> float:
        """Return a number of seconds that grows evenly."""
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
