"""Whatever happens to a lake, in any order: a certified day is what an oracle in plain Python says."""

from functools import partial
from typing import Any

import pytest
from hypothesis import assume, seed
from hypothesis import strategies as st
from hypothesis.stateful import initialize, run_state_machine_as_test
from pyspark.sql import SparkSession

from pipelines.contracts.contract import DataContract
from tests.support.histories import History, few

_LONG = [pytest.mark.long, pytest.mark.timeout(2 * 3600)]


class Keyless(History):
    """Histories by the contract whose key leaves the event time out."""

    @initialize(which=st.integers(0, 1))
    def begin(self, which: int) -> None:
        """Begin one that says something.

        Hypothesis begins with the simplest: by the other contract, one rule again and again.
        """
        assume(which == 1)
        super().begin(which)

    def teardown(self) -> None:
        """See that the seed still stands for the history for which it was taken."""
        super().teardown()
        # One that is not begun is no history.
        if self.happened:
            assert self.happened >= {"night", "night_dies", "stream", "stream_dies_between_its_tables"}
            assert "mend_and_replay" in self.happened


# The first, by the seed of a history of six different events: a night passes and another dies, a stream runs
# and another dies, what was quarantined is put back, and more records come.
@pytest.mark.parametrize(
    ("kind", "begin", "examples", "steps"),
    [
        pytest.param(Keyless, 1141, 1, 7, marks=pytest.mark.thorough),
        *(pytest.param(History, begin, 10, 8, marks=_LONG) for begin in range(1, 21)),
    ],
)
def test_after_each_certification_the_days_are_what_the_oracle_says(
    spark: SparkSession,
    small: DataContract,
    small_by_flight: DataContract,
    kind: type[History],
    begin: int,
    examples: int,
    steps: int,
) -> None:
    made: Any = seed(begin)(partial(kind, spark, small, small_by_flight))
    run_state_machine_as_test(made, settings=few(examples, steps))
