"""Checks whether a cluster is configured for exactly-once publishing."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource

from pipelines.config.publish import Retraction
from pipelines.config.risks import refusal
from pipelines.durations import format_interval
from pipelines.errors import ConfigError
from pipelines.kafka.setting_names import (
    CLEANUP,
    IN_SYNC,
    LARGEST,
    UNCLEAN,
)
from pipelines.publishing.cluster import Cluster, librdkafka_error_text
from pipelines.publishing.transactional_sink import TransactionalSink

_OPEN_FOR: Final = "transaction.max.timeout.ms"
_KEPT_FOR: Final = "offsets.retention.minutes"
_KEPT_AT_LEAST: Final = timedelta(days=1)
_LIMITS: Final = {
    _OPEN_FOR: timedelta(milliseconds=1),
    "transactional.id.expiration.ms": timedelta(milliseconds=1),
    _KEPT_FOR: timedelta(minutes=1),
}
_SETTINGS: Final = (CLEANUP, IN_SYNC, UNCLEAN)
_NOT_ALLOWED: Final = (KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED)
_KEEPS_PROGRESS: Final = ("__consumer_offsets", "__transaction_state")


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClusterFacts:
    """What a cluster reports about itself; what it may not be asked is left out.

    Attributes:
        brokers: How many it has.
        limits: `transaction.max.timeout.ms`, `transactional.id.expiration.ms` and
            `offsets.retention.minutes`, by these names, as one of the brokers has them.
        settings: `cleanup.policy`, `min.insync.replicas` and `unclean.leader.election.enable` of the output
            topic, by these names.
        replicas: How often the output topic and those that keep progress are kept, by name: of each the
            partition that has the fewest replicas.
        partitions: Of the output topic; 0 if its brokers do not tell of it.
        max_message_bytes: The largest record that the output topic takes (`max.message.bytes`); None if it
            may not be asked.
    """

    brokers: int
    limits: Mapping[str, timedelta]
    settings: Mapping[str, str]
    replicas: Mapping[str, int]
    partitions: int = 0
    max_message_bytes: int | None = None


def facts(cluster: Cluster, topic: str) -> ClusterFacts:
    """Ask a cluster for what matters to a sink.

    Args:
        cluster: The cluster.
        topic: The output topic.

    Raises:
        KafkaException: The cluster does not answer.
    """
    metadata = cluster.client.list_topics(timeout=cluster.timeout_s)
    limits = _configured(cluster, ConfigResource(ConfigResource.Type.BROKER, str(min(metadata.brokers))))
    settings = _configured(cluster, ConfigResource(ConfigResource.Type.TOPIC, topic))
    return ClusterFacts(
        brokers=len(metadata.brokers),
        limits={name: int(limits[name]) * unit for name, unit in _LIMITS.items() if name in limits},
        settings={name: settings[name] for name in _SETTINGS if name in settings},
        replicas={
            name: min(len(partition.replicas) for partition in metadata.topics[name].partitions.values())
            for name in (topic, *_KEEPS_PROGRESS)
            if name in metadata.topics and metadata.topics[name].partitions
        },
        partitions=len(metadata.topics[topic].partitions) if topic in metadata.topics else 0,
        max_message_bytes=int(settings[LARGEST]) if LARGEST in settings else None,
    )


def advice(sink: TransactionalSink, retraction: Retraction, cluster_facts: ClusterFacts) -> list[str]:
    """Return what is wrong with a cluster for a sink, in words; each has what was found and how to fix it.

    Args:
        sink: The sink.
        retraction: What is sent for an event that is not in its certified day.
        cluster_facts: What the cluster reports.
    """
    return [
        *_of_limits(cluster_facts.limits),
        *_of_topic(sink.topic, retraction, cluster_facts),
        *_of_replicas(cluster_facts),
    ]


def refuse_too_long(sink: TransactionalSink, cluster_facts: ClusterFacts) -> None:
    """Make sure that the cluster allows transactions as long as a sink asks for.

    Raises:
        ConfigError: It would refuse all of them.
    """
    allowed = cluster_facts.limits.get(_OPEN_FOR)
    if allowed is not None and sink.transaction_timeout > allowed:
        raise ConfigError(
            f"publish.transaction_timeout: expected {format_interval(allowed)} at most, which the cluster"
            f" allows ({_OPEN_FOR}), got {format_interval(sink.transaction_timeout)}"
        )


def refuse_idle_slots(sink: TransactionalSink, cluster_facts: ClusterFacts) -> None:
    """Make sure that each slot has a partition, before a stream begins.

    Raises:
        ConfigError: There are more slots than partitions.
    """
    partitions = cluster_facts.partitions
    if partitions and sink.slots > partitions:
        expected = f"{partitions} at most, the partitions of topic '{sink.topic}'"
        raise ConfigError(f"publish.slots: {refusal('slots_over_partitions', str(sink.slots), expected)}")


def _of_limits(limits: Mapping[str, timedelta]) -> list[str]:
    retention = limits.get(_KEPT_FOR)
    if retention is None or retention >= _KEPT_AT_LEAST:
        return []
    warning = (
        f"{_KEPT_FOR}: found {format_interval(retention)}: a stream that is stopped for longer than this"
        " reads its progress from the records of the progress topic, which takes longer; a week is usual"
    )
    return [warning]


def _of_topic(topic: str, retraction: Retraction, cluster_facts: ClusterFacts) -> list[str]:
    warnings = []
    cleanup, in_sync = cluster_facts.settings.get(CLEANUP), cluster_facts.settings.get(IN_SYNC)
    if cleanup is not None and "compact" not in cleanup and retraction == "tombstone":
        warnings.append(
            f"topic {topic}: found {CLEANUP} = {cleanup}: a record without a value removes an event only"
            " if the topic is compacted; set it to compact, or set publish.retraction to record"
        )
    replicas = cluster_facts.replicas.get(topic)
    if in_sync is not None and replicas is not None and int(in_sync) > replicas > 1:
        warnings.append(
            f"topic {topic}: found {IN_SYNC} = {in_sync}, but a partition has {replicas} replica(s): all of"
            " them must be in sync for a record to be accepted; add replicas, or lower the setting"
        )
    if in_sync == "1" and replicas is not None and replicas > 1:
        warnings.append(
            f"topic {topic}: found {IN_SYNC} = 1: rows that only one broker has count as published, and are"
            " lost with that broker; 2 is usual with 3 replicas"
        )
    if cluster_facts.settings.get(UNCLEAN) == "true":
        warnings.append(
            f"topic {topic}: found {UNCLEAN} = true: a replica that lacks rows may become the leader, and"
            " these rows are lost; set it to false"
        )
    return warnings


def _of_replicas(cluster_facts: ClusterFacts) -> list[str]:
    # A single broker has no place for a second replica.
    once = [
        name
        for name, replicas in cluster_facts.replicas.items()
        if replicas == 1 and cluster_facts.brokers > 1
    ]
    return [
        f"topic {name}: found 1 replica: if its broker is lost,"
        f" {'the progress of publishing is' if name in _KEEPS_PROGRESS else 'the rows are'} lost, too;"
        " 3 are usual"
        for name in once
    ]


def _configured(cluster: Cluster, resource: ConfigResource) -> dict[str, str]:
    future = cluster.client.describe_configs([resource], request_timeout=cluster.timeout_s)[resource]
    try:
        values = future.result(cluster.client_timeout_s)
    except KafkaException as error:
        if error.args[0].code() not in _NOT_ALLOWED:
            # Advice is not worth a start that would go well while one broker is away.
            _log.warning(
                "%s %s: its configuration cannot be read: %s",
                resource.restype.name,
                resource.name,
                librdkafka_error_text(error),
            )
        return {}
    return {key: entry.value for key, entry in values.items() if entry.value is not None}
