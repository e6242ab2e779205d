"""What a piece of work is given."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.events import Truth
from benchmarks.progress import Progress
from pipelines.delta.io import read
from pipelines.spark.pipeline import Pipeline


class WrongResult(Exception):
    """A piece of work was done, but not rightly: its time means nothing."""


@dataclass(frozen=True)
class Work:
    """What a piece of work is given.

    Attributes:
        pipeline: The pipeline.
        truth: what the topic holds.
        progress: of all queries of the session.
    """

    pipeline: Pipeline
    truth: Truth
    progress: Progress

    def table(self, layer: Any) -> DataFrame:
        """One of the pipeline's tables."""
        return read(self.pipeline.spark, self.pipeline.table(layer))
