"""What a cluster says of a topic's offsets, and how it keeps them."""

import logging
from dataclasses import dataclass
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pipelines.config import KafkaConfig
from pipelines.ops.cluster import find_topic, list_offsets
from pipelines.ops.kafka_admin import Admin, admin_client, cause
from pipelines.quality.broker_offsets import Kept

_POLICY: Final = "cleanup.policy"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TopicOffsets:
    """A topic as its cluster keeps it.

    Attributes:
        topic_id: the cluster's own identifier.
        partitions: the offsets of each partition.
        cleanup_policy: `delete`, `compact` or both; None if the cluster does not say.
    """

    topic_id: str
    partitions: dict[int, Kept]
    cleanup_policy: str | None

    @property
    def is_compacted(self) -> bool:
        """Whether Kafka removes records whose key has come again."""
        return "compact" in (self.cleanup_policy or "")


def topic_offsets(spark: SparkSession, kafka: KafkaConfig) -> TopicOffsets:
    """Asks the cluster for the first and the newest offsets of the topic, and how it is cleaned.

    Raises:
        ConfigError: there is no such topic, or the client refuses its settings.
        InfrastructureError: the cluster does not answer in time.
    """
    topic = find_topic(spark, kafka)
    with admin_client(spark, kafka) as admin:
        earliest = list_offsets(admin, topic, "earliest")
        latest = list_offsets(admin, topic, "latest")
        kept = {number: Kept(first, latest[number]) for number, first in earliest.items()}
        return TopicOffsets(topic.topic_id, kept, _cleanup_policy(admin, topic.name))


def _cleanup_policy(admin: Admin, topic: str) -> str | None:
    config = admin.jvm.org.apache.kafka.common.config
    resource = config.ConfigResource(config.ConfigResource.Type.TOPIC, topic)
    asked = admin.jvm.java.util.Collections.singletonList(resource)
    try:
        found = admin.answer(admin.client.describeConfigs(asked).all())
    except Py4JJavaError as error:
        # That is a right of its own, which a pipeline need not have.
        _log.warning("the cluster does not say how %s is cleaned: %s", topic, cause(error))
        return None
    return str(found.get(resource).get(_POLICY).value())
