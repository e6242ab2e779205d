"""The simulated day: nothing is lost, more executors never make it later, and KEDA's threshold holds."""

import math
from dataclasses import dataclass, replace

from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scaling import STEP_S, Fixed, Present, Runs, Scaled, bursty_day, scaling, simulate
from pipelines.deployment.keda import scale_of
from tests.support.deployments import WORKERS

ARRIVALS = st.lists(st.integers(0, 100_000).map(float), min_size=1, max_size=60)


@dataclass
class Counting:
    """Counts what a number of executors has processed."""

    number: int
    rate: float
    processed: float = 0.0

    def at(self, second: int, backlog: float) -> Present:
        self.processed += min(backlog, self.number * self.rate * STEP_S)
        return Present(self.number, self.number)


@given(ARRIVALS, st.integers(0, 20), st.integers(1, 1_000))
def test_what_comes_is_processed_or_left(arrivals: list[float], number: int, rate: int) -> None:
    counting = Counting(number, float(rate))
    day = simulate(arrivals, float(rate), counting)
    assert math.isclose(counting.processed + day.left, math.fsum(arrivals), abs_tol=1e-3)


@given(ARRIVALS, st.integers(0, 20), st.integers(1, 1_000))
def test_one_more_executor_never_makes_it_later(arrivals: list[float], number: int, rate: int) -> None:
    few, more = (simulate(arrivals, float(rate), Fixed(each)) for each in (number, number + 1))
    assert more.longest_wait_s <= few.longest_wait_s
    assert more.most_records <= few.most_records + 1e-6
    assert more.left <= few.left + 1e-6


def test_a_backlog_is_worked_off_in_the_wanted_time_with_fewer_executors() -> None:
    arrivals = bursty_day(WORKERS.rate_in, bursts=6, factor=4.0, seed=1)
    # The night is quiet; the middle of the day needs more than the average does.
    busiest = replace(WORKERS, rate_in=1.8 * WORKERS.rate_in)
    scaled = simulate(arrivals, WORKERS.rate_out, Scaled(scale_of(busiest), 90, 300))
    most = simulate(arrivals, WORKERS.rate_out, Fixed(scale_of(busiest).most))
    assert scaled.longest_wait_s <= busiest.catch_up.total_seconds()
    assert scaled.left == 0
    assert scaled.executor_hours < most.executor_hours / 2


def test_runs_end_when_there_is_nothing_to_do() -> None:
    day = simulate([1_000.0, *[0.0] * 500], 100.0, Runs(1, 100.0, 60))
    assert day.left == 0
    # A minute to start, and ten seconds of work.
    assert math.isclose(day.executor_hours, 70 / 3_600)
    assert day.longest_wait_s == 60


def test_it_prints_a_row_for_each_way() -> None:
    printed = CliRunner().invoke(scaling, []).output
    assert [name for name in ("fixed, 3", "fixed, 12", "KEDA, 3 to 12", "runs of 12") if name in printed] == [
        *("fixed, 3", "fixed, 12", "KEDA, 3 to 12", "runs of 12")
    ]
