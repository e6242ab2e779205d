"""Publish days: whole certified days to the output topic, each once, for readers who begin."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import reduce
from typing import Final
from uuid import uuid4

from confluent_kafka import KafkaException
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.config.commands import command
from pipelines.config.model import PipelineConfig
from pipelines.contracts.event_days import around
from pipelines.delta.event_tables import require_same_days
from pipelines.delta.tables import conform
from pipelines.delta.time_travel import day_bytes, read_kept
from pipelines.errors import ConfigError, InfrastructureError, SourceError
from pipelines.fault_points import Point, reach
from pipelines.ledger.certifications import (
    Verdict,
    certified_in,
    history,
    newest_certified,
    require_certified,
)
from pipelines.ledger.leases import Lease, lease
from pipelines.publishing.cluster import (
    asking,
    end_transactions,
    ensure_progress_topic,
    read_slot_progress,
    topic_id,
)
from pipelines.publishing.cluster_advice import facts, refuse_too_long
from pipelines.publishing.corrections import CORRECTION, corrections, replace_removed
from pipelines.publishing.day_slots import overtake, take_slots
from pipelines.publishing.failures import explained
from pipelines.publishing.kafka_records import messages
from pipelines.publishing.micro_batch import published_columns
from pipelines.publishing.progress_check import partitions_of
from pipelines.publishing.progress_refusals import refuse_other_partitions
from pipelines.publishing.publications import (
    Begun,
    Publication,
    last_partitions,
    publications,
    record_begin,
    record_publication,
    unfinished,
)
from pipelines.publishing.published_days import (
    require_settled_kept,
    settled_so_far,
    waiting,
)
from pipelines.publishing.settings import DAY_SINK, settings_of, sink_of, values_of, writing_sink
from pipelines.publishing.settled import Settled
from pipelines.publishing.slots import ProgressError, SlotProgress
from pipelines.publishing.transactional_sink import (
    Frame,
    TransactionalSink,
    publish_rows,
    refuse_changed_content,
)
from pipelines.registry.event_schema import AvroValues
from pipelines.spark.checkpoints import query_files
from pipelines.spark.failures import cause, explain_failure
from pipelines.spark.pipeline import Pipeline

_WHOLE_DAY: Final = "day"
_COMMIT_DIGITS: Final = 8
_LOST_SLOTS: Final = re.compile(r"(?P<by>Progress|Overtaken)Error: (?P<said>[^\n]*)")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublishedDays:
    """What was published of certified days.

    Attributes:
        rows: How many rows of each day; None if it was published before.
    """

    rows: dict[date, int | None]


def publish_days(
    pipeline: Pipeline,
    run_id: str,
    days: Sequence[date],
    *,
    again: bool,
    accept_partitions: bool = False,
) -> PublishedDays:
    """Publish certified days as a whole, unless that is done.

    A run that died is gone on with: what it had committed is not sent again.

    Args:
        pipeline: The pipeline.
        run_id: Recorded with what is published.
        days: The days, sorted.
        again: Publish days that were published before, too.
        accept_partitions: Publish also if the topic has got partitions since days were published to it.

    Raises:
        ConfigError: A day is not certified, has changed since it was published, or there is no topic; or the
            days were built with another key than the contract has now.
        SourceError: The batch table is not the one that was certified, or that the stream has published; or
            the topic has other partitions than it had.
        InfrastructureError: The stream has not come to what is certified, or the cluster does not answer.
    """
    config = pipeline.config
    sink = sink_of(config)
    with lease(pipeline, run_id, "publish") as run_lease:
        verdicts = _verdicts(pipeline, days)
        topic, partitions = _topic(pipeline, sink, accept_partitions=accept_partitions)
        rows: dict[date, int | None] = {}
        avro = values_of(pipeline)
        sink = writing_sink(config, pipeline.contract, avro)
        before = publications(pipeline, topic)
        begun = unfinished(pipeline, topic, before)
        # Whoever began that has lost the lease, and may not know it.
        run_lease.require()
        overtake(sink, begun, topic)
        for day in days:
            left = [each for each in begun if each.day == day]
            work = _Day(pipeline, verdicts, day, before.get(day, Publication()), left, topic, avro)
            rows[day] = work.publish(sink, run_lease, partitions, again=again)
            if rows[day] is not None:
                work.require(run_lease)
                record_publication(pipeline, verdicts[day], topic, run_id, partitions)
    return PublishedDays(rows)


def _verdicts(pipeline: Pipeline, days: Sequence[date]) -> Mapping[date, Verdict]:
    """Return by which verdicts days are certified, if these can be sent."""
    require_settled_kept(pipeline)
    # Records are keyed by the contract, and corrections are found by it.
    require_same_days(pipeline)
    ledger = history(pipeline)
    require_certified(pipeline, certified_in(ledger))
    verdicts = newest_certified(ledger)
    _require_days_certified(pipeline.config, days, verdicts)
    _require_streamed(pipeline.config, days, waiting(pipeline))
    return verdicts


def _topic(pipeline: Pipeline, sink: TransactionalSink, *, accept_partitions: bool) -> tuple[str, int]:
    """Return the id and the number of partitions of a topic that can be published to."""
    files = query_files(pipeline.spark, pipeline.checkpoint("publish"))
    with asking(sink) as cluster:
        topic = topic_id(cluster, sink.topic)
        refuse_too_long(sink, facts(cluster, sink.topic))
        ensure_progress_topic(cluster, sink)
        partitions = partitions_of(cluster, sink, files)
    # What is beside a checkpoint is newer, and somebody may have accepted another number since.
    if files.query is None and not accept_partitions:
        refuse_other_partitions(sink, last_partitions(pipeline, topic), partitions)
    return topic, partitions


def _require_days_certified(
    config: PipelineConfig, days: Sequence[date], verdicts: Mapping[date, Verdict]
) -> None:
    if missing := [day for day in days if day not in verdicts]:
        of_day = command(config, "nightly_batch", f"--date {missing[0]}")
        raise ConfigError(f"{missing[0]} is not certified; run first: {of_day}")


def _require_streamed(config: PipelineConfig, days: Sequence[date], left: Sequence[Verdict]) -> None:
    """Make sure that the stream does not send of a day what is older than the whole of it."""
    if behind := sorted({verdict.day for verdict in left} & {*days}):
        raise InfrastructureError(
            f"publish_stream has not sent the changes of {behind[0]} yet, and would send older rows"
            f" after newer ones: run first: {command(config, 'publish_stream', '--once')}"
        )


@dataclass(frozen=True)
class _Day:
    """A certified day that is to be published, and the verdicts of all days.

    Attributes:
        pipeline: The pipeline.
        verdicts: By which days are certified.
        day: The day.
        before: How it was published.
        left: What runs have begun to publish of it, and not finished.
        topic_id: The cluster's identifier of the topic.
        avro: How values are written in Avro; None for JSON.
    """

    pipeline: Pipeline
    verdicts: Mapping[date, Verdict]
    day: date
    before: Publication
    left: Sequence[Begun]
    topic_id: str
    avro: AvroValues | None

    def publish(
        self, sink: TransactionalSink, run_lease: Lease, partitions: int, *, again: bool
    ) -> int | None:
        """Publish the day; return its rows, or None if it was published before."""
        day, version, before = self.day, self.verdicts[self.day].batch_version, self.before
        settled = self._settled_here()
        if before.count and not again:
            if before.version == version or (settled and settled.version >= version and day in settled.days):
                # As it is now, or the stream has sent what has changed since.
                return None
            raise ConfigError(
                f"{day} was published at version {before.version} of {self.pipeline.table('batch')}"
                f" and was rebuilt since, at version {version}. publish_stream sends what has changed, when"
                " it runs; to send the whole day once more, use --again"
            )
        rows = self._rows(version, [day])
        if rows is None:
            rebuild = command(self.pipeline.config, "nightly_batch", f"--date {day}")
            raise SourceError(
                f"{self.pipeline.table('batch')}: version {version}, by which {day} is certified, is gone:"
                f" rebuild it: {rebuild}"
            )
        settings = settings_of(self.pipeline.config)
        size = day_bytes(self.pipeline.spark, self.pipeline.table("batch"), version, [day])
        parts = -(-max(size, 1) // settings.max_bytes)
        outgoing = rows.withColumn(CORRECTION, F.lit(_WHOLE_DAY))
        if settled is None and (before.count or self.left):
            # No stream has retracted them.
            outgoing = outgoing.unionByName(self._lost(rows))
        begun = self._begin(sink, run_lease, partitions)
        own = self._own(sink, begun.sink)
        # Progress has the run's own name, so that another one that is still at work learns that it has not.
        done = SlotProgress(
            parts,
            settings.max_bytes_per_trigger,
            self.topic_id,
            own.slots,
            run=uuid4().hex,
            partitions=partitions,
        )
        records = messages(outgoing, self.pipeline.contract, avro=self.avro, retraction=settings.retraction)
        self._send(records, own, done, run_lease)
        return self.verdicts[day].rows

    def _settled_here(self) -> Settled | None:
        """Return what the stream has settled; None if none publishes to this topic, or has done so yet."""
        files = query_files(self.pipeline.spark, self.pipeline.checkpoint("publish"))
        is_here = files.note.get("topic_id", self.topic_id) == self.topic_id
        return settled_so_far(self.pipeline) if files.next_batch and is_here else None

    def _begin(self, sink: TransactionalSink, run_lease: Lease, partitions: int) -> Begun:
        """Return what is gone on with, or record that the day is begun: whoever is next has to know it."""
        verdict = self.verdicts[self.day]
        certified_as = (verdict.batch_version, verdict.batch_commit)
        for each in self.left:
            if (each.version, each.commit) == certified_as:
                return each
        newest = max(verdict.batch_version for verdict in self.verdicts.values())
        # The content of what a stream is sending follows from what it found to be begun.
        self.require(run_lease)
        begun = Begun(self.day, *certified_as, self.before.count + 1, self._name(sink), newest)
        record_begin(self.pipeline, begun, self.topic_id, run_lease.run_id, partitions)
        return begun

    def _own(self, sink: TransactionalSink, name: str) -> TransactionalSink:
        """Return the sink of this day, of a name, with the words that its refusals need."""
        config, day = self.pipeline.config, f"--date {self.day}"
        send, rebuild = command(config, "publish", day, "--again"), command(config, "nightly_batch", day)
        # Another build has a sink of its own.
        otherwise = (
            "If they are gone, or if a neighbouring day was rebuilt or publish_stream was started since:"
            f" rebuild the day ({rebuild}), then send it ({send})"
        )
        return replace(sink, name=name, finish=send, rebuild=otherwise)

    def _name(self, sink: TransactionalSink) -> str:
        """Return the name of the sink of this day, version and topic for this time alone."""
        verdict, time = self.verdicts[self.day], self.before.count + 1
        of_version = f"{sink.name}{DAY_SINK}{self.day}.{verdict.batch_version}"
        unsigned = f"{of_version}.{self.topic_id}.{time}"
        if verdict.batch_commit is None:
            return unsigned
        # A lake that was restored comes to the same version by another commit.
        commit = verdict.batch_commit[:_COMMIT_DIGITS]
        with asking(sink) as cluster:
            # Earlier releases, whose names had no commit, may have begun it.
            marks = read_slot_progress(cluster, replace(sink, name=unsigned), is_stable=True)
        return unsigned if marks else f"{of_version}-{commit}.{self.topic_id}.{time}"

    def _lost(self, rows: DataFrame) -> DataFrame:
        """Return events that were published of the day and are no longer of it, or those in their place."""
        contract, was = self.pipeline.contract, list[DataFrame]()
        sent = {each.version for each in self.left} | ({self.before.version} if self.before.count else set())
        for version in sorted(sent - {self.verdicts[self.day].batch_version}):
            if (some := self._rows(version, [self.day])) is not None:
                was.append(some)
                continue
            _log.warning(
                "%s: version %d, by which it was published, is gone: what it lost since is not retracted",
                *(self.day, version),
            )
        if not was:
            return rows.limit(0).withColumn(CORRECTION, F.lit(None).cast("string"))
        lost = corrections(reduce(DataFrame.unionByName, was), rows, contract)
        lost = lost.where(F.col(CORRECTION) == "removed")
        if not (horizon := self.pipeline.horizon):
            return lost
        near = [day for day in around([self.day], horizon) if day != self.day and day in self.verdicts]
        newest = max(verdict.batch_version for verdict in self.verdicts.values())
        others = self._rows(newest, near) if near else rows.limit(0)
        # Of others that are gone nobody can tell whether they stand for it.
        return lost.limit(0) if others is None else replace_removed(lost, rows, others, contract, horizon)

    def _rows(self, version: int, days: Sequence[date]) -> DataFrame | None:
        rows = read_kept(self.pipeline.spark, self.pipeline.table("batch"), version, days)
        return None if rows is None else conform(rows, published_columns(self.pipeline.contract))

    def _send(
        self, records: DataFrame, sink: TransactionalSink, done: SlotProgress, run_lease: Lease
    ) -> None:
        """Send the records in parts, each of which a transaction of each slot can hold.

        Args:
            records: The records of the day.
            sink: Where they go, under a name of this day alone.
            done: What progress says of each slot when all is sent; parts count as micro-batches in it.
            run_lease: The pipeline's lease.
        """
        parts = done.next_batch
        part_of = F.pmod(F.hash("key"), F.lit(parts))
        # A run that has lost the lease does not take them from the one that has it.
        self.require(run_lease)
        marks = take_slots(sink, done)
        with self._in_words(sink, done.run, run_lease):
            for number in sorted({mark.next_batch for mark in marks.values()} - {0}):
                sent = {slot: mark for slot, mark in marks.items() if mark.next_batch == number}
                # What is counted as sent, by whichever release, has to be this.
                refuse_changed_content(Frame(records.where(part_of == number - 1), sink), sink, sent)
            for part in range(min(mark.next_batch for mark in marks.values()), parts):
                _log.info("%s: part %d of %d", sink.name, part + 1, parts)
                # Whoever takes the lease over may certify the day again. One who has done so by now has seen
                # that it was begun and takes the slots away before sending what corrects it.
                self.require(run_lease)
                reach(Point.PART_DUE)
                rows = records.where(part_of == part)
                publish_rows(rows, sink, replace(done, next_batch=part + 1), is_new=False)

    @contextmanager
    def _in_words(self, sink: TransactionalSink, run: str, run_lease: Lease) -> Iterator[None]:
        """Leave no transaction of a run open if a block fails, and put the failure in words."""
        try:
            yield
        except BaseException as error:
            # Spark kills the tasks of a job that ends; readers are not to wait for their time-out.
            end_transactions(sink, run)
            if not isinstance(error, PySparkException | KafkaException | ProgressError):
                raise
            if meaning := explain_failure(error):
                raise meaning from None
            text = f"{type(error).__name__}: {error}"
            if lost := _LOST_SLOTS.search(text):
                # Whoever has the lease by now has taken the slots.
                self.require(run_lease)
            if lost and lost["by"] == "Overtaken":
                raise InfrastructureError(f"{sink.name}: {lost['said']}") from None
            unknown = InfrastructureError(
                f"{sink.name}: {cause(error)}. What was not committed is rolled back: fix the cause and"
                " start again"
            )
            raise explained(text, unknown, sink) from None

    def require(self, run_lease: Lease) -> None:
        """Make sure that nobody else can have certified days since the run has taken the lease.

        Raises:
            InfrastructureError: Another run has taken it over.
        """
        try:
            run_lease.require()
        except InfrastructureError as error:
            raise InfrastructureError(f"{self.day}: the day may be published in part: {error}") from None
