"""Backfill: what Kafka has and bronze lacks is appended to bronze, while the streams go on."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

from pyspark.sql import DataFrame

from pipelines.delta.backfill_writer import BackfillWriter, backfill_writer
from pipelines.delta.clocks import require_same_clock
from pipelines.delta.read_ahead import require_not_read_ahead
from pipelines.delta.record_tables import require_table
from pipelines.delta.table_properties import WHOLE_FROM, table_property
from pipelines.errors import SourceError
from pipelines.fault_points import Point, reach
from pipelines.kafka.admin import Admin, lasting_admin_client
from pipelines.kafka.backfill_plan import BackfillSpan, PartitionPlan, gone_of, plan_backfill
from pipelines.kafka.bronze_offsets import bronze_of_topic
from pipelines.kafka.missing_offsets import Missing, chunks, in_reading_order, within
from pipelines.kafka.same_log import last_offsets, require_same_log
from pipelines.kafka.source import envelopes_between
from pipelines.kafka.topics import (
    Topic,
    described,
    find_topic,
    offset_bounds,
    require_same_topic,
    topic_of,
)
from pipelines.ledger.forgotten_places import emptied_on_arrival, places_where
from pipelines.ledger.leases import Lease, backfill_lease
from pipelines.spark.pipeline import Pipeline

_SHOWN: Final = 5


@dataclass(frozen=True)
class BackfillProgress:
    """How far a backfill is.

    Attributes:
        done: offsets that were read.
        total: offsets that are to be read.
        records: records that were appended to bronze.
        elapsed_s: seconds since the first chunk was begun.
    """

    done: int
    total: int
    records: int
    elapsed_s: float

    @property
    def left_s(self) -> float | None:
        """Seconds until all is read, at the rate so far; None as long as that is unknown."""
        return self.elapsed_s * (self.total - self.done) / self.done if self.done else None


@dataclass(frozen=True)
class Backfill:
    """What a backfill has read, or would read.

    Attributes:
        topic: The topic's name.
        partitions: What was to be read of each partition.
        progress: How far it came; nothing is done in a dry run.
        chunks: How many commits it made.
        gone: By partition, the ranges of which bronze lacks offsets that Kafka no longer has.
    """

    topic: str
    partitions: Mapping[int, PartitionPlan]
    progress: BackfillProgress
    chunks: int = 0
    gone: Mapping[int, list[range]] = field(default_factory=dict)


class OffsetsGone(SourceError):
    """Kafka no longer has offsets that were asked for, and that bronze lacks.

    Attributes:
        done: What was read of the others.
    """

    def __init__(self, message: str, done: Backfill) -> None:
        super().__init__(message)
        self.done = done


Tell = Callable[[BackfillProgress], None]


def backfill(
    pipeline: Pipeline, run_id: str, asked: BackfillSpan, tell: Tell, *, dry_run: bool = False
) -> Backfill:
    """Append to bronze what it lacks of some offsets, in chunks, each once.

    What bronze lacks is found in bronze itself, so a run that died is completed by another one. Ingest may be
    at work: offsets that it has not read yet are left to it.

    Args:
        pipeline: The pipeline.
        run_id: the holder of the lease of backfills meanwhile.
        asked: which records.
        tell: is told how far the run is, at its beginning and after each chunk.
        dry_run: plan, and change nothing.

    Raises:
        ConfigError: there is no such topic or partition; or bronze would get a gap before its first record,
            or behind its last one.
        OffsetsGone: Kafka no longer has some of what was asked for; all else is in bronze.
        SourceError: there is no bronze, or the topic is not the one that it was filled from, or has other
            records under its offsets; or bronze was restored and its reader was not.
        InfrastructureError: another backfill is at work, or has taken over; or ingest's commits left no room
            for one; or the cluster does not answer; or the clock is ahead.
    """
    require_table(pipeline, "bronze")
    require_not_read_ahead(pipeline, "bronze")
    # Before the plan: what retention removes afterwards must not come back.
    whole_from = table_property(pipeline.spark, pipeline.table("bronze"), WHOLE_FROM)
    topic = find_topic(pipeline.spark, pipeline.config.backfill_kafka)
    require_same_topic(pipeline, topic)
    require_same_log(pipeline, topic, last_offsets(pipeline, topic))
    began = datetime.now(UTC)
    with nullcontext() if dry_run else backfill_lease(pipeline, run_id) as lease:
        if lease:
            # To take the lease was a commit to bronze.
            require_same_clock(pipeline, began)
        plan = plan_backfill(pipeline, topic, asked)
        reach(Point.OFFSETS_PLANNED)
        run = _Run(pipeline, topic, plan, tell)
        if lease:
            run.copy(lease, whole_from)
    done = run.result()
    if done.gone:
        rest = "would be read" if dry_run else "is in bronze"
        raise OffsetsGone(_gone(pipeline, done, rest), done)
    return done


class _Run:
    """One run, and how far it is."""

    def __init__(
        self, pipeline: Pipeline, topic: Topic, plan: Mapping[int, PartitionPlan], tell: Tell
    ) -> None:
        self._pipeline, self._topic, self._plan, self._tell = pipeline, topic, plan, tell
        self._kafka = pipeline.config.backfill_kafka
        self._ranges = {
            number: in_reading_order(each.lack.ranges, each.first)
            for number, each in plan.items()
            if each.lack.ranges
        }
        self._total = sum(len(each.offsets) for ranges in self._ranges.values() for each in ranges)
        self._done = self._records = self._chunks = 0
        self._began = time.monotonic()
        self._gone = {
            number: [each.offsets for each in partition.gone.ranges]
            for number, partition in plan.items()
            if partition.gone.offsets
        }

    @property
    def progress(self) -> BackfillProgress:
        return BackfillProgress(self._done, self._total, self._records, time.monotonic() - self._began)

    def result(self) -> Backfill:
        return Backfill(self._topic.name, self._plan, self.progress, self._chunks, self._gone)

    def copy(self, lease: Lease, whole_from: str | None) -> None:
        """Append chunk after chunk, no faster than it may.

        Args:
            lease: the lease of backfills.
            whole_from: what bronze said before the run was planned of the first day that retention has left.
        """
        if not self._ranges:
            return
        every = " OR ".join(
            within({number: each.offsets}) for number, ranges in self._ranges.items() for each in ranges
        )
        forgotten = places_where(self._pipeline, every)
        writer = backfill_writer(self._pipeline, whole_from, partial(self._require_right, lease))
        settings = self._pipeline.config.backfill
        rate = settings.max_offsets_per_second
        self._began = time.monotonic()
        self._tell(self.progress)
        with lasting_admin_client(self._pipeline.spark, self._kafka) as admin:
            for chunk in chunks(self._ranges, settings.most_at_once):
                if covered := self._covered(chunk, admin):
                    self._append(emptied_on_arrival(self._lacking(covered), forgotten), writer, lease, admin)
                self._done += sum(len(each.offsets) for each in chunk.values())
                self._tell(self.progress)
                reach(Point.CHUNK_COMMITTED)
                if rate:
                    time.sleep(max(0.0, self._done / rate - self.progress.elapsed_s))

    def _append(self, chunk: DataFrame, writer: BackfillWriter, lease: Lease, admin: Admin) -> None:
        with _kept(chunk) as records:
            # Where there are markers of transactions alone, there is nothing to commit.
            if records.count():
                # That they are of this topic is known only now.
                with admin.asked():
                    topic = topic_of(described(admin, self._kafka, self._topic.name))
                require_same_topic(self._pipeline, topic)
                self._records += writer.append(records, lease.stamp("backfill"))
                self._chunks += 1

    def _lacking(self, chunk: Mapping[int, Missing]) -> DataFrame:
        """Return the records of a chunk that bronze does not have."""
        ranges = {number: each.offsets for number, each in chunk.items()}
        records = envelopes_between(self._pipeline.spark, self._kafka, ranges)
        compared = {number: each.offsets for number, each in chunk.items() if each.is_partial}
        if not compared:
            return records
        held = bronze_of_topic(self._pipeline).where(within(compared)).select("_partition", "_offset")
        return records.join(held, ["_partition", "_offset"], "left_anti")

    def _covered(self, chunk: Mapping[int, Missing], admin: Admin) -> dict[int, Missing]:
        """Return what Kafka has of a chunk; what it has deleted since the run was planned is noted."""
        with admin.asked():
            available = offset_bounds(admin, self._topic)
        covered: dict[int, Missing] = {}
        deleted: dict[int, range] = {}
        for number, each in chunk.items():
            first = available[number].start
            deleted[number] = range(each.offsets.start, min(each.offsets.stop, first))
            if left := range(max(each.offsets.start, first), each.offsets.stop):
                covered[number] = replace(each, offsets=left)
        for number, lack in gone_of(self._pipeline, deleted).items():
            self._gone.setdefault(number, []).extend(missing.offsets for missing in lack.ranges)
        return covered

    def _require_right(self, lease: Lease) -> None:
        """Make sure, before a commit, that bronze is still this run's to write to.

        A table that was put back from a backup knows nothing of the epochs that were taken since.
        """
        lease.require()
        require_not_read_ahead(self._pipeline, "bronze")


@contextmanager
def _kept(records: DataFrame) -> Iterator[DataFrame]:
    """Keep records for as long as the block runs: they may be written several times."""
    kept = records.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


def _gone(pipeline: Pipeline, done: Backfill, rest: str) -> str:
    ranges = [
        f"{done.topic}-{number} @ {offsets.start}..{offsets.stop - 1}"
        for number, of_partition in sorted(done.gone.items())
        for offsets in of_partition
    ]
    more = [f"and {len(ranges) - _SHOWN} more ranges"] if len(ranges) > _SHOWN else []
    return (
        f"{pipeline.table('bronze')} lacks offsets that were asked for and that Kafka no longer has,"
        f" within {'; '.join([*ranges[:_SHOWN], *more])}. What Kafka still has {rest}."
        " See docs/runbook.md, 'Offsets are gone'"
    )
