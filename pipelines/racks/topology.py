"""Where the replicas of a topic are, by rack, as its cluster reports them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pipelines.config.kafka import KafkaConfig
from pipelines.kafka.admin import Admin, admin_client
from pipelines.kafka.client_errors import kafka_error_text
from pipelines.kafka.topics import describe_topic

_SELECTOR: Final = "replica.selector.class"


@dataclass(frozen=True)
class Partition:
    """One partition, by the ids of brokers.

    Attributes:
        number: Its number.
        leader: The broker that takes its records; None if there is none at present.
        replicas: The brokers that ought to hold it, the preferred leader first.
        in_sync: Those that hold all of it.
        size: Bytes that the leader holds; 0 if it may not be asked.
    """

    number: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class TopicReplicas:
    """A topic and the racks of its cluster.

    Attributes:
        name: The topic.
        racks: The rack of each broker, by its id; None if it names none.
        selectors: `replica.selector.class` of each broker, by its id; empty if it has none. Without it
            consumers read from leaders alone. None if the brokers may not be asked.
        partitions: The topic's partitions, in order.
    """

    name: str
    racks: Mapping[int, str | None]
    selectors: Mapping[int, str] | None
    partitions: tuple[Partition, ...]

    def racks_of(self, partition: Partition) -> set[str]:
        """Return the racks in which a partition can be read; followers count if the leader has a selector."""
        leader = () if partition.leader is None else (partition.leader,)
        is_sent = self.selectors is None or any(self.selectors.get(broker) for broker in leader)
        readable = partition.in_sync if is_sent else leader
        return {rack for broker in readable if (rack := self.racks.get(broker))}


def describe_racks(spark: SparkSession, kafka: KafkaConfig) -> TopicReplicas:
    """Ask the cluster for the racks of the pipeline's topic.

    Args:
        spark: The session, whose JVM has the Kafka client.
        kafka: The address, the topic and how long to wait.

    Raises:
        ConfigError: There is no such topic, or the client refuses its settings.
        InfrastructureError: The cluster does not answer in time.
    """
    with admin_client(spark, kafka) as admin:
        description = describe_topic(admin, kafka, kafka.topic)
        racks, name = _racks(admin), description.name()
        sizes = _sizes(admin, list(racks), name)
        partitions = tuple(_partition(each, sizes) for each in description.partitions())
        return TopicReplicas(name, racks, _selectors(admin, list(racks)), partitions)


def broker_racks(spark: SparkSession, kafka: KafkaConfig) -> dict[int, str | None]:
    """Return the rack of each broker, by its id; None if it names none.

    Raises:
        ConfigError: The client refuses its settings.
        InfrastructureError: The cluster does not answer in time.
    """
    with admin_client(spark, kafka) as admin:
        return _racks(admin)


def _racks(admin: Admin) -> dict[int, str | None]:
    # Any collection of Java's that is no list is nothing to iterate over here.
    nodes = admin.jvm.java.util.ArrayList(admin.get(admin.client.describeCluster().nodes()))
    racks = {node.id(): node.rack() for node in nodes}
    return dict(sorted(racks.items()))


def _partition(describe: Any, sizes: Mapping[tuple[int, int], int]) -> Partition:
    number, leader = describe.partition(), describe.leader()
    leader_id = None if leader is None or leader.id() < 0 else leader.id()
    return Partition(
        number,
        leader_id,
        tuple(node.id() for node in describe.replicas()),
        tuple(sorted(node.id() for node in describe.isr())),
        sizes.get((leader_id, number), 0) if leader_id is not None else 0,
    )


def _selectors(admin: Admin, brokers: list[int]) -> dict[int, str] | None:
    resource = admin.jvm.org.apache.kafka.common.config.ConfigResource
    kind = getattr(admin.jvm, "org.apache.kafka.common.config.ConfigResource$Type").BROKER
    resources = {number: resource(kind, str(number)) for number in brokers}
    try:
        resource_list = admin.jvm.java.util.ArrayList()
        for each in resources.values():
            resource_list.add(each)
        configs = admin.get(admin.client.describeConfigs(resource_list).all())
        entries = {number: configs.get(each).get(_SELECTOR) for number, each in resources.items()}
    except Py4JJavaError as error:
        if "Authorization" in kafka_error_text(error):
            return None
        raise
    return {number: (entry.value() or "") if entry is not None else "" for number, entry in entries.items()}


def _sizes(admin: Admin, brokers: list[int], topic: str) -> dict[tuple[int, int], int]:
    """Return bytes by broker and partition; nothing if the brokers may not be asked."""
    broker_ids = admin.jvm.java.util.ArrayList()
    for number in brokers:
        broker_ids.add(number)
    try:
        log_dirs = admin.get(admin.client.describeLogDirs(broker_ids).allDescriptions())
    except Py4JJavaError as error:
        if "Authorization" in kafka_error_text(error):
            return {}
        raise
    sizes: dict[tuple[int, int], int] = {}
    for number in brokers:
        for folder in (log_dirs.get(number) or {}).values():
            for partition, replica in folder.replicaInfos().items():
                if partition.topic() == topic:
                    sizes[number, partition.partition()] = replica.size()
    return sizes
