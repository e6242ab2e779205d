"""What is asked of ingest's checkpoint, of bronze and of Kafka to tell whether they match.

Those who decide by the answers know only `IngestState`: the simulation has a model of it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.config.model import PipelineConfig
from pipelines.delta.first_complete_day import first_complete_day_of_cluster
from pipelines.delta.io import small_rows
from pipelines.delta.table_properties import DIVERGENCE_ACCEPTED, table_property
from pipelines.delta.table_state import StreamCommit, recent_commits
from pipelines.kafka.admin import admin_client
from pipelines.kafka.beginnings import Beginning, beginning_in, first_began
from pipelines.kafka.bronze_offsets import (
    Ingestion,
    RecentOffsets,
    bronze_of_topic,
    held_by_partition,
    last_by_partition,
)
from pipelines.kafka.source import records_between
from pipelines.kafka.topic_offsets import BrokerOffsets, readable_offsets, records_within
from pipelines.kafka.topics import Topic, offset_bounds
from pipelines.spark.checkpoints import (
    QueryFiles,
    first_micro_batch,
    first_offsets,
    has_begun,
    note_beside,
    query_files,
)
from pipelines.spark.ingest_plans import MicroBatchPlan, plan_of
from pipelines.spark.pipeline import Pipeline

_WHOLE: Final = "_whole"
_DIGEST: Final = "_digest"


@dataclass(frozen=True)
class RecordComparison:
    """Records of a partition that both have: the last that are the same, and the last that differ."""

    same: int | None
    other: int | None

    @property
    def differs(self) -> bool:
        """Whether the newer of the two is one that differs."""
        return self.other is not None and (self.same is None or self.same < self.other)


class IngestState(Protocol):
    """A pipeline's ingest: its checkpoint, bronze, and the topic. Each method looks anew."""

    @property
    def config(self) -> PipelineConfig:
        """The pipeline's configuration."""

    @property
    def topic(self) -> Topic:
        """The topic, as it was found."""

    def files(self) -> QueryFiles:
        """Return what the checkpoint says."""

    def has_begun(self, files: QueryFiles) -> bool:
        """Return whether the query knows where it began, see `pipelines.spark.checkpoints.has_begun`."""

    def oldest(self) -> int | None:
        """Return the oldest micro-batch whose plan the checkpoint still has."""

    def began(self) -> Mapping[int, int] | None:
        """Return the offsets at which the checkpoint began; None if it does not know."""

    def first_began(self) -> Mapping[int, int]:
        """Return the offsets at which ingest first began, before resets; a partition may be unknown.

        Of what was lost since, and bronze does not say so any more, those where the loss begins.
        """

    def first_complete_day(self) -> date | None:
        """Return what bronze says of the first complete day of the cluster; None if it says nothing."""

    def plan(self, batch: int) -> MicroBatchPlan | None:
        """Return the plan of a micro-batch; None if the checkpoint no longer has it, or not yet."""

    def commits(self, most: int) -> Sequence[StreamCommit]:
        """Return the newest commits of bronze, the newest first."""

    def last_offsets(
        self, came: Ingestion | None = None, partitions: Collection[int] | None = None
    ) -> Mapping[int, int]:
        """Return the last offset of each partition in bronze.

        Args:
            came: Only records that were ingested in this range; None for all.
            partitions: Only these partitions; None for all.
        """

    def held(self) -> Mapping[int, range]:
        """Return the first to the last offset of each partition in bronze."""

    def bounds(self) -> Mapping[int, range]:
        """Return the offsets that Kafka has, see `pipelines.kafka.topics.offset_bounds`."""

    def readable(self) -> Mapping[int, BrokerOffsets]:
        """Return those that ingest may read, see `pipelines.kafka.topic_offsets.readable_offsets`."""

    def records_within(
        self, ranges: Mapping[int, range], *, stop_at_first: bool = False
    ) -> Mapping[int, int]:
        """Count records, see `pipelines.kafka.topic_offsets.records_within`."""

    def compared(self, ranges: Mapping[int, range]) -> Mapping[int, RecordComparison]:
        """Compare records within some offsets; a partition of which both have none is not in the result."""

    def accepted_divergences(self) -> str:
        """Return the `TOPIC-PARTITION@OFFSET` of which somebody has accepted that the records differ."""


@dataclass(frozen=True)
class SparkIngestState:
    """The same of a lake, see `IngestState`."""

    pipeline: Pipeline
    topic: Topic
    _recent: RecentOffsets = field(default_factory=RecentOffsets, init=False, repr=False, compare=False)

    @property
    def config(self) -> PipelineConfig:
        """The pipeline's configuration."""
        return self.pipeline.config

    def files(self) -> QueryFiles:
        """Return what the checkpoint says."""
        return query_files(self.pipeline.spark, self._checkpoint)

    def has_begun(self, files: QueryFiles) -> bool:
        """Return whether the query knows where it began."""
        return has_begun(self.pipeline.spark, files)

    def oldest(self) -> int | None:
        """Return the oldest micro-batch whose plan the checkpoint still has; Spark keeps a hundred."""
        return first_micro_batch(self.pipeline.spark, self._checkpoint)

    def began(self) -> Mapping[int, int] | None:
        """Return the offsets at which the checkpoint began; None if it does not know."""
        return first_offsets(self.pipeline.spark, self._checkpoint).get(self.config.kafka.topic)

    def first_began(self) -> Mapping[int, int]:
        """Return the offsets at which ingest first began, before resets; a partition may be unknown."""
        noted = self.noted()
        forgotten = noted.forgotten(self.first_complete_day()) if noted.lost else {}
        return first_began(self.began() or {}, noted, forgotten)

    def noted(self) -> Beginning:
        """Return what is noted beside the checkpoint."""
        return beginning_in(self.note(), self._checkpoint)

    def note(self) -> Mapping[str, Any]:
        """Return all that is noted there.

        Raises:
            SourceError: The file is damaged.
        """
        return note_beside(self.pipeline.spark, self._checkpoint)

    def first_complete_day(self) -> date | None:
        """Return what bronze says of the first complete day of the cluster; None if it says nothing."""
        return first_complete_day_of_cluster(self.pipeline, self.config.cluster)

    def plan(self, batch: int) -> MicroBatchPlan | None:
        """Return the plan of a micro-batch; None if the checkpoint no longer has it, or not yet."""
        return plan_of(self.pipeline, batch)

    def commits(self, most: int) -> Sequence[StreamCommit]:
        """Return the newest commits of bronze, the newest first."""
        return recent_commits(self.pipeline.spark, self.pipeline.table("bronze"), most)

    def last_offsets(
        self, came: Ingestion | None = None, partitions: Collection[int] | None = None
    ) -> Mapping[int, int]:
        """Return the last offset of each partition in bronze.

        Args:
            came: Only records that were ingested in this range; None for all.
            partitions: Only these partitions; None for all.
        """
        if came is not None:
            found = self._recent.last_by_partition(self.pipeline, came)
            return {n: last for n, last in found.items() if partitions is None or n in partitions}
        rows = bronze_of_topic(self.pipeline)
        if partitions is not None:
            rows = rows.where(F.col("_partition").isin(*partitions))
        return last_by_partition(rows)

    def held(self) -> Mapping[int, range]:
        """Return the first to the last offset of each partition in bronze."""
        return held_by_partition(bronze_of_topic(self.pipeline))

    def bounds(self) -> Mapping[int, range]:
        """Return the offsets that Kafka has."""
        with admin_client(self.pipeline.spark, self.config.kafka) as admin:
            return offset_bounds(admin, self.topic)

    def readable(self) -> Mapping[int, BrokerOffsets]:
        """Return those that ingest may read."""
        return readable_offsets(self.pipeline.spark, self.config.kafka, self.topic)

    def records_within(
        self, ranges: Mapping[int, range], *, stop_at_first: bool = False
    ) -> Mapping[int, int]:
        """Count records that Kafka gives."""
        return records_within(self.pipeline.spark, self.config.kafka, ranges, stop_at_first=stop_at_first)

    def compared(self, ranges: Mapping[int, range]) -> Mapping[int, RecordComparison]:
        """Compare records within some offsets by their timestamps and a hash of key and value."""
        return _compared(self.pipeline, ranges)

    def accepted_divergences(self) -> str:
        """Return what a person has written, as docs/runbook.md says."""
        return table_property(self.pipeline.spark, self.pipeline.table("bronze"), DIVERGENCE_ACCEPTED) or ""

    @property
    def _checkpoint(self) -> str:
        return self.pipeline.checkpoint("ingest")


def _compared(pipeline: Pipeline, ranges: Mapping[int, range]) -> dict[int, RecordComparison]:
    nonempty_ranges = {number: offsets for number, offsets in ranges.items() if offsets}
    if not nonempty_ranges:
        return {}
    digest = F.xxhash64(F.col("key").isNull(), "key", F.col("value").isNull(), "value").alias(_DIGEST)
    theirs = records_between(pipeline.spark, pipeline.config.kafka, nonempty_ranges).select(
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_stamped"),
        digest.alias("_theirs"),
    )
    # What was forgotten no longer has a value, but still its timestamp.
    whole = F.expr("coalesce(length(value) > 0, false)").alias(_WHOLE)
    ours = _of_offsets(bronze_of_topic(pipeline), nonempty_ranges)
    ours = ours.select("_partition", "_offset", "_kafka_timestamp", digest, whole)
    is_same = F.col("_kafka_timestamp").eqNullSafe(F.col("_stamped")) & (
        ~F.col(_WHOLE) | (F.col(_DIGEST) == F.col("_theirs"))
    )
    both = theirs.join(ours, ["_partition", "_offset"]).withColumn("_same", is_same)
    by_partition = both.groupBy("_partition").agg(
        F.max(F.when(F.col("_same"), F.col("_offset"))).alias("same"),
        F.max(F.when(~F.col("_same"), F.col("_offset"))).alias("other"),
    )
    return {
        row["_partition"]: RecordComparison(row["same"], row["other"]) for row in small_rows(by_partition)
    }


def _of_offsets(records: DataFrame, ranges: Mapping[int, range]) -> DataFrame:
    # As text, of which Spark makes a tree of little depth, however many partitions there are.
    within = (f"(_partition = {n} AND _offset BETWEEN {r.start} AND {r.stop - 1})" for n, r in ranges.items())
    return records.where(" OR ".join(within))
