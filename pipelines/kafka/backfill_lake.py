"""What a backfill asks of bronze and of Kafka, beside what ingest asks.

Those who decide by the answers know only `BackfillLake`: the simulation has a model of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.delta.backfill_writer import IngestCheckpoint
from pipelines.delta.fenced_commits import number_taken
from pipelines.delta.io import read, small_rows
from pipelines.delta.retention_cut import first_kept_of_source
from pipelines.delta.table_properties import WHOLE_FROM, properties_of_clusters
from pipelines.delta.transaction import Transaction
from pipelines.kafka.admin import admin_client
from pipelines.kafka.bronze_offsets import bronze_of_topic, last_by_partition
from pipelines.kafka.ingest_state import IngestState, SparkIngestState
from pipelines.kafka.known_gaps import held_within
from pipelines.kafka.missing_offsets import Blocks, held_blocks
from pipelines.kafka.topics import list_offsets, offset_bounds
from pipelines.runtime.system_clock import SystemClock
from pipelines.spark.checkpoints import QueryFiles, query_files
from pipelines.spark.ingest_plans import MicroBatchPlan, plan_of
from pipelines.spark.pipeline import Pipeline


class BackfillLake(IngestState, Protocol):
    """A pipeline's bronze, and the topic as a backfill asks it. Each method looks anew."""

    def available(self) -> Mapping[int, range]:
        """Return the offsets that Kafka has, by the Kafka settings of backfills."""

    def sent_since(self, moment: datetime) -> Mapping[int, int]:
        """Return the first offset that was sent since a moment, by partition; -1 where there is none."""

    def blocks(self, spans: Mapping[int, range], size: int) -> Blocks:
        """Return what bronze has of ranges, see `pipelines.kafka.missing_offsets.held_blocks`."""

    def held_within(self, ranges: Sequence[tuple[int, range]]) -> Mapping[int, int]:
        """Count what bronze has within ranges, see `pipelines.kafka.known_gaps.held_within`."""

    def last_sent_before(self, moment: datetime, below: Mapping[int, int]) -> Mapping[int, int]:
        """Return the last offset in bronze that was sent before a moment and lies below another offset."""

    def whole_from(self) -> str | None:
        """Return what bronze says of the first day that retention has left whole; None if it says nothing."""

    def first_kept(self) -> Mapping[int, int] | None:
        """Return the first offset of each partition that retention kept in bronze, where it removed any.

        Returns:
            None if other records were lost, too.
        """


@dataclass(frozen=True)
class OtherIngest:
    """The checkpoint of another cluster's ingest, see `pipelines.delta.backfill_writer.IngestCheckpoint`."""

    pipeline: Pipeline

    def files(self) -> QueryFiles:
        """Return what it says."""
        return query_files(self.pipeline.spark, self.pipeline.checkpoint("ingest"))

    def plan(self, batch: int) -> MicroBatchPlan | None:
        """Return the plan of a micro-batch; None if there is none."""
        return plan_of(self.pipeline, batch)


@dataclass(frozen=True)
class SparkBackfillLake(SparkIngestState, SystemClock):
    """The same of a lake, see `BackfillLake`.

    Attributes:
        whole: The pipeline with all of its clusters; `pipeline` is that of the cluster that is read.
    """

    whole: Pipeline

    def others(self) -> Sequence[IngestCheckpoint]:
        """Return the checkpoints of the other clusters' ingests, also of one that is retired."""
        own = self.config.cluster
        return [OtherIngest(each) for each in self.whole.sources() if each.config.cluster != own]

    def available(self) -> Mapping[int, range]:
        """Return the offsets that Kafka has."""
        with admin_client(self.pipeline.spark, self.config.backfill_kafka) as admin:
            return offset_bounds(admin, self.topic)

    def sent_since(self, moment: datetime) -> Mapping[int, int]:
        """Return the first offset that was sent since a moment, by partition; -1 where there is none."""
        with admin_client(self.pipeline.spark, self.config.backfill_kafka) as admin:
            return list_offsets(admin, self.topic, moment)

    def blocks(self, spans: Mapping[int, range], size: int) -> Blocks:
        """Return what bronze has of ranges."""
        return held_blocks(self._offsets, spans, size)

    def held_within(self, ranges: Sequence[tuple[int, range]]) -> Mapping[int, int]:
        """Count what bronze has within ranges."""
        return held_within(self._offsets, ranges)

    def last_sent_before(self, moment: datetime, below: Mapping[int, int]) -> Mapping[int, int]:
        """Return the last offset in bronze that was sent before a moment and lies below another offset."""
        before = bronze_of_topic(self.pipeline).where(F.col("_kafka_timestamp") < F.lit(moment))
        within = " OR ".join(f"(_partition = {n} AND _offset < {offset})" for n, offset in below.items())
        return last_by_partition(before.where(within))

    def whole_from(self) -> str | None:
        """Return what bronze says of the first day that retention has left whole.

        Retention removes records of all clusters, and writes so where the first has its own.
        """
        said = properties_of_clusters(self.pipeline.spark, self.pipeline.table("bronze"), WHOLE_FROM)
        found = [said[name] for name in dict.fromkeys((None, self.config.cluster)) if name in said]
        return ", ".join(found) or None

    def first_kept(self) -> Mapping[int, int] | None:
        """Return the first offset of each partition that retention kept."""
        return first_kept_of_source(self.pipeline)

    def begin(self) -> Transaction:
        """Begin a transaction on bronze."""
        return Transaction(self.pipeline.spark, self.pipeline.table("bronze"))

    def write(self, draft: Transaction, records: DataFrame, at: datetime) -> int:
        """Write records as of a moment to files that no commit names; return how many."""
        draft.write(records.withColumn("_ingested_at", F.lit(at)))
        return draft.written_rows()

    def newest_since(self, moment: datetime) -> datetime | None:
        """Return the newest ingestion in bronze, of those since a moment."""
        rows = read(self.pipeline.spark, self.pipeline.table("bronze"))
        rows = rows.where(F.col("_ingested_at") >= F.lit(moment))
        (found,) = small_rows(rows.agg(F.max("_ingested_at").alias("newest")))
        newest: datetime | None = found["newest"]
        return newest

    def number_taken(self, application: str) -> int:
        """Return the last number of an application that bronze has taken."""
        return number_taken(self.pipeline.spark, self.pipeline.table("bronze"), application)

    @property
    def _offsets(self) -> DataFrame:
        return bronze_of_topic(self.pipeline).select("_partition", "_offset")
