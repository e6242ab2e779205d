"""Ingest: every Kafka record, whole, into the bronze table."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame

from pipelines.config.clusters import require_not_retired
from pipelines.config.streams import STREAMS
from pipelines.delta.clocks import require_not_behind, require_order
from pipelines.delta.fenced_commits import set_first_day
from pipelines.delta.idempotent_writer import IdempotentWriter
from pipelines.delta.reader_position_check import require_not_read_ahead
from pipelines.delta.record_tables import ensure_bronze
from pipelines.delta.reset_fence import reset_fence
from pipelines.delta.small_tables import most_records
from pipelines.delta.stream_check import check_ingest, note_tables
from pipelines.delta.table_properties import (
    WHOLE_FROM,
    property_of_cluster,
    to_hex,
    topic_key,
)
from pipelines.kafka.beginnings import Beginning
from pipelines.kafka.ingest_state import SparkIngestState
from pipelines.kafka.log_start import first_sent
from pipelines.kafka.offsets_group import OffsetsGroup, offsets_group
from pipelines.kafka.source import read_envelopes
from pipelines.kafka.topic_watch import topic_watch
from pipelines.kafka.topics import find_topic, require_same_topic
from pipelines.ledger.forgotten_places import emptied_on_arrival, places_ahead
from pipelines.racks.traffic import RackTraffic, RackTrafficMeter
from pipelines.runtime.system_clock import SystemClock
from pipelines.spark.checkpoints import QueryFiles, query_files
from pipelines.spark.few_rows import sized_for
from pipelines.spark.ingest_plans import ends_of, offsets_in, read_until
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.stream_metrics import StreamMetric
from pipelines.spark.streams import Trigger, run_query
from pipelines.steps.ingest_start import OffsetRequests, prepare_start

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PartitionRead:
    """What a run has read of one Kafka partition.

    Attributes:
        topic: The topic.
        partition: The partition.
        first: The first offset of the run; None with a new checkpoint.
        end: The offset after its last.
    """

    topic: str
    partition: int
    first: int | None
    end: int


@dataclass(frozen=True)
class IngestResult:
    """What `ingest` did.

    Attributes:
        records: Records that were written to bronze.
        batches: Micro-batches with records.
        offsets: What was read of each partition; empty if there was no micro-batch.
        racks: What was read from which rack; None if `kafka.rack.mode` is off.
    """

    records: int
    batches: int
    offsets: tuple[PartitionRead, ...]
    racks: RackTraffic | None = None


def ingest(pipeline: Pipeline, *, once: bool) -> IngestResult:
    """Copy the topic into bronze continuously, or once (`availableNow`).

    Args:
        pipeline: The pipeline.
        once: Take what the topic holds now and return.

    Raises:
        ConfigError: There is no such topic; or a first start would skip what it holds.
        SourceError: Offsets are gone, the topic is not the one that bronze was filled from, or has other
            records under its offsets, or bronze and the checkpoint do not match.
        InfrastructureError: The cluster or the lake does not answer; or the clock is behind.
    """
    spark, config = pipeline.spark, pipeline.config
    require_not_retired(config.kafka)
    topic = find_topic(spark, config.kafka)
    with sized_for(pipeline, most_records(spark, pipeline.table("bronze"))):
        # Before the checkpoint is looked at, which a reset may move aside at any moment.
        fence = reset_fence(pipeline)
        files = check_ingest(pipeline)
        start = prepare_start(_SparkIngestLake(pipeline, topic), files)
    starting_offsets = start.starting_offsets if start else None
    _log.info("reading topic %s, %d partitions", config.kafka.source_topic, topic.partitions)
    rack_traffic = RackTrafficMeter(spark, config.kafka) if config.kafka.rack.executor_variable else None
    with (
        topic_watch(spark, config, topic) as watch,
        offsets_group(spark, config.kafka, config.offsets_group) as group,
    ):
        bronze = pipeline.table("bronze")
        # That a micro-batch has read this topic is known only once it has read.
        writer = IdempotentWriter(bronze, files.in_flight, fence=fence, before_commit=watch.require_same)
        if group:
            group.request_commit(partial(_committed_ends, pipeline, starting_offsets))
        forgotten = places_ahead(pipeline)
        job = IngestJob(
            pipeline,
            writer,
            once,
            starting_offsets,
            forgotten=forgotten,
            group=group,
            rack_traffic=rack_traffic,
        )
        totals = run_query(pipeline, "ingest", job, Trigger(once, config.ingest.trigger_interval))
    return IngestResult(
        records=totals.records + job.written_before,
        batches=totals.batches + bool(job.written_before),
        offsets=_offsets(totals.start, totals.end),
        racks=rack_traffic.measured(totals.source) if rack_traffic else None,
    )


@dataclass
class IngestJob:
    """What the query does, and what came of it.

    Attributes:
        pipeline: The pipeline.
        writer: Writes bronze.
        once: Whether it takes what the topic holds now and ends.
        starting_offsets: Where a new checkpoint begins, in Spark's form, if not where the configuration says.
        forgotten: Places of records that were forgotten, and that it reads once more.
        group: Shows how far it is.
        rack_traffic: Measures from which racks it reads.
        written_before: Records of a micro-batch that an earlier run had written and not recorded as done.
    """

    pipeline: Pipeline
    writer: IdempotentWriter
    once: bool
    starting_offsets: str | None = None
    forgotten: DataFrame | None = None
    group: OffsetsGroup | None = None
    rack_traffic: RackTrafficMeter | None = None
    written_before: int = 0
    _requests: OffsetRequests | None = None

    def plan(self) -> DataFrame:
        """Return the records of the topic."""
        kafka = self.pipeline.config.kafka
        begun = query_files(self.pipeline.spark, self.pipeline.checkpoint("ingest")).in_flight
        is_bounded = bool(kafka.max_offsets_per_trigger)
        self._requests = OffsetRequests(begun, self.once, partial(datetime.now, UTC), is_bounded=is_bounded)
        return read_envelopes(self.pipeline.spark, kafka, self.starting_offsets)

    def write(self, rows: DataFrame, batch: int) -> None:
        """Append a micro-batch to bronze."""
        require_order(self.pipeline, batch)
        # Spark counts the records that a micro-batch reads; one that is there already is not read.
        records = emptied_on_arrival(rows, self.forgotten)
        self.writer.append(records, batch, 0, asked=self._requests.before(batch) if self._requests else None)
        self.written_before = self.writer.rows_before(batch + 1)
        if self.group:
            self.group.request_commit(partial(ends_of, self.pipeline, batch))
        if self._requests:
            self._requests.done()

    def metrics(self) -> Iterator[StreamMetric]:
        """Yield what became of commits of offsets, and how much was read from which rack."""
        if self.group:
            yield from self.group.counts.metrics()
        if self.rack_traffic:
            yield self.rack_traffic.so_far()


@dataclass(frozen=True)
class _SparkIngestLake(SparkIngestState, SystemClock):
    """A lake, see `pipelines.steps.ingest_start.IngestLake`."""

    @property
    def zone(self) -> ZoneInfo:
        return self.pipeline.contract.zone

    def make_bronze(self) -> None:
        require_not_read_ahead(self.pipeline, *STREAMS["ingest"].tables)
        # Before a commit of this run is the newest.
        require_not_behind(self.pipeline)
        ensure_bronze(self.pipeline, {topic_key(self.config.cluster): to_hex(self.topic.topic_id)})
        require_same_topic(self.pipeline, self.topic)

    def first_sent(self, ranges: Mapping[int, range]) -> Mapping[int, float]:
        return first_sent(self.pipeline, ranges)

    def set_first_complete_day(self, day: date) -> None:
        key = property_of_cluster(WHOLE_FROM, self.config.cluster)
        set_first_day(self.pipeline.spark, self.pipeline.table("bronze"), key, day)

    def note_tables(self, files: QueryFiles, beginning: Beginning) -> None:
        note_tables(self.pipeline, "ingest", files, beginning.entries())


def _committed_ends(pipeline: Pipeline, starting_offsets: str | None) -> dict[int, int]:
    """Return up to where bronze has been filled when a run begins, by partition."""
    if starting_offsets is None:
        return read_until(pipeline)
    return {p: at for p, at in offsets_in(starting_offsets, pipeline.config).items() if at >= 0}


def _offsets(start: Any, end: Any) -> tuple[PartitionRead, ...]:
    """Return the offsets of a run from those before and after it, as Kafka's source writes them."""
    before = start or {}
    return tuple(
        PartitionRead(topic, int(p), before.get(topic, {}).get(p, 0 if start else None), offset)
        for topic, partitions in (end or {}).items()
        for p, offset in partitions.items()
    )
