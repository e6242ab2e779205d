"""What a piece of work is given."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.events import Truth
from benchmarks.progress import Progress
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.delta.io import read


class WrongResult(Exception):
    """A piece of work was done, but not rightly: its time means nothing."""


@dataclass(frozen=True)
class Work:
    """What a piece of work is given.

    Attributes:
        spark: the session.
        config: of the pipeline.
        contract: of the pipeline.
        truth: what the topic holds.
        progress: of all queries of the session.
    """

    spark: SparkSession
    config: PipelineConfig
    contract: DataContract
    truth: Truth
    progress: Progress

    def table(self, layer: Any) -> DataFrame:
        """One of the pipeline's tables."""
        return read(self.spark, self.config.table(layer))
