"""Ingest: every Kafka record, whole, into the bronze table."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from pipelines.config.risks import refusal
from pipelines.config.streams import STREAMS
from pipelines.delta.checkpoint_fit import BEGIN
from pipelines.delta.clocks import require_not_behind, require_order
from pipelines.delta.idempotent_writer import OnceWriter
from pipelines.delta.read_ahead import require_not_read_ahead
from pipelines.delta.record_tables import ensure_bronze
from pipelines.delta.stream_check import check_ingest, note_tables, require_fit
from pipelines.delta.table_properties import TOPIC_ID, WHOLE_FROM, hidden, set_table_property
from pipelines.errors import ConfigError
from pipelines.kafka.ingest_position import Continuation, behind_or_ahead, continuation, first_start
from pipelines.kafka.log_start import deleted_until
from pipelines.kafka.offsets_group import OffsetsGroup, offsets_group
from pipelines.kafka.same_log import last_offsets, require_same_log
from pipelines.kafka.source import read_envelopes
from pipelines.kafka.topics import Topic, find_topic, require_same_topic
from pipelines.ledger.forgotten_places import emptied_on_arrival, places_ahead
from pipelines.ledger.retention_marks import first_whole_day, last_event_day
from pipelines.racks.traffic import RackTraffic, RackTrafficMeter
from pipelines.spark.checkpoints import QueryFiles, has_begun, query_files
from pipelines.spark.ingest_plans import ends_of, offsets_in, read_until
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.stream_metrics import StreamMetric
from pipelines.spark.streams import Trigger, run_query

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
    is_begun = has_begun(spark, files)
    if not is_begun:
        _refuse_latest(pipeline, files)
    require_not_read_ahead(pipeline, *STREAMS["ingest"].tables)
    # Before a commit of this run is the newest.
    require_not_behind(pipeline)
    ensure_bronze(pipeline, {TOPIC_ID: hidden(topic.topic_id)})
    require_same_topic(pipeline, topic)
    require_fit(config, "ingest", behind_or_ahead(pipeline, topic, files))
    require_same_log(pipeline, topic, last_offsets(pipeline, topic))
    start = _start(pipeline, topic, files, is_first=not is_begun)
    if start and not is_begun:
        _note_incomplete_days(pipeline, start)
    starting = start.starting_offsets if start else None
    note_tables(pipeline, "ingest", files)
    _log.info("reading topic %s, %d partitions", topic.name, topic.partitions)
    reading = RackTrafficMeter(spark, config.kafka) if config.kafka.rack.executor_variable else None
    writer = OnceWriter(pipeline.table("bronze"), files.in_flight)
    with offsets_group(spark, config.kafka, config.offsets_group) as group:
        if group:
            group.show(partial(_in_bronze, pipeline, starting))
        forgotten = places_ahead(pipeline)
        job = IngestJob(pipeline, writer, once, starting, forgotten=forgotten, group=group, reading=reading)
        totals = run_query(pipeline, "ingest", job, Trigger(once, config.ingest.trigger_interval))
    return IngestResult(
        records=totals.records + job.written_before,
        batches=totals.batches + bool(job.written_before),
        offsets=_offsets(totals.start, totals.end),
        racks=reading.measured(totals.source) if reading else None,
    )


@dataclass
class IngestJob:
    """What the query does, and what came of it.

    Attributes:
        pipeline: The pipeline.
        writer: writes bronze.
        once: whether it takes what the topic holds now and ends.
        starting: where a new checkpoint begins, in Spark's form, if not where the configuration says.
        forgotten: places of records that were forgotten, and that it reads once more.
        group: shows how far it is.
        reading: measures from which racks it reads.
        written_before: records of a micro-batch that an earlier run had written and not recorded as done.
    """

    pipeline: Pipeline
    writer: OnceWriter
    once: bool
    starting: str | None = None
    forgotten: DataFrame | None = None
    group: OffsetsGroup | None = None
    reading: RackTrafficMeter | None = None
    written_before: int = 0
    _requests: "_OffsetRequests | None" = None

    def plan(self) -> DataFrame:
        """Return the records of the topic."""
        kafka = self.pipeline.config.kafka
        begun = query_files(self.pipeline.spark, self.pipeline.checkpoint("ingest")).in_flight
        self._requests = _OffsetRequests(begun, self.once, is_bounded=bool(kafka.max_offsets_per_trigger))
        return read_envelopes(self.pipeline.spark, kafka, self.starting)

    def write(self, rows: DataFrame, batch: int) -> None:
        """Append a micro-batch to bronze."""
        require_order(self.pipeline, batch)
        # Spark counts the records that a micro-batch reads; one that is there already is not read.
        came = emptied_on_arrival(rows, self.forgotten)
        self.writer.append(came, batch, 0, asked=self._requests.before(batch) if self._requests else None)
        self.written_before = self.writer.rows_before(batch + 1)
        if self.group:
            self.group.show(partial(ends_of, self.pipeline, batch))
        if self._requests:
            self._requests.done()

    def metrics(self) -> Iterator[StreamMetric]:
        """Yield what became of commits of offsets, and how much was read from which rack."""
        if self.group:
            yield from self.group.counts.metrics()
        if self.reading:
            yield self.reading.so_far()


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
    if config.kafka.starting_offsets != "latest" or "starting_offsets_latest" in config.accept_risks:
        return
    if BEGIN in files.note:
        return
    raise ConfigError(
        f"kafka.starting_offsets: {refusal('starting_offsets_latest', 'latest on a first start', 'earliest')}"
    )


def _start(pipeline: Pipeline, topic: Topic, files: QueryFiles, *, is_first: bool) -> Continuation | None:
    """Return where a query begins that has planned nothing yet; None if checkpoint or settings say it.

    Args:
        pipeline: The pipeline.
        topic: the topic.
        files: what the checkpoint says.
        is_first: whether it does not say where the query began.
    """
    if files.next_batch or files.in_flight is not None:
        return None
    if BEGIN not in files.note:
        from_earliest = pipeline.config.kafka.starting_offsets == "earliest"
        return first_start(pipeline, topic) if is_first and from_earliest else None
    start = continuation(pipeline, topic)
    for partition, at in start.starts.items():
        _log.info("%s-%d: from offset %s on", topic.name, partition, "earliest" if at is None else at)
    for partition, deleted in start.deleted.items():
        _log.warning(
            "%s-%d: Kafka has deleted offsets %d to %d before they were read; audits will fail",
            *(topic.name, partition, deleted.start, deleted.stop - 1),
        )
    return start


def _note_incomplete_days(pipeline: Pipeline, start: Continuation) -> None:
    """Keep days from being certified of which bronze will lack records that Kafka has deleted.

    So it is if bronze is begun, or begun again after a loss, and if it has no record of a partition with
    which ingest begins again. Who starts at the latest offset has accepted that by name.
    """
    begun = start.begun
    if not start.is_first:
        # Of an idle partition Kafka may have deleted all long ago: no day is refused for it.
        for partition in (number for number, held in begun.items() if held.start and not held):
            _log.warning(
                "%s-%d: Kafka has deleted all of its records, and bronze has none: whether any were lost is"
                " unknown",
                *(start.topic, partition),
            )
        begun = {number: held for number, held in begun.items() if held}
    sent = deleted_until(pipeline, begun)
    if sent is None:
        return
    last = last_event_day(sent, pipeline.config.decode.max_future, pipeline.contract.zone)
    first_whole, before = last + timedelta(days=1), first_whole_day(pipeline)
    if before is not None and before >= first_whole:
        return
    _log.warning(
        "Kafka has deleted records of %s that were sent until %s: %s is the first complete day of bronze."
        " Days before it, and days within batch.dedup_horizon_days after it, cannot be certified. See"
        " docs/runbook.md, 'After a loss'",
        *(start.topic, sent.strftime("%Y-%m-%d %H:%M:%S UTC"), first_whole),
    )
    set_table_property(pipeline.spark, pipeline.table("bronze"), WHOLE_FROM, first_whole.isoformat())


def _in_bronze(pipeline: Pipeline, starting: str | None) -> dict[int, int]:
    """Return up to where bronze has been filled when a run begins, by partition."""
    if starting is None:
        return read_until(pipeline)
    return {p: at for p, at in offsets_in(starting, pipeline.config).items() if at >= 0}


def _offsets(start: Any, end: Any) -> tuple[PartitionRead, ...]:
    """Return the offsets of a run from those before and after it, as Kafka's source writes them."""
    before = start or {}
    return tuple(
        PartitionRead(topic, int(p), before.get(topic, {}).get(p, 0 if start else None), offset)
        for topic, partitions in (end or {}).items()
        for p, offset in partitions.items()
    )
