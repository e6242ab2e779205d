"""What the Kafka cluster says of a topic, asked through the client in Spark's own JVM."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pipelines.config.kafka import KafkaConfig
from pipelines.config.model import PipelineConfig
from pipelines.delta.record_tables import topic_of_bronze, topics_of_bronze
from pipelines.delta.table_properties import set_table_property, to_hex, topic_key
from pipelines.errors import ConfigError, SourceError
from pipelines.kafka.admin import Admin, admin_client
from pipelines.kafka.client_errors import kafka_error_text
from pipelines.spark.pipeline import Pipeline

_MISSING: Final = "UnknownTopicOrPartitionException"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Topic:
    """A topic as its cluster describes it.

    Attributes:
        name: Its name.
        topic_id: The cluster's own identifier: a topic that is deleted and recreated gets another.
        partitions: How many partitions it has.
    """

    name: str
    topic_id: str
    partitions: int


def find_topic(
    spark: SparkSession, kafka: KafkaConfig, topic: str | None = None, setting: str | None = None
) -> Topic:
    """Ask the cluster for the topic.

    Args:
        spark: The session, whose JVM has the Kafka client.
        kafka: The address, the topic and how long to wait.
        topic: Another topic than `kafka.topic`.
        setting: Where the user has named it, for messages; `topic` of the cluster if it is None.

    Raises:
        ConfigError: There is no such topic, or the client refuses its settings.
        InfrastructureError: The cluster does not answer in time, or its name is not found.
    """
    topic_name = topic or kafka.topic
    with admin_client(spark, kafka) as admin:
        return topic_of(describe_topic(admin, kafka, topic_name, setting))


def describe_topic(
    admin: Admin, kafka: KafkaConfig, topic: str, setting: str | None = None, *options: Any
) -> Any:
    """Return what the cluster says of a topic, as Kafka's own `TopicDescription`.

    Args:
        admin: A client of the cluster.
        kafka: The address, for messages.
        topic: The topic.
        setting: Where the user has named it, for messages; `topic` of the cluster if it is None.
        options: Kafka's own `DescribeTopicsOptions`, if there are any.

    Raises:
        ConfigError: There is no such topic.
        Py4JJavaError: The cluster refuses, or does not answer in time.
    """
    try:
        return admin.describe_topic(topic, *options)
    except Py4JJavaError as error:
        if _MISSING in str(error.java_exception):
            raise ConfigError(
                f"{setting or kafka.setting('topic')}: there is no topic '{topic}' at"
                f" {kafka.bootstrap_servers}; create it, or name another"
            ) from None
        raise


def has_leader(partition: Any) -> bool:
    """Return whether a partition has a leader, by Kafka's own `TopicPartitionInfo`."""
    return partition.leader() is not None and not partition.leader().isEmpty()


def topic_of(description: Any) -> Topic:
    """Return the topic that Kafka's own `TopicDescription` describes."""
    return Topic(description.name(), description.topicId().toString(), description.partitions().size())


def end_offsets(spark: SparkSession, kafka: KafkaConfig, topic: Topic) -> dict[int, int]:
    """Return the offset after the last record of each partition that a reader may see now.

    Raises:
        InfrastructureError: The cluster does not answer in time.
    """
    with admin_client(spark, kafka) as admin:
        return list_offsets(admin, topic, "latest", isolation_options(admin, kafka))


def isolation_options(admin: Admin, kafka: KafkaConfig) -> Any:
    """Return Kafka's own options that ask for the ends that the pipeline's isolation level sees."""
    level = admin.jvm.org.apache.kafka.common.IsolationLevel.valueOf(kafka.isolation_level.upper())
    return admin.jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(level)


def offset_bounds(admin: Admin, topic: Topic) -> dict[int, range]:
    """Return the offsets that Kafka has of each partition: the earliest, and up to the end offset.

    Args:
        admin: A client of the cluster.
        topic: The topic.

    Returns:
        A range by partition; it is empty where there is no record, and then begins at the end offset.

    Raises:
        Py4JJavaError: The cluster refuses, or does not answer in time.
    """
    earliest = list_offsets(admin, topic, "earliest")
    latest = list_offsets(admin, topic, "latest")
    return {number: range(first, latest[number]) for number, first in earliest.items()}


def list_offsets(
    admin: Admin,
    topic: Topic,
    which: Literal["earliest", "latest"] | datetime,
    *options: Any,
    partitions: Iterable[int] | None = None,
) -> dict[int, int]:
    """Return the earliest offset, the end offset, or the first offset at or after a time, by partition.

    Args:
        admin: A client of the cluster.
        topic: The topic.
        which: Of these offsets; since a time, a partition to which nothing came has -1.
        options: Kafka's own `ListOffsetsOptions`, if there are any.
        partitions: Which partitions, if not all: one without a leader has no answer before time is over.

    Raises:
        Py4JJavaError: The cluster refuses, or does not answer in time.
    """
    specs = admin.jvm.org.apache.kafka.clients.admin.OffsetSpec
    if isinstance(which, datetime):
        spec = specs.forTimestamp(int(which.timestamp() * 1000))
    else:
        spec = getattr(specs, which)()
    request = admin.jvm.java.util.HashMap()
    for number in range(topic.partitions) if partitions is None else partitions:
        request.put(admin.jvm.org.apache.kafka.common.TopicPartition(topic.name, number), spec)
    offsets = admin.get(admin.client.listOffsets(request, *options).all())
    return {each.partition(): int(offsets[each].offset()) for each in offsets}


def topic_settings(admin: Admin, topic: str, names: Iterable[str]) -> dict[str, str]:
    """Return settings of a topic; empty without the ACL DescribeConfigs."""
    config = admin.jvm.org.apache.kafka.common.config
    resource = config.ConfigResource(config.ConfigResource.Type.TOPIC, topic)
    resources = admin.jvm.java.util.Collections.singletonList(resource)
    try:
        found = admin.get(admin.client.describeConfigs(resources).all()).get(resource)
    except Py4JJavaError as error:
        _log.warning("the settings of %s are unknown: %s", topic, kafka_error_text(error))
        return {}
    return {name: str(found.get(name).value()) for name in names if found.get(name) is not None}


def require_same_topic(pipeline: Pipeline, topic: Topic) -> None:
    """Make sure that the topic is the one that bronze was filled from; the first one is remembered.

    Raises:
        SourceError: It is another, or bronze knows it as that of another cluster.
    """
    bronze, kafka = pipeline.table("bronze"), pipeline.config.kafka
    stored = topic_of_bronze(pipeline)
    if stored == topic.topic_id:
        return
    others = [name for name, known in topics_of_bronze(pipeline).items() if known == topic.topic_id]
    if others:
        name = others[0] or "the first cluster"
        raise SourceError(
            f"{kafka.setting('bootstrap_servers')}: found topic '{topic.name}' with id {topic.topic_id},"
            f" which {bronze} knows as that of {name}: clusters were renamed or swapped, or this address is"
            " that of the same cluster. Ingesting it would duplicate its records under other coordinates."
            " Nothing was read or certified. Give each cluster the name that it had; see docs/clusters.md,"
            " 'Names'"
        )
    if stored is None:
        set_table_property(pipeline.spark, bronze, topic_key(kafka.cluster), to_hex(topic.topic_id))
    else:
        refuse_other_topic(pipeline.config, stored, topic)


def refuse_other_topic(config: PipelineConfig, stored: str, topic: Topic) -> None:
    """Compare the id of a topic with the one that bronze has stored.

    Raises:
        SourceError: They differ.
    """
    if stored != topic.topic_id:
        raise SourceError(
            f"{config.kafka.setting('topic')}: '{topic.name}' is not the topic that {config.table('bronze')}"
            f" was filled from: found id {topic.topic_id}, expected {stored}. It was deleted and recreated,"
            " or the address is that of another cluster. See docs/runbook.md, 'The topic was recreated'"
        )


def require_known_clusters(pipeline: Pipeline) -> None:
    """Make sure that the configuration has each cluster that bronze was filled from.

    Else nobody would ask that cluster whether bronze has all of its records.

    Raises:
        SourceError: It lacks one.
    """
    configured = {source.cluster for source in pipeline.config.sources()}
    lacking = sorted(name for name in topics_of_bronze(pipeline) if name and name not in configured)
    if lacking:
        raise SourceError(
            f"{pipeline.table('bronze')} was filled from clusters that kafka.clusters does not have: found"
            f" {', '.join(lacking)}, expected {', '.join(filter(None, configured)) or 'none'}. No day"
            " was certified. Add them to kafka.clusters again, under the same names; if a cluster is lost for"
            " good, with retired: true. See docs/clusters.md, 'Names'"
        )
