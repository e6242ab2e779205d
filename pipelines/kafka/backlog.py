"""What Kafka has that ingest has not read: offsets, the time of the first of them, and how fast more come."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from pipelines.delta.io import small_rows
from pipelines.delta.tables import exists
from pipelines.kafka.admin import Admin, admin_client
from pipelines.kafka.ingest_position import continuation
from pipelines.kafka.ingest_state import SparkIngestState
from pipelines.kafka.setting_names import CLEANUP, RETENTION
from pipelines.kafka.source import records_between
from pipelines.kafka.topics import (
    Topic,
    find_topic,
    has_leader,
    isolation_options,
    list_offsets,
    topic_settings,
)
from pipelines.spark.checkpoints import (
    first_offsets,
    micro_batches,
    offsets_of,
    planned_at,
    query_files,
)
from pipelines.spark.failures import cause
from pipelines.spark.ingest_plans import plan_of, read_until
from pipelines.spark.pipeline import Pipeline

RECENT: Final = timedelta(minutes=5)
USUAL: Final = timedelta(hours=1)
# The first offsets of a partition may be markers of transactions.
_LOOKED_AT: Final = 100

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PartitionBacklog:
    """What of a partition ingest has not read.

    Attributes:
        earliest: The first offset that Kafka has.
        position: The first offset that ingest has not read.
        end: The offset after the last record that a reader may see.
        log_end: The offset after the last one, also of open transactions.
        first_at: When the first unread record was appended or sent, by its own timestamp; None if unknown.
        dated_from: The first offset that is dated in the last `RECENT`, `log_end` if there is none.
        usual_from: The first offset that is dated in the last `USUAL`, `log_end` if there is none.
        rate_out: Offsets that ingest has read each second in about `RECENT`; None if unknown.
        end_before: Where ingest was before the last `RECENT`; None if it had not begun, or has not run since.
    """

    earliest: int
    position: int
    end: int
    log_end: int
    first_at: datetime | None
    dated_from: int
    usual_from: int
    rate_out: float | None
    end_before: int | None = None

    @property
    def unread(self) -> int:
        """How many offsets are to be read."""
        return max(self.end - max(self.position, self.earliest), 0)

    @property
    def lost(self) -> int:
        """How many offsets were deleted before they were read."""
        return max(self.earliest - self.position, 0)

    @property
    def ahead(self) -> int:
        """How many offsets ingest has read that Kafka does not have."""
        return max(self.position - self.log_end, 0)

    @property
    def recent_from(self) -> int:
        """The first offset that came in the last `RECENT`, `log_end` if nothing came.

        Producers choose the dates. What ingest had read before had come before, even if it is dated later.
        """
        return max(self.dated_from, min(self.end_before or 0, self.log_end))

    @property
    def hidden(self) -> int:
        """How many offsets an open transaction hides that began before the last `RECENT`."""
        # By dates alone one that began just now may seem to be as old.
        has_moved = self.end_before is not None and self.end > self.end_before
        return self.log_end - self.end if self.end < self.recent_from and not has_moved else 0

    @property
    def rate_in(self) -> float:
        """Offsets that came each second in the last `RECENT`."""
        return (self.log_end - self.recent_from) / RECENT.total_seconds()

    @property
    def usual_rate_in(self) -> float:
        """Offsets that came each second in the time before that, back to `USUAL`."""
        return max(self.recent_from - self.usual_from, 0) / (USUAL - RECENT).total_seconds()


@dataclass(frozen=True)
class Backlog:
    """What of a topic ingest has not read.

    Attributes:
        at: When Kafka was asked.
        topic: Which topic it was.
        partitions: By their number, those that have a leader.
        offline: Those that have none, of which nothing is known.
        under_replicated: Those with a replica that is not in sync.
        leaders: The id of the broker that leads each of `partitions`.
        moved: Those that are led by another broker than that of their first replica.
        retention: How long Kafka keeps a record; None if it does not delete by age, or does not say.
    """

    at: datetime
    topic: Topic
    partitions: Mapping[int, PartitionBacklog]
    offline: tuple[int, ...]
    under_replicated: tuple[int, ...]
    leaders: Mapping[int, int]
    moved: tuple[int, ...]
    retention: timedelta | None


class _Before(NamedTuple):
    """Where ingest was some time ago."""

    ends: Mapping[int, int]
    at: datetime


@dataclass(frozen=True)
class _Offsets:
    """What Kafka says of the offsets of some partitions."""

    earliest: Mapping[int, int]
    end: Mapping[int, int]
    log_end: Mapping[int, int]
    recent: Mapping[int, int]
    usual: Mapping[int, int]


def backlog(pipeline: Pipeline) -> Backlog:
    """Return what of the topic ingest has not read.

    Raises:
        ConfigError: There is no such topic.
        SourceError: The checkpoint was reset, and bronze has offsets that Kafka has not.
        InfrastructureError: The cluster does not answer.
    """
    spark, kafka = pipeline.spark, pipeline.config.kafka
    # Before Kafka is asked, so that nothing counts as read that is not there yet.
    position, before = read_until(pipeline), _read_before(pipeline, datetime.now(UTC) - RECENT)
    topic = find_topic(spark, kafka)
    with admin_client(spark, kafka) as admin:
        described = _described(admin, topic)
        offline = tuple(number for number, each in described.items() if not has_leader(each))
        led = [number for number in described if number not in offline]
        at = datetime.now(UTC)
        offsets = _asked(admin, pipeline, topic, led, at)
        retention = _retention(admin, topic)
    starts = {number: position.get(number, -1) for number in led}
    if unknown := [number for number, start in starts.items() if start < 0]:
        starts |= _first_starts(pipeline, topic, offsets, unknown)
    partitions = _partitions(pipeline, offsets, starts, before, at - RECENT)
    under = tuple(number for number, each in described.items() if each.isr().size() < each.replicas().size())
    leaders = {number: int(described[number].leader().id()) for number in led}
    moved = tuple(
        number for number, leader in leaders.items() if described[number].replicas().get(0).id() != leader
    )
    return Backlog(at, topic, partitions, offline, under, leaders, moved, retention)


def _partitions(
    pipeline: Pipeline,
    offsets: _Offsets,
    starts: Mapping[int, int],
    before: _Before | None,
    recent: datetime,
) -> dict[int, PartitionBacklog]:
    unread = {
        number: range(first, min(offsets.end[number], first + _LOOKED_AT))
        for number, start in starts.items()
        if (first := max(start, offsets.earliest[number])) < offsets.end[number]
    }
    first_at = _first_times(pipeline, unread)
    seconds = (datetime.now(UTC) - before.at).total_seconds() if before else 0.0
    return {
        number: PartitionBacklog(
            earliest=offsets.earliest[number],
            position=start,
            end=offsets.end[number],
            log_end=offsets.log_end[number],
            first_at=first_at.get(number),
            dated_from=offsets.recent[number],
            usual_from=offsets.usual[number],
            rate_out=max(start - before.ends.get(number, offsets.earliest[number]), 0) / seconds
            if before
            else None,
            # Of short micro-batches the checkpoint may keep those of less than `RECENT`.
            end_before=before.ends.get(number) if before and before.at <= recent else None,
        )
        for number, start in starts.items()
    }


def _read_before(pipeline: Pipeline, moment: datetime) -> _Before | None:
    """Return where ingest was at a moment, or where its checkpoint begins; None if it has done nothing."""
    spark, checkpoint = pipeline.spark, pipeline.checkpoint("ingest")
    following = query_files(spark, checkpoint).next_batch
    numbers = [number for number in micro_batches(spark, checkpoint) if number < following]
    low, high = 0, len(numbers)
    # Each look is a file: of a hundred, seven are read.
    while low < high:
        middle = (low + high) // 2
        text = offsets_of(spark, checkpoint, numbers[middle])
        # One that was deleted meanwhile is old.
        if text is None or planned_at(text) <= moment:
            low = middle + 1
        else:
            high = middle
    plan = plan_of(pipeline, numbers[max(low - 1, 0)]) if numbers else None
    if plan and not low and not numbers[0]:
        began = first_offsets(spark, checkpoint).get(pipeline.config.kafka.topic, {})
        return _Before(began, min(plan.at, moment))
    return _Before(plan.ends, plan.at) if plan else None


def _first_starts(
    pipeline: Pipeline, topic: Topic, offsets: _Offsets, partitions: Sequence[int]
) -> dict[int, int]:
    """Return where ingest begins with partitions of which it has done nothing."""
    spark, checkpoint = pipeline.spark, pipeline.checkpoint("ingest")
    files = query_files(spark, checkpoint)
    starts: Mapping[int, int | None] = {}
    if files.query is not None:
        # A partition that was added since is read from its first offset.
        starts = first_offsets(spark, checkpoint).get(pipeline.config.kafka.topic, {})
    elif exists(spark, pipeline.table("bronze")):
        starts = continuation(SparkIngestState(pipeline, topic)).starts
    elif pipeline.config.kafka.starting_offsets == "latest":
        starts = offsets.log_end
    known = {number: starts.get(number) for number in partitions}
    return {number: offsets.earliest[number] if at is None else at for number, at in known.items()}


def _described(admin: Admin, topic: Topic) -> dict[int, Any]:
    """Return what Kafka says of each partition, as `TopicPartitionInfo`."""
    return {each.partition(): each for each in admin.describe_topic(topic.name).partitions()}


def _asked(
    admin: Admin, pipeline: Pipeline, topic: Topic, partitions: Sequence[int], at: datetime
) -> _Offsets:
    """Ask for offsets of partitions that have a leader; of others there is no answer until it is too late."""
    earliest = list_offsets(admin, topic, "earliest", partitions=partitions)
    log_end = list_offsets(admin, topic, "latest", partitions=partitions)
    visible = isolation_options(admin, pipeline.config.kafka)
    end = list_offsets(admin, topic, "latest", visible, partitions=partitions)

    def since(moment: datetime) -> dict[int, int]:
        found = list_offsets(admin, topic, moment, partitions=partitions)
        return {number: log_end[number] if first < 0 else first for number, first in found.items()}

    return _Offsets(earliest, end, log_end, since(at - RECENT), since(at - USUAL))


def _retention(admin: Admin, topic: Topic) -> timedelta | None:
    settings = topic_settings(admin, topic.name, [RETENTION, CLEANUP])
    kept_ms = int(settings.get(RETENTION, -1))
    return timedelta(milliseconds=kept_ms) if "delete" in settings.get(CLEANUP, "") and kept_ms >= 0 else None


def _first_times(pipeline: Pipeline, ranges: Mapping[int, range]) -> dict[int, datetime]:
    """Return the timestamps of the first records within ranges.

    Those that have none, or one that a date cannot hold, are left out.
    """
    if not ranges:
        return {}
    records = records_between(pipeline.spark, pipeline.config.kafka, ranges)
    first = F.unix_millis(F.min_by("timestamp", "offset")).alias("at")
    try:
        rows = small_rows(records.groupBy("partition").agg(first))
    except (PySparkException, Py4JJavaError) as error:
        # Kafka may have deleted them since it was asked where they begin; or a right to read them lacks.
        _log.warning("how old the unread records are is unknown: %s", cause(error))
        return {}
    times = {row["partition"]: _time(row["at"]) for row in rows}
    return {number: at for number, at in times.items() if at}


def _time(ms: int) -> datetime | None:
    """Return a timestamp of Kafka, which is a number that producers choose; None if no date can hold it."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
