"""What a backfill reads: the offsets that were asked for, that bronze lacks, and that ingest leaves to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from pyspark.sql import functions as F

from pipelines.delta.io import small_rows
from pipelines.delta.table_properties import WHOLE_FROM, table_property
from pipelines.errors import ConfigError
from pipelines.kafka.admin import admin_client
from pipelines.kafka.bronze_offsets import bronze_of_topic, last_by_partition
from pipelines.kafka.known_gaps import known_missing
from pipelines.kafka.missing_offsets import Lack, lacking
from pipelines.kafka.topics import Topic, list_offsets, offset_bounds
from pipelines.spark.checkpoints import query_files
from pipelines.spark.ingest_plans import read_until
from pipelines.spark.pipeline import Pipeline

_NOTHING: Final = Lack()


@dataclass(frozen=True)
class BackfillSpan:
    """What was asked for: records by the time at which they were sent, or by their offsets.

    Attributes:
        since: from the first record of each partition that was sent at this moment or later; None: from the
            first that Kafka has.
        until: up to the first record that was sent at this moment or later; None: up to where ingest goes on.
        offsets: by partition, if offsets were asked for.
    """

    since: datetime | None = None
    until: datetime | None = None
    offsets: Mapping[int, range] = field(default_factory=dict)


@dataclass(frozen=True)
class PartitionPlan:
    """What is to be read of a partition.

    Attributes:
        span: the offsets that were asked for.
        lack: what bronze lacks of those that Kafka has, below where ingest goes on.
        gone: what it lacks of those that Kafka no longer has, without `audit.known_gaps`.
        left_to_ingest: how many of the offsets that Kafka has ingest will read itself.
        removed: offsets that retention has removed from bronze, which stay out.
    """

    span: range
    lack: Lack
    gone: Lack = _NOTHING
    left_to_ingest: int = 0
    removed: int = 0


def plan_backfill(pipeline: Pipeline, topic: Topic, asked: BackfillSpan) -> dict[int, PartitionPlan]:
    """Return what a backfill has to read of each partition that it was asked for.

    Where ingest goes on is looked up before bronze, so that bronze has what lies below.

    Args:
        pipeline: The pipeline.
        topic: the topic.
        asked: what was asked for.

    Raises:
        ConfigError: the topic has no such partition.
        InfrastructureError: the cluster does not answer.
    """
    if unknown := sorted(number for number in asked.offsets if number >= topic.partitions):
        raise ConfigError(
            f"--offsets: found partition {unknown[0]}, expected 0 to {topic.partitions - 1}, which"
            f" {topic.name} has"
        )
    continues = ingest_continues(pipeline)
    with admin_client(pipeline.spark, pipeline.config.backfill_kafka) as admin:
        available = offset_bounds(admin, topic)
        starts, stops = (
            list_offsets(admin, topic, moment) if moment else {} for moment in (asked.since, asked.until)
        )
    spans = dict(asked.offsets) or _by_time(pipeline, asked, available, starts, stops)
    kept = _first_kept(pipeline)
    plans = {
        number: _Bounds(span, available[number], continues.get(number, 0), kept.get(number, 0))
        for number, span in sorted(spans.items())
    }
    offsets = bronze_of_topic(pipeline).select("_partition", "_offset")
    missing = lacking(offsets, {number: bounds.readable for number, bounds in plans.items()})
    deleted = {number: bounds.deleted for number, bounds in plans.items() if bounds.deleted}
    gone = lacking(offsets, deleted) if deleted else {}
    known = known_missing(offsets, pipeline.config.audit.known_gaps, deleted)
    return {
        number: PartitionPlan(
            bounds.span,
            missing[number],
            _without(gone.get(number, _NOTHING), known.get(number, 0)),
            bounds.left_to_ingest,
            bounds.removed,
        )
        for number, bounds in plans.items()
    }


def ingest_continues(pipeline: Pipeline) -> dict[int, int]:
    """Return the offset at which ingest goes on, by partition; what it has not got to is not in the result.

    Without a micro-batch that is done, as after a reset, that is behind the last record in bronze.
    """
    if query_files(pipeline.spark, pipeline.checkpoint("ingest")).next_batch:
        return read_until(pipeline)
    return {number: last + 1 for number, last in last_by_partition(bronze_of_topic(pipeline)).items()}


@dataclass(frozen=True)
class _Bounds:
    """Offsets that were asked for of a partition, and what divides them.

    Attributes:
        span: what was asked for.
        available: what Kafka has.
        continues: where ingest goes on.
        kept: the first offset that retention has left; 0 if it has removed none.
    """

    span: range
    available: range
    continues: int
    kept: int

    @property
    def readable(self) -> range:
        return _between(self.span, max(self.available.start, self.kept), self.continues)

    @property
    def deleted(self) -> range:
        return _between(self.span, self.kept, min(self.available.start, self.continues))

    @property
    def left_to_ingest(self) -> int:
        return len(_between(self.span, max(self.continues, self.available.start), self.available.stop))

    @property
    def removed(self) -> int:
        return len(_between(self.span, 0, self.kept))


def _between(span: range, first: int, stop: int) -> range:
    start = max(span.start, first)
    return range(start, max(start, min(span.stop, stop)))


def _by_time(
    pipeline: Pipeline,
    asked: BackfillSpan,
    available: Mapping[int, range],
    starts: Mapping[int, int],
    stops: Mapping[int, int],
) -> dict[int, range]:
    """Return the offsets of each partition between two moments.

    A moment before the first record that Kafka has may be one of which Kafka has deleted records.

    Args:
        pipeline: The pipeline.
        asked: the moments.
        available: the offsets that Kafka has.
        starts: by partition, the first offset since the first moment; -1 if there is none.
        stops: the same of the second.
    """
    spans: dict[int, range] = {}
    unproven: dict[int, range] = {}
    for number, offsets in available.items():
        start = starts.get(number, offsets.start)
        stop = stops.get(number, offsets.stop)
        spans[number] = range(offsets.stop if start < 0 else start, offsets.stop if stop < 0 else stop)
        if asked.since and start == offsets.start > 0:
            unproven[number] = range(offsets.start)
    if unproven and asked.since:
        before = bronze_of_topic(pipeline).where(F.col("_kafka_timestamp") < F.lit(asked.since))
        below = " OR ".join(f"(_partition = {n} AND _offset < {r.stop})" for n, r in unproven.items())
        proven = last_by_partition(before.where(below))
        spans |= {n: range(proven.get(n, -1) + 1, spans[n].stop) for n in unproven}
    return spans


def _first_kept(pipeline: Pipeline) -> dict[int, int]:
    """Return the first offset of each partition in bronze, if retention has removed any."""
    if table_property(pipeline.spark, pipeline.table("bronze"), WHOLE_FROM) is None:
        return {}
    first = bronze_of_topic(pipeline).groupBy("_partition").agg(F.min("_offset").alias("first"))
    return {row["_partition"]: row["first"] for row in small_rows(first)}


def _without(gone: Lack, known: int) -> Lack:
    """Return what is gone, without what is known to be lost; nothing if that is all."""
    return Lack(gone.offsets - known, gone.ranges) if gone.offsets > known else _NOTHING
