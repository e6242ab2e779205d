"""Settings for few rows hold within a block, and only for few."""

from collections.abc import Callable

import pytest

from pipelines.spark.few_rows import MOST_ROWS, sized_for
from tests.support.lakes import Lake

TASKS = "spark.sql.shuffle.partitions"


@pytest.mark.parametrize(("rows", "tasks"), [(0, "1"), (MOST_ROWS, "1"), (MOST_ROWS + 1, "7"), (None, "7")])
def test_few_rows_are_shuffled_by_one_task(
    make_lake: Callable[..., Lake], rows: int | None, tasks: str
) -> None:
    pipeline = make_lake().pipeline
    conf = pipeline.spark.conf
    before = str(conf.get(TASKS))
    conf.set(TASKS, "7")
    try:
        with sized_for(pipeline, rows):
            assert conf.get(TASKS) == tasks
        assert conf.get(TASKS) == "7"
    finally:
        conf.set(TASKS, before)
