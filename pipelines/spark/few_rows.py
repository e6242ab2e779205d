"""Settings for queries over few rows, which take longer to be divided and compiled than to run."""

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Final

from pyspark import SparkContext

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
    given = {*pipeline.config.spark.conf, *_application_settings(pipeline.spark.sparkContext)}
    return session_settings(pipeline.spark, few_rows(given))


@lru_cache(maxsize=1)
def _application_settings(context: SparkContext) -> frozenset[str]:
    """Return the names of an application's settings; kept, since `getConf` copies all of them."""
    return frozenset(key for key, _ in context.getConf().getAll())


def few_rows(given: Collection[str]) -> dict[str, str]:
    """Return how Spark is to plan queries over few rows.

    Args:
        given: The names of the settings that the user has set, which stay as they are.
    """
    return {**{key: value for key, value in _FEW.items() if key not in given}, **_ONE_TASK}
