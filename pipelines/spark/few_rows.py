"""Settings for queries over few rows, which take longer to be divided and compiled than to run."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from pipelines.session_settings import session_settings
from pipelines.spark.pipeline import Pipeline

MOST_ROWS: Final = 200_000
"""How many rows are few."""

_FEW: Final = {
    # A query is then a job, and not one for each of its stages.
    "spark.sql.adaptive.enabled": "false",
    # Code that is made for a query of few rows is seldom run often enough to pay for its compiler.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_ONE_TASK: Final = {"spark.sql.shuffle.partitions": "1"}


def sized_for(pipeline: Pipeline, rows: int | None) -> AbstractContextManager[None]:
    """Let queries of a block be planned for few rows, if they read no more.

    Args:
        pipeline: The pipeline. What its user has set stays.
        rows: How many at most; None if nobody knows.
    """
    if rows is None or rows > MOST_ROWS:
        return nullcontext()
    given, own = pipeline.spark.sparkContext.getConf(), pipeline.config.spark.conf
    settings = few_rows(lambda key: key in own or given.contains(key))
    return session_settings(pipeline.spark, settings)


def few_rows(is_given: Callable[[str], bool]) -> dict[str, str]:
    """Return how Spark is to plan queries over few rows.

    Args:
        is_given: Whether the user has set a setting, which stays as it is.
    """
    return {**{key: value for key, value in _FEW.items() if not is_given(key)}, **_ONE_TASK}
