"""What a cluster says of a topic's offsets, and how it keeps them."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from pipelines.config.kafka import KafkaConfig
from pipelines.delta.io import small_rows
from pipelines.kafka.admin import admin_client
from pipelines.kafka.setting_names import CLEANUP
from pipelines.kafka.source import offsets_between
from pipelines.kafka.topics import (
    Topic,
    describe_topic,
    isolation_options,
    list_offsets,
    offset_bounds,
    topic_of,
    topic_settings,
)

LOOKED_AT_FIRST: Final = 1_000
"""How many offsets of a partition are looked at first, where one record is enough."""
MORE_EACH_TIME: Final = 100
"""How many times as many are looked at next."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BrokerOffsets:
    """What Kafka has of a partition: its earliest offset, and the one after its newest."""

    earliest: int
    end: int


@dataclass(frozen=True)
class TopicOffsets:
    """A topic as its cluster keeps it.

    Attributes:
        topic_id: The cluster's own identifier.
        partitions: The offsets of each partition.
        cleanup_policy: `delete`, `compact` or both; None if the cluster does not say.
    """

    topic_id: str
    partitions: dict[int, BrokerOffsets]
    cleanup_policy: str | None

    @property
    def is_compacted(self) -> bool:
        """Whether Kafka removes records whose key has come again."""
        return "compact" in (self.cleanup_policy or "")


def topic_offsets(spark: SparkSession, kafka: KafkaConfig) -> TopicOffsets:
    """Ask the cluster for the first and the newest offsets of the topic, and how it is cleaned.

    Raises:
        ConfigError: There is no such topic, or the client refuses its settings.
        InfrastructureError: The cluster does not answer in time.
    """
    with admin_client(spark, kafka) as admin:
        topic = topic_of(describe_topic(admin, kafka, kafka.topic))
        bounds = offset_bounds(admin, topic)
        partitions = {number: BrokerOffsets(each.start, each.stop) for number, each in bounds.items()}
        settings = topic_settings(admin, topic.name, [CLEANUP])
        return TopicOffsets(topic.topic_id, partitions, settings.get(CLEANUP))


def readable_offsets(spark: SparkSession, kafka: KafkaConfig, topic: Topic) -> dict[int, BrokerOffsets]:
    """Return the first offset of each partition, and the one after the last that the pipeline may read now.

    Raises:
        InfrastructureError: The cluster does not answer in time.
    """
    with admin_client(spark, kafka) as admin:
        ends = list_offsets(admin, topic, "latest", isolation_options(admin, kafka))
        earliest = list_offsets(admin, topic, "earliest")
    return {number: BrokerOffsets(earliest[number], end) for number, end in ends.items()}


def records_within(
    spark: SparkSession, kafka: KafkaConfig, ranges: Mapping[int, range], *, stop_at_first: bool = False
) -> dict[int, int]:
    """Return how many records Kafka gives within ranges of offsets, as ingest would get them.

    There are none where these are transaction markers, records of aborted transactions, or were compacted.

    Args:
        spark: The session.
        kafka: The configuration.
        ranges: The offsets of each partition that is asked for; Kafka must still cover them.
        stop_at_first: Ask for the beginning of a range first, and for no more of it once there is a record:
            what is counted is then at least one.

    Returns:
        The records of each partition where there are any.
    """
    left = {number: offsets for number, offsets in ranges.items() if offsets}
    counts, width = dict[int, int](), LOOKED_AT_FIRST if stop_at_first else None
    while left:
        batch_ranges = {number: offsets[:width] for number, offsets in left.items()}
        batch_counts = offsets_between(spark, kafka, batch_ranges).groupBy("_partition").count()
        counts |= {row["_partition"]: row["count"] for row in small_rows(batch_counts)}
        if width is None:
            break
        rest = {number: offsets[width:] for number, offsets in left.items() if number not in counts}
        left = {number: offsets for number, offsets in rest.items() if offsets}
        width *= MORE_EACH_TIME
    return counts
