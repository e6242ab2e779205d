"""`python -m benchmarks.scaling`: executors and backlog over a day with bursts, by what scales them.

A simulation, not a measurement: records come at a rate that follows the hour, with bursts; an executor
processes as many each second as you say, while there are not more executors than partitions. Compared are
a fixed number, the workers that `oncelake deploy keda --workers` scales, and runs that KEDA starts.
"""

import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

import click
from rich import box
from rich.console import Console
from rich.table import Table

from pipelines.deployment.keda import SHORTEST_COOLDOWN, Scale, Workers, scale_of
from pipelines.durations import about, format_interval, parse_interval

STEP_S: Final = 10
_DAY_S: Final = 86_400
# Of KEDA, and of the files that `oncelake deploy keda` writes.
_POLL_S: Final = 60
_WIDTH: Final = 100


@dataclass(frozen=True)
class Present:
    """The executors of a step.

    Attributes:
        there: how many there are, those that start included.
        working: how many of them process records.
    """

    there: int
    working: int


class Executors(Protocol):
    """How many executors there are in each step."""

    def at(self, second: int, backlog: float) -> Present:
        """Return the executors of a step.

        Args:
            second: when it begins.
            backlog: records that are waiting.
        """
        ...


@dataclass
class Fixed:
    """Always the same number of executors."""

    number: int

    def at(self, second: int, backlog: float) -> Present:
        """Return the number."""
        return Present(self.number, self.number)


@dataclass
class Scaled:
    """As many as KEDA wants by the backlog, some time after it wants them.

    Attributes:
        scale: the limits and the threshold.
        start_s: seconds until a new executor works.
        cooldown_s: seconds in which the highest number that was wanted stays.
    """

    scale: Scale
    start_s: int
    cooldown_s: int
    _wanted: deque[tuple[int, int]] = field(default_factory=deque)

    def at(self, second: int, backlog: float) -> Present:
        """Return how many were wanted lately enough to be still there, and long enough ago to work."""
        if second % _POLL_S == 0:
            wanted = math.ceil(backlog / self.scale.threshold)
            self._wanted.append((second, min(max(wanted, self.scale.least), self.scale.most)))
        while self._wanted[0][0] <= second - self.start_s - self.cooldown_s:
            self._wanted.popleft()
        there = max(number for _, number in self._wanted)
        started = [number for at, number in self._wanted if at <= second - self.start_s]
        return Present(there, max(started, default=self.scale.least))


@dataclass
class Runs:
    """A run takes what is there when it begins, and ends; KEDA looks for a backlog once a minute.

    Attributes:
        number: executors of a run.
        rate_out: records that one of them processes each second.
        start_s: seconds until a run has started Spark.
    """

    number: int
    rate_out: float
    start_s: int
    _works_from: float = 0.0
    _until: float = 0.0

    def at(self, second: int, backlog: float) -> Present:
        """Return the executors of the run; they are there while Spark starts."""
        if second >= self._until and second % _POLL_S == 0 and backlog > 0:
            self._works_from = second + self.start_s
            self._until = self._works_from + max(backlog / (self.number * self.rate_out), STEP_S)
        there = self.number if second < self._until else 0
        return Present(there, there if second >= self._works_from else 0)


@dataclass(frozen=True)
class Day:
    """What a day was like.

    Attributes:
        executor_hours: of all executors.
        most_executors: at once.
        most_records: the largest backlog.
        longest_wait_s: the longest that a record waited.
        left: records that wait at the end.
    """

    executor_hours: float
    most_executors: int
    most_records: float
    longest_wait_s: float
    left: float


def simulate(arrivals: Sequence[float], rate_out: float, executors: Executors) -> Day:
    """Let executors process what comes, the oldest first.

    Args:
        arrivals: records of each step of `STEP_S` seconds.
        rate_out: records that one executor processes each second.
        executors: how many there are.
    """
    waiting: deque[tuple[int, float]] = deque()
    backlog = hours = most_records = longest = 0.0
    most = 0
    for number, records in enumerate(arrivals):
        second = number * STEP_S
        if records:
            waiting.append((second, records))
        backlog = math.fsum(count for _, count in waiting)
        present = executors.at(second, backlog)
        longest = max(longest, second - waiting[0][0] if waiting else 0.0)
        _process(waiting, present.working * rate_out * STEP_S)
        most_records, most = max(most_records, backlog), max(most, present.there)
        hours += present.there * STEP_S / 3_600
    return Day(hours, most, most_records, longest, math.fsum(count for _, count in waiting))


def _process(waiting: deque[tuple[int, float]], records: float) -> None:
    while waiting and records > 0:
        since, count = waiting.popleft()
        if count > records:
            waiting.appendleft((since, count - records))
        records -= count


def bursty_day(rate_in: float, bursts: int, factor: float, seed: int) -> list[float]:
    """Return the records of each step of a day: few at night, and bursts of a quarter of an hour.

    Args:
        rate_in: records per second, without bursts, over the day.
        bursts: how many.
        factor: by how much more comes in a burst.
        seed: of the times of bursts.
    """
    chance = random.Random(seed)  # noqa: S311 - a simulation
    begins = [chance.randrange(_DAY_S) for _ in range(bursts)]
    steps = []
    for second in range(0, _DAY_S, STEP_S):
        by_hour = 1 - 0.8 * math.cos(2 * math.pi * second / _DAY_S)
        is_burst = any(begin <= second < begin + 900 for begin in begins)
        steps.append(rate_in * by_hour * (factor if is_burst else 1) * STEP_S)
    return steps


def compared(workers: Workers, start_s: int) -> Iterator[tuple[str, Callable[[], Executors]]]:
    """Yield ways to have executors, by their names.

    Args:
        workers: the figures by which KEDA scales.
        start_s: seconds until an executor, or a run, has started.
    """
    scale, cooldown_s = scale_of(workers), int(workers.cooldown.total_seconds())
    yield f"fixed, {scale.least}", lambda: Fixed(scale.least)
    yield f"fixed, {scale.most}", lambda: Fixed(scale.most)
    yield f"KEDA, {scale.least} to {scale.most}", lambda: Scaled(scale, start_s, cooldown_s)
    yield f"runs of {scale.most}", lambda: Runs(scale.most, workers.rate_out, start_s)


@click.command("scaling")
@click.option("--rate-in", default=1_000.0, show_default=True, help="Records that come each second.")
@click.option("--rate-out", default=400.0, show_default=True, help="Records that one executor processes.")
@click.option("--partitions", default=12, show_default=True, help="Partitions of the topic.")
@click.option("--catch-up", default="1 hour", show_default=True, help="In which a backlog is to be gone.")
@click.option("--bursts", default=6, show_default=True, help="Bursts of a quarter of an hour.")
@click.option("--factor", default=4.0, show_default=True, help="How much more comes in a burst.")
@click.option("--start", default="90 seconds", show_default=True, help="Until an executor, or a run, works.")
def scaling(bursts: int, factor: float, start: str, catch_up: str, **figures: float) -> None:
    """Compare ways to have executors over a simulated day."""
    workers = Workers(
        "StatefulSet",
        "workers",
        int(figures["partitions"]),
        figures["rate_in"],
        figures["rate_out"],
        parse_interval(catch_up),
    )
    arrivals = bursty_day(workers.rate_in, bursts, factor, seed=1)
    start_s = int(parse_interval(start) / timedelta(seconds=1))
    days = ((name, simulate(arrivals, workers.rate_out, make())) for name, make in compared(workers, start_s))
    console = Console(width=_WIDTH)
    console.print(
        f"{math.fsum(arrivals):,.0f} records; KEDA's threshold {scale_of(workers).threshold:,} records,"
        f" cooldown {format_interval(SHORTEST_COOLDOWN)}"
    )
    console.print(_table(days))


def _table(days: Iterable[tuple[str, Day]]) -> Table:
    table = Table("executors", box=box.SIMPLE)
    for column in ("executor hours", "most", "largest backlog", "longest wait", "left at midnight"):
        table.add_column(column, justify="right")
    for name, day in days:
        table.add_row(
            name,
            f"{day.executor_hours:,.0f}",
            str(day.most_executors),
            f"{day.most_records:,.0f}",
            about(day.longest_wait_s),
            f"{day.left:,.0f}",
        )
    return table


if __name__ == "__main__":
    scaling()
