"""What Kafka has that ingest has not read: offsets, the time of the first of them, and how fast more come."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as F

from pipelines.delta.io import small_rows
from pipelines.kafka.admin import Admin, admin_client
from pipelines.kafka.source import records_between
from pipelines.kafka.topics import Topic, end_offsets, find_topic, offset_bounds
from pipelines.spark.checkpoints import first_offsets, micro_batches, offsets_of, planned_at
from pipelines.spark.ingest_plans import plan_of, read_until
from pipelines.spark.pipeline import Pipeline

RECENT: Final = timedelta(minutes=5)
USUAL: Final = timedelta(hours=1)
# The first offsets of a partition may be markers of transactions.
_LOOKED_AT: Final = 100
_RETENTION: Final = "retention.ms"
_POLICY: Final = "cleanup.policy"


@dataclass(frozen=True)
class PartitionBacklog:
    """What of a partition ingest has not read.

    Attributes:
        earliest: The first offset that Kafka has.
        position: The first offset that ingest has not read.
        end: The offset after the last record that a reader may see.
        first_at: When the first unread record was appended or sent, by its own timestamp; None without one.
        came: Offsets that came within `RECENT`.
        came_usually: Offsets that came within `USUAL`.
        read: Offsets that ingest read within `RECENT`.
        has_leader: Whether a broker serves it.
        is_in_sync: Whether all of its replicas are in sync.
    """

    earliest: int
    position: int
    end: int
    first_at: datetime | None
    came: int
    came_usually: int
    read: int
    has_leader: bool
    is_in_sync: bool

    @property
    def unread(self) -> int:
        """How many offsets are to be read."""
        return max(self.end - max(self.position, self.earliest), 0)

    @property
    def lost(self) -> int:
        """How many offsets were deleted before they were read."""
        return max(self.earliest - self.position, 0)


@dataclass(frozen=True)
class Backlog:
    """What of a topic ingest has not read.

    Attributes:
        at: When Kafka was asked.
        partitions: By their number.
        retention: How long Kafka keeps a record; None if it does not delete by age, or does not say.
    """

    at: datetime
    partitions: Mapping[int, PartitionBacklog]
    retention: timedelta | None


def backlog(pipeline: Pipeline) -> Backlog:
    """Return what of the topic ingest has not read.

    Raises:
        ConfigError: there is no such topic.
        InfrastructureError: the cluster does not answer.
    """
    spark, kafka = pipeline.spark, pipeline.config.kafka
    # Before Kafka is asked, so that nothing counts as read that is not there yet.
    position, before = read_until(pipeline), _read_before(pipeline, datetime.now(UTC) - RECENT)
    topic = find_topic(spark, kafka)
    ends = end_offsets(spark, kafka, topic)
    with admin_client(spark, kafka) as admin:
        at = datetime.now(UTC)
        bounds = offset_bounds(admin, topic)
        recently, usually = (_offsets_at(admin, topic, at - past) for past in (RECENT, USUAL))
        description = _description(admin, topic)
        retention = _retention(admin, topic)
    starts = {number: position.get(number, _start(pipeline, each)) for number, each in bounds.items()}
    unread = {
        number: range(max(starts[number], each.start), min(ends[number], starts[number] + _LOOKED_AT))
        for number, each in bounds.items()
    }
    first_at = _first_times(pipeline, {number: offsets for number, offsets in unread.items() if offsets})
    partitions = {
        number: PartitionBacklog(
            earliest=each.start,
            position=starts[number],
            end=ends[number],
            first_at=first_at.get(number),
            came=_since(recently[number], each),
            came_usually=_since(usually[number], each),
            read=starts[number] - before.get(number, starts[number]),
            has_leader=description[number][0],
            is_in_sync=description[number][1],
        )
        for number, each in bounds.items()
    }
    return Backlog(at, partitions, retention)


def _read_before(pipeline: Pipeline, moment: datetime) -> dict[int, int]:
    """Return where ingest was at a moment, by its checkpoint; where that begins if it is younger."""
    checkpoint = pipeline.checkpoint("ingest")
    numbers = micro_batches(pipeline.spark, checkpoint)
    low, high = 0, len(numbers)
    # Each look is a file: of a hundred, seven are read.
    while low < high:
        middle = (low + high) // 2
        text = offsets_of(pipeline.spark, checkpoint, numbers[middle])
        if text is not None and planned_at(text) <= moment:
            low = middle + 1
        else:
            high = middle
    if numbers and not low and not numbers[0]:
        return first_offsets(pipeline.spark, checkpoint).get(pipeline.config.kafka.topic, {})
    plan = plan_of(pipeline, numbers[max(low - 1, 0)]) if numbers else None
    return plan.ends if plan else {}


def _start(pipeline: Pipeline, bounds: range) -> int:
    """Return where ingest will begin with a partition of which it has read nothing."""
    return bounds.stop if pipeline.config.kafka.starting_offsets == "latest" else bounds.start


def _offsets_at(admin: Admin, topic: Topic, moment: datetime) -> dict[int, int]:
    """Return the first offset of each partition with a timestamp at a moment or later; -1 without one."""
    spec = admin.jvm.org.apache.kafka.clients.admin.OffsetSpec.forTimestamp(int(moment.timestamp() * 1000))
    request = admin.jvm.java.util.HashMap()
    for number in range(topic.partitions):
        request.put(admin.jvm.org.apache.kafka.common.TopicPartition(topic.name, number), spec)
    offsets = admin.answer(admin.client.listOffsets(request).all())
    return {each.partition(): offsets[each].offset() for each in offsets}


def _since(offset: int, bounds: range) -> int:
    return bounds.stop - max(offset, bounds.start) if offset >= 0 else 0


def _description(admin: Admin, topic: Topic) -> dict[int, tuple[bool, bool]]:
    """Return of each partition whether it has a leader, and whether its replicas are in sync."""
    names = admin.jvm.java.util.Collections.singletonList(topic.name)
    described: Any = admin.answer(admin.client.describeTopics(names).allTopicNames()).get(topic.name)
    return {
        each.partition(): (
            each.leader() is not None and not each.leader().isEmpty(),
            each.isr().size() >= each.replicas().size(),
        )
        for each in described.partitions()
    }


def _retention(admin: Admin, topic: Topic) -> timedelta | None:
    config = admin.jvm.org.apache.kafka.common.config
    resource = config.ConfigResource(config.ConfigResource.Type.TOPIC, topic.name)
    resources = admin.jvm.java.util.Collections.singletonList(resource)
    try:
        configs = admin.answer(admin.client.describeConfigs(resources).all()).get(resource)
    except Py4JJavaError:
        # That is a right of its own, which a pipeline need not have.
        return None
    kept_ms = int(configs.get(_RETENTION).value())
    deletes = "delete" in str(configs.get(_POLICY).value())
    return timedelta(milliseconds=kept_ms) if deletes and kept_ms >= 0 else None


def _first_times(pipeline: Pipeline, ranges: Mapping[int, range]) -> dict[int, datetime]:
    if not ranges:
        return {}
    records = records_between(pipeline.spark, pipeline.config.kafka, ranges)
    first = F.unix_millis(F.min_by("timestamp", "offset")).alias("at")
    rows = small_rows(records.groupBy("partition").agg(first))
    return {row["partition"]: datetime.fromtimestamp(row["at"] / 1000, UTC) for row in rows}
