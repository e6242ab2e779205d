"""What a pipeline works with: its session, its configuration and its contract."""

from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from pipelines.config.model import PipelineConfig
from pipelines.config.streams import Layer, Query
from pipelines.contracts.contract import DataContract
from pipelines.contracts.event_days import effective_horizon


@dataclass(frozen=True)
class Pipeline:
    """One pipeline of a lake, as every step gets it.

    Attributes:
        spark: The session.
        config: The configuration.
        contract: The data contract.
    """

    spark: SparkSession
    config: PipelineConfig
    contract: DataContract

    @property
    def name(self) -> str:
        """The name of the pipeline."""
        return self.config.name

    @property
    def horizon(self) -> int:
        """Over how many neighbouring days, each way, copies of a key are one event.

        That is `batch.dedup_horizon_days`, or 0 where the key holds the event time. What is kept for later
        runs goes by the setting instead, since they may have another key.
        """
        return effective_horizon(self.contract, self.config.batch.dedup_horizon_days)

    def sources(self) -> tuple["Pipeline", ...]:
        """Return the pipeline as it is for the source of each cluster, the first cluster's first.

        With one cluster that is the pipeline itself. See `PipelineConfig.sources`.
        """
        if not self.config.kafka.clusters:
            return (self,)
        return tuple(replace(self, config=config) for config in self.config.sources())

    def table(self, layer: Layer) -> str:
        """Return the path of one of this pipeline's tables."""
        return self.config.table(layer)

    def ops_table(self, table: str) -> str:
        """Return the path of a table that all pipelines of a lake share."""
        return self.config.ops_table(table)

    def checkpoint(self, query: Query) -> str:
        """Return the path of a streaming query's checkpoint."""
        return self.config.checkpoint(query)
