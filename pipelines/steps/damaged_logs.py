"""Commits of a pipeline's tables that are empty or cut off, and failures that come from them."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pipelines.config.streams import LAYERS
from pipelines.delta.transaction_numbers import damaged_commits
from pipelines.errors import OncelakeError, SourceError
from pipelines.ledger.ops_tables import OPS_TABLES
from pipelines.spark.failures import damaged_commit, texts
from pipelines.spark.pipeline import Pipeline

# Delta reads commits by Jackson, and does not say which one it could not read.
_JSON: Final = "com.fasterxml.jackson."
# A log has a checkpoint every ten commits, and each job reads the commits since then.
_SEARCHED: Final = 100


def damaged_logs(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the newest commits of all tables of the pipeline that are empty or cut off."""
    return tuple(file for table in _tables(pipeline) for file in damaged_commits(pipeline.spark, table))


def damage_behind(pipeline: Pipeline, failure: BaseException) -> SourceError | None:
    """Return the refusal of a commit that is cut off, if a job may have failed over it; None if it has not.

    A file on an object store has no checksum of Hadoop's, by which Spark would name it.

    Args:
        pipeline: The pipeline; its session may be gone.
        failure: What the job has raised.
    """
    if not any(_JSON in text for each in _causes(failure) for text in texts(each)):
        return None
    # It is about to be told that the job has failed, whatever else fails now.
    with suppress(PySparkException, Py4JError, OncelakeError):
        for table in _tables(pipeline):
            for file in damaged_commits(pipeline.spark, table, _SEARCHED):
                return damaged_commit(file)
    return None


def _tables(pipeline: Pipeline) -> list[str]:
    return [*map(pipeline.table, LAYERS), *(spec.path(pipeline) for spec in OPS_TABLES)]


def _causes(failure: BaseException | None) -> Iterator[BaseException]:
    while failure is not None:
        yield failure
        failure = failure.__cause__
