"""Whatever happens to a lake, in any order: a certified day is what an oracle in plain Python says."""

from functools import partial
from typing import Any

import pytest
from hypothesis import seed
from hypothesis.stateful import run_state_machine_as_test
from pyspark.sql import SparkSession

from pipelines.contracts.contract import DataContract
from tests.support.histories import History, few

_LONG = [pytest.mark.long, pytest.mark.timeout(2 * 3600)]


@pytest.mark.parametrize(
    ("begin", "examples", "steps"),
    [(0, 2, 6), *(pytest.param(begin, 10, 8, marks=_LONG) for begin in range(1, 21))],
)
def test_after_each_certification_the_days_are_what_the_oracle_says(
    spark: SparkSession,
    small: DataContract,
    small_by_flight: DataContract,
    begin: int,
    examples: int,
    steps: int,
) -> None:
    made: Any = seed(begin)(partial(History, spark, small, small_by_flight))
    run_state_machine_as_test(made, settings=few(examples, steps))
