"""Publish: events to a Kafka topic, each once for `read_committed` readers, and what corrects them."""

import logging
from collections import Counter
from dataclasses import dataclass, field
from datetime import date

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.config.model import PipelineConfig
from pipelines.config.streams import STREAMS
from pipelines.delta.event_tables import ensure_speed
from pipelines.delta.io import small_rows
from pipelines.delta.reader_position_check import require_not_read_ahead
from pipelines.delta.stream_check import refuse_lost_speed
from pipelines.delta.table_properties import keep_versions
from pipelines.errors import OncelakeError, SourceError
from pipelines.fault_points import Point, reach
from pipelines.ledger.certifications import ensure_ledger
from pipelines.ledger.ops_tables import CERTIFICATIONS, PUBLISHED_DAYS
from pipelines.publishing.cluster import (
    asking,
    end_transactions,
    known_partitions,
    read_slot_progress,
    topic_id,
)
from pipelines.publishing.cluster_advice import (
    ClusterFacts,
    advice,
    facts,
    refuse_idle_slots,
    refuse_too_long,
)
from pipelines.publishing.day_slots import overtake
from pipelines.publishing.failures import explained
from pipelines.publishing.first_start import note_first_start
from pipelines.publishing.kafka_records import messages
from pipelines.publishing.micro_batch import BatchMaker, OutgoingBatch, SettledThrough, stream
from pipelines.publishing.progress_check import partitions_of, publisher, reconcile_with_checkpoint
from pipelines.publishing.progress_refusals import refuse_other_partitions
from pipelines.publishing.publications import last_partitions, publications, unfinished
from pipelines.publishing.published_days import (
    forget_unknown,
    require_settled_kept,
    settled_so_far,
    waiting,
)
from pipelines.publishing.restored_ledger import bring_ledger_forward
from pipelines.publishing.settings import settings_of, sink_of, values_of, writing_sink
from pipelines.publishing.settled import Settled
from pipelines.publishing.transactional_sink import Published, Publisher, TransactionalSink
from pipelines.publishing.unsent_days import UnsentDays, how_to_send, unsent
from pipelines.registry.event_schema import AvroValues
from pipelines.spark.checkpoints import QueryFiles, query_files
from pipelines.spark.failures import texts
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.stream_metrics import StreamMetric
from pipelines.spark.streams import Totals, Trigger, query_of, run_query

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublishedStream:
    """What a run of the stream has published.

    Attributes:
        rows: Rows that were published.
        slots_done_before: Transactions that an earlier run had committed without knowing.
        batches: Micro-batches with records.
        unsent: The days that were certified before the stream began, and that nobody has sent.
    """

    rows: int
    slots_done_before: int
    batches: int
    unsent: UnsentDays


def publish(pipeline: Pipeline, *, once: bool) -> PublishedStream:
    """Publish what enters the speed layer, and what the nightly rebuild makes of it.

    That continues until it is asked to stop, or once with what is there.

    Args:
        pipeline: The pipeline.
        once: Publish what the speed layer holds now and return.

    Raises:
        ConfigError: Nothing is said of publishing, there is no such topic, or it has fewer partitions than
            there are slots and the stream has not begun.
        SourceError: What the cluster knows of progress does not go with the checkpoint, or the topic has
            other partitions than it had.
        InfrastructureError: The cluster or the lake does not answer, or the query failed.
    """
    config = pipeline.config
    diagnosis = diagnose_publishing(config)
    for warning in diagnosis.warnings:
        _log.warning("%s", warning)
    if "slots_over_partitions" not in config.accept_risks and not _has_begun(pipeline):
        refuse_idle_slots(sink_of(config), diagnosis.facts)
    _require_partitions_of_whole_days(pipeline)
    _ensure_sources(pipeline)
    avro = values_of(pipeline)
    sink = writing_sink(config, pipeline.contract, avro)
    publishes = publisher(pipeline.spark, sink, pipeline.checkpoint("publish"))
    reach(Point.PROGRESS_AGREES)
    forget_unknown(pipeline)
    require_settled_kept(pipeline)
    # Refused before anything is sent, if the batch layer is not the one that was published.
    settled_so_far(pipeline)
    note_first_start(pipeline)
    reach(Point.FIRST_START_NOTED)
    bring_ledger_forward(pipeline)
    maker = BatchMaker(pipeline, publishes.topic_id)
    job = _Job(pipeline, publishes, maker, avro)
    _log.info("publishing %s to topic %s in %d slots", pipeline.table("speed"), sink.topic, sink.slots)
    totals = job.run(once=once)
    return PublishedStream(
        rows=job.counts["rows"],
        slots_done_before=job.counts["slots_done_before"],
        batches=totals.batches,
        unsent=unsent(pipeline, publishes.topic_id),
    )


def _has_begun(pipeline: Pipeline) -> bool:
    """Return whether the pipeline was published before, also if its checkpoint was moved aside since."""
    if query_files(pipeline.spark, pipeline.checkpoint("publish")).query is not None:
        return True
    if PUBLISHED_DAYS.exists(pipeline) and not PUBLISHED_DAYS.rows(pipeline).isEmpty():
        return True
    sink = sink_of(pipeline.config)
    with asking(sink) as cluster:
        return bool(read_slot_progress(cluster, sink))


def _require_partitions_of_whole_days(pipeline: Pipeline) -> None:
    """Make sure that the topic has the partitions that it had for whole days, before it is corrected first.

    From then on the note beside the checkpoint says how many it had.
    """
    if query_files(pipeline.spark, pipeline.checkpoint("publish")).query is not None:
        return
    sink = sink_of(pipeline.config)
    with asking(sink) as cluster:
        topic, partitions = topic_id(cluster, sink.topic), known_partitions(cluster, sink.topic)
        marks = read_slot_progress(cluster, sink).values()
    # `publish reset` writes how many it has, and a start that finds no progress does not.
    if not any((mark.topic_id, mark.partitions) == (topic, partitions) for mark in marks):
        accept = sink.command("publish reset", "--to beginning --accept-partitions")
        refuse_other_partitions(sink, last_partitions(pipeline, topic), partitions, f"run: {accept}")


def _ensure_sources(pipeline: Pipeline) -> None:
    """See to it that what the stream reads is there, and stays."""
    refuse_lost_speed(pipeline)
    require_not_read_ahead(pipeline, *STREAMS["publish"].tables)
    ensure_speed(pipeline)
    ensure_ledger(pipeline)
    # A stream that was away for long comes back to old versions.
    retention = settings_of(pipeline.config).keep_unread
    keep_versions(pipeline.spark, pipeline.table("speed"), retention)
    keep_versions(pipeline.spark, CERTIFICATIONS.path(pipeline), retention, is_shared=True)


@dataclass(frozen=True)
class PublishingStatus:
    """How far publishing is, by the checkpoint and by the cluster.

    Attributes:
        sink: What publishes, and where to.
        checkpoint: What the checkpoint says.
        slots: What the cluster says: the next micro-batch of each slot; empty if it has no progress.
        waiting: The days that were certified since the stream looked.
        unsent: The days that were certified before it began, and that nobody has sent.
        problem: Why `publish_stream` would not start; None if checkpoint and cluster agree.
    """

    sink: TransactionalSink
    checkpoint: QueryFiles
    slots: dict[int, int]
    waiting: list[date]
    unsent: UnsentDays
    problem: str | None


def publishing_status(pipeline: Pipeline) -> PublishingStatus:
    """Find how far publishing is, by the checkpoint and by the cluster, and whether the two agree.

    Raises:
        ConfigError: Nothing is said of publishing, or there is no such topic.
        InfrastructureError: The cluster does not answer.
    """
    sink, checkpoint = sink_of(pipeline.config), pipeline.checkpoint("publish")
    with asking(sink) as cluster:
        topic = topic_id(cluster, sink.topic)
        files = query_files(pipeline.spark, checkpoint)
        marks = read_slot_progress(cluster, sink)
        while (now := query_files(pipeline.spark, checkpoint)) != files:
            # A micro-batch has ended between the two looks.
            files, marks = now, read_slot_progress(cluster, sink)
        problem, left, left_before = None, list[date](), UnsentDays()
        try:
            require_settled_kept(pipeline)
            left_before = unsent(pipeline, topic)
            reconcile_with_checkpoint(sink, topic, marks, files)
            partitions_of(cluster, sink, files)
            left = sorted({verdict.day for verdict in waiting(pipeline)})
        except SourceError as error:
            problem = str(error)
    slots = {slot: mark.next_batch for slot, mark in marks.items()}
    return PublishingStatus(sink, files, slots, left, left_before, problem)


@dataclass(frozen=True)
class PublishingDiagnosis:
    """What matters to publishing of a cluster.

    Attributes:
        topic: The output topic.
        facts: What the cluster tells of itself.
        warnings: What is wrong with it; each with how to fix it.
    """

    topic: str
    facts: ClusterFacts
    warnings: list[str]


def diagnose_publishing(config: PipelineConfig) -> PublishingDiagnosis:
    """Check what publishing needs of the cluster, and find misconfiguration.

    Raises:
        ConfigError: Nothing is said of publishing, there is no such topic, or the cluster will refuse all.
        InfrastructureError: The cluster does not answer.
    """
    sink = sink_of(config)
    with asking(sink) as cluster:
        topic_id(cluster, sink.topic)
        cluster_facts = facts(cluster, sink.topic)
    refuse_too_long(sink, cluster_facts)
    return PublishingDiagnosis(
        sink.topic, cluster_facts, advice(sink, settings_of(config).retraction, cluster_facts)
    )


@dataclass
class _Job:
    """What the query does, and what it has published."""

    pipeline: Pipeline
    publisher: Publisher
    maker: BatchMaker
    avro: AvroValues | None
    counts: Counter[str] = field(default_factory=Counter)
    settled: SettledThrough | None = None
    is_under_way: bool = False

    def run(self, *, once: bool) -> Totals:
        """Run the query to its end; a failure is put in words, and no transaction stays open."""
        sink = self.publisher.sink
        trigger = Trigger(once, settings_of(self.pipeline.config).trigger_interval)
        try:
            return run_query(self.pipeline, "publish", self, trigger)
        except OncelakeError as error:
            reason = error.__cause__
            if reason is None:
                raise
            text = f"{type(reason).__name__}: " + "\n".join(texts(reason))
            raise explained(text, error, sink) from None
        finally:
            if self.is_under_way:
                # Spark kills the tasks of a query that ends; readers are not to wait for their time-out.
                end_transactions(sink, self.publisher.run)

    def plan(self) -> DataFrame:
        """Return the rows of the speed layer and the verdicts."""
        return stream(self.pipeline)

    def write(self, rows: DataFrame, batch: int) -> None:
        """Publish a micro-batch, and what corrects the days that it settles."""
        self.is_under_way = True
        made = self.maker.make(rows, query_of(self.pipeline.spark), batch, self.settled)
        reach(Point.BATCH_SETTLED)
        done = self._publish(made, batch)
        self.settled = made.settled_through
        self.is_under_way = False
        self.counts.update(rows=done.rows, slots_done_before=done.slots_done_before)
        if not batch:
            for line in how_to_send(self.pipeline.config, unsent(self.pipeline, self.publisher.topic_id)):
                _log.warning("%s", line)

    def metrics(self) -> tuple[StreamMetric, ...]:
        """Return none: it has those that all streams have."""
        return ()

    def _publish(self, made: OutgoingBatch, batch: int) -> Published:
        """Publish a micro-batch; what the rebuild has changed is sent in parts, however much it is."""
        retraction = settings_of(self.pipeline.config).retraction
        records = messages(made.rows, self.pipeline.contract, avro=self.avro, retraction=retraction)
        if not made.may_correct or not made.settled_through:
            return self.publisher(records, batch)
        self._overtake(made.settled_through.days)
        cached = records.persist(StorageLevel.DISK_ONLY)
        try:
            size = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(F.octet_length("value"), F.lit(0))
            (total,) = small_rows(cached.agg(F.sum(size).alias("bytes"), F.count(F.lit(1)).alias("rows")))
            parts = -(-(total["bytes"] or 0) // settings_of(self.pipeline.config).max_bytes)
            return self.publisher(records, batch, max(min(parts, total["rows"]), 1))
        finally:
            cached.unpersist()

    def _overtake(self, settled: Settled) -> None:
        """Let no run that stood still send rows of a whole day behind what corrects them."""
        topic = self.publisher.topic_id
        left = unfinished(self.pipeline, topic, publications(self.pipeline, topic))
        # While a run has the lease nothing is certified, so one that knows of all that is may go on.
        older = [each for each in left if each.certified_version < settled.version or each.version < 0]
        overtake(self.publisher.sink, older, topic)
