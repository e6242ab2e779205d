"""How a cluster keeps a topic, and what this client may do with it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import SparkSession

from pipelines.config.kafka import KafkaConfig
from pipelines.kafka.admin import Admin, admin_client
from pipelines.kafka.setting_names import (
    CLEANUP,
    IN_SYNC,
    LARGEST,
    RETENTION,
    RETENTION_BYTES,
    STAMPS,
    UNCLEAN,
)
from pipelines.kafka.topics import describe_topic, has_leader, list_offsets, topic_of, topic_settings

_SETTINGS: Final = (CLEANUP, IN_SYNC, LARGEST, RETENTION, RETENTION_BYTES, STAMPS, UNCLEAN)
_BY_BROKER: Final = "LogAppendTime"


@dataclass(frozen=True)
class TopicState:
    """A topic as its cluster keeps it.

    Attributes:
        name: Its name.
        topic_id: The cluster's own identifier.
        settings: Its settings, by Kafka's names; empty if this client may not ask for them.
        operations: What this client may do with it, by Kafka's names, such as `READ`; None if the cluster
            does not say.
        earliest: The first offset of each partition that has a leader.
        ends: The offset after the last of each partition that has a leader, also of open transactions.
        appended_at: When the broker took the newest record, by its own clock; None where producers set the
            time, or there is no record.
    """

    name: str
    topic_id: str
    settings: Mapping[str, str]
    operations: frozenset[str] | None
    earliest: Mapping[int, int]
    ends: Mapping[int, int]
    appended_at: datetime | None = None

    def number(self, setting: str) -> int | None:
        """Return a setting as a number; None if it is not known."""
        text = self.settings.get(setting)
        return None if text is None else int(text)


def read_topic_state(
    spark: SparkSession, kafka: KafkaConfig, topic: str | None = None, setting: str | None = None
) -> TopicState:
    """Ask the cluster how it keeps a topic.

    Args:
        spark: The session, whose JVM has the Kafka client.
        kafka: The address, the topic and how long to wait.
        topic: Another topic than `kafka.topic`.
        setting: Where the user has named it, for messages; `topic` of the cluster if it is None.

    Raises:
        ConfigError: There is no such topic, or the client refuses its settings.
        InfrastructureError: The cluster does not answer in time.
    """
    with admin_client(spark, kafka) as admin:
        options = admin.jvm.org.apache.kafka.clients.admin.DescribeTopicsOptions()
        options.includeAuthorizedOperations(True)
        description = describe_topic(admin, kafka, topic or kafka.topic, setting, options)
        found = topic_of(description)
        led = [each.partition() for each in description.partitions() if has_leader(each)]
        settings = topic_settings(admin, found.name, _SETTINGS)
        by_broker = settings.get(STAMPS) == _BY_BROKER
        return TopicState(
            found.name,
            found.topic_id,
            settings,
            _operations(admin, description),
            list_offsets(admin, found, "earliest", partitions=led),
            list_offsets(admin, found, "latest", partitions=led),
            _newest(admin, found.name, led) if by_broker and led else None,
        )


def _operations(admin: Admin, description: Any) -> frozenset[str] | None:
    operations = description.authorizedOperations()
    # Any collection of Java's that is no list is nothing to iterate over here.
    return (
        None
        if operations is None
        else frozenset(each.name() for each in admin.jvm.java.util.ArrayList(operations))
    )


def _newest(admin: Admin, topic: str, partitions: list[int]) -> datetime | None:
    """Return the newest timestamp of a topic's records; None if there is none."""
    request = admin.jvm.java.util.HashMap()
    for number in partitions:
        request.put(
            admin.jvm.org.apache.kafka.common.TopicPartition(topic, number),
            admin.jvm.org.apache.kafka.clients.admin.OffsetSpec.maxTimestamp(),
        )
    answers = admin.get(admin.client.listOffsets(request).all())
    newest = max(int(answers[each].timestamp()) for each in answers)
    return datetime.fromtimestamp(newest / 1000, UTC) if newest >= 0 else None
