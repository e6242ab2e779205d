"""Ingest: every Kafka record, whole, into the bronze table."""

import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, NotRequired, TypedDict

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from pipelines.config.risks import refusal
from pipelines.delta.checkpoint_fit import BEGIN
from pipelines.delta.clocks import require_not_behind, require_order
from pipelines.delta.idempotent_writer import OnceWriter
from pipelines.delta.io import Trigger, each_batch
from pipelines.delta.read_ahead import require_not_read_ahead
from pipelines.delta.record_tables import ensure_bronze
from pipelines.delta.stream_check import check_ingest, note_tables, require_fit
from pipelines.delta.table_properties import TOPIC_ID, hidden
from pipelines.errors import ConfigError
from pipelines.kafka.ingest_position import behind_or_ahead, continuation
from pipelines.kafka.offsets_group import OffsetsGroup, offsets_group
from pipelines.kafka.same_log import last_offsets, require_same_log
from pipelines.kafka.source import read_envelopes
from pipelines.kafka.topics import Topic, find_topic, require_same_topic
from pipelines.ledger.forgotten_places import emptied_on_arrival, places_ahead
from pipelines.racks.traffic import RackTrafficMeter
from pipelines.spark.checkpoints import QueryFiles, query_files
from pipelines.spark.ingest_plans import ends_of, offsets_in, read_until
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.stream_monitor import StreamMonitor
from pipelines.spark.streams import BatchFunction, run_stream

_log = logging.getLogger(__name__)


class IngestSummary(TypedDict):
    """What `ingest` did.

    Attributes:
        counts: `records` and `batches`.
        offsets: By topic and partition, the first offset of this run (None with a new checkpoint) and the one
            after its last.
        racks: With `kafka.rack.mode` on, as `pipelines.racks.traffic.RackTrafficMeter` has it.
    """

    counts: dict[str, int]
    offsets: dict[str, dict[str, list[int | None]]]
    racks: NotRequired[dict[str, Any]]


def ingest(pipeline: Pipeline, *, once: bool) -> IngestSummary:
    """Copy the topic into bronze until it is asked to stop, or once what is there.

    Args:
        pipeline: The pipeline.
        once: take what the topic holds now and return.

    Raises:
        ConfigError: there is no such topic; or a first start would skip what it holds.
        SourceError: offsets are gone, the topic is not the one that bronze was filled from, or has other
            records under its offsets, or bronze and the checkpoint do not match.
        InfrastructureError: the cluster or the lake does not answer; or the clock is behind.
    """
    spark, config = pipeline.spark, pipeline.config
    topic = find_topic(spark, config.kafka)
    files = check_ingest(pipeline)
    _refuse_latest(pipeline, files)
    require_not_read_ahead(pipeline, "bronze")
    # Before a commit of this run is the newest.
    require_not_behind(pipeline)
    ensure_bronze(pipeline, {TOPIC_ID: hidden(topic.topic_id)})
    require_same_topic(pipeline, topic)
    require_fit(config, "ingest", behind_or_ahead(pipeline, topic, files))
    require_same_log(pipeline, topic, last_offsets(pipeline, topic))
    starting = _starting(pipeline, topic, files)
    note_tables(pipeline, "ingest", files)
    _log.info("reading topic %s, %d partitions", topic.name, topic.partitions)
    reading = RackTrafficMeter(spark, config.kafka) if config.kafka.rack.executor_variable else None
    writer = OnceWriter(pipeline.table("bronze"), files.in_flight)
    with offsets_group(spark, config.kafka, config.offsets_group) as group:
        if group:
            group.show(partial(_in_bronze, pipeline, starting))
        job = IngestJob(pipeline, writer, starting, forgotten=places_ahead(pipeline), group=group)
        monitor = StreamMonitor(pipeline, "ingest", None if once else config.ingest.trigger_interval)
        totals = run_stream(spark, partial(job.start, once=once), job.batches, monitor=monitor)
    summary: IngestSummary = {
        "counts": {
            "records": totals.records + job.written_before,
            "batches": totals.batches + bool(job.written_before),
        },
        "offsets": _ranges(totals.start, totals.end),
    }
    if reading:
        summary["racks"] = reading.summary(totals.source)
    return summary


@dataclass
class IngestJob:
    """The query, and what came of it.

    Attributes:
        pipeline: The pipeline.
        writer: writes bronze.
        starting: where a new checkpoint begins, in Spark's form, if not where the configuration says.
        forgotten: places of records that were forgotten, and that it reads once more.
        group: shows how far it is.
        written_before: records of a micro-batch that an earlier run had written and not recorded as done.
        batches: the function that writes its micro-batches.
    """

    pipeline: Pipeline
    writer: OnceWriter
    starting: str | None = None
    forgotten: DataFrame | None = None
    group: OffsetsGroup | None = None
    written_before: int = 0
    batches: BatchFunction = field(init=False)
    _requests: "_OffsetRequests | None" = None

    def __post_init__(self) -> None:
        """Keep what the function raises."""
        self.batches = BatchFunction(self._write)

    def start(self, *, once: bool) -> StreamingQuery:
        """Start the query."""
        config = self.pipeline.config
        begun = query_files(self.pipeline.spark, self.pipeline.checkpoint("ingest")).in_flight
        self._requests = _OffsetRequests(begun, once, is_bounded=bool(config.kafka.max_offsets_per_trigger))
        return each_batch(
            read_envelopes(self.pipeline.spark, config.kafka, self.starting),
            self.batches,
            name="ingest",
            checkpoint=self.pipeline.checkpoint("ingest"),
            trigger=Trigger(once, config.ingest.trigger_interval),
        )

    def _write(self, rows: DataFrame, batch: int) -> None:
        require_order(self.pipeline, batch)
        # Spark counts the records that a micro-batch reads; one that is there already is not read.
        came = emptied_on_arrival(rows, self.forgotten)
        self.writer.append(came, batch, 0, asked=self._requests.before(batch) if self._requests else None)
        self.written_before = self.writer.rows_before(batch + 1)
        if self.group:
            self.group.show(partial(ends_of, self.pipeline, batch))
        if self._requests:
            self._requests.done()


class _OffsetRequests:
    """When Spark asked Kafka for the ends of its partitions, for each micro-batch of a query.

    It does so when it plans one: after the one before is done; or, to take what is there now and stop, when
    the query starts. The time that Spark notes itself is that of a moment after the answer.
    """

    def __init__(self, begun: int | None, once: bool, *, is_bounded: bool) -> None:
        self._begun, self._once, self._is_bounded = begun, once, is_bounded
        self._at = datetime.now(UTC)

    def before(self, batch: int) -> int | None:
        """Return a moment before it asked, in milliseconds; None if the micro-batch may end before the ends.

        One that an earlier run has planned goes to the ends, or the bound, of that time.
        """
        if self._is_bounded or batch == self._begun:
            return None
        return int(self._at.timestamp() * 1000)

    def done(self) -> None:
        """Note that a micro-batch is done: what is asked from now on is asked for the next."""
        if not self._once:
            self._at = datetime.now(UTC)


def _refuse_latest(pipeline: Pipeline, files: QueryFiles) -> None:
    """Make sure that a first start skips no record, unless the configuration says so by name.

    Raises:
        ConfigError: it would.
    """
    config = pipeline.config
    has_begun = files.query is not None or BEGIN in files.note
    if (
        has_begun
        or config.kafka.starting_offsets != "latest"
        or "starting_offsets_latest" in config.accept_risks
    ):
        return
    raise ConfigError(
        f"kafka.starting_offsets: {refusal('starting_offsets_latest', 'latest on a first start', 'earliest')}"
    )


def _starting(pipeline: Pipeline, topic: Topic, files: QueryFiles) -> str | None:
    """Return where a stream begins that has no checkpoint since it was reset."""
    if files.next_batch or files.in_flight is not None or BEGIN not in files.note:
        return None
    start = continuation(pipeline, topic)
    for partition, at in start.starts.items():
        _log.info("%s-%d: from offset %s on", topic.name, partition, "earliest" if at is None else at)
    for partition, deleted in start.deleted.items():
        _log.warning(
            "%s-%d: Kafka has deleted offsets %d to %d before they were read; audits will fail",
            *(topic.name, partition, deleted.start, deleted.stop - 1),
        )
    return start.starting_offsets


def _in_bronze(pipeline: Pipeline, starting: str | None) -> dict[int, int]:
    """Return up to where bronze has been filled when a run begins, by partition."""
    if starting is None:
        return read_until(pipeline)
    return {p: at for p, at in offsets_in(starting, pipeline.config).items() if at >= 0}


def _ranges(start: Any, end: Any) -> dict[str, dict[str, list[int | None]]]:
    """Return the offsets of a run, by topic and partition: the first (None if unknown) and the end."""
    before = start or {}
    return {
        topic: {
            p: [before.get(topic, {}).get(p, 0 if start else None), offset]
            for p, offset in partitions.items()
        }
        for topic, partitions in (end or {}).items()
    }
