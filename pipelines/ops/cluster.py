"""What the Kafka cluster says of a topic, asked through the client in Spark's own JVM."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pipelines.config import KafkaConfig, PipelineConfig
from pipelines.errors import ConfigError, InfrastructureError, SourceError
from pipelines.ops.failures import first_line
from pipelines.sinks.tables import hidden, set_table_property, shown, table_property
from pipelines.sources.kafka import client_options

TOPIC_ID: Final = "oncelake.kafka.topicId"
_MISSING: Final = "UnknownTopicOrPartitionException"
_UNRESOLVED: Final = "No resolvable bootstrap urls"

Ask = Callable[[Any], Any]


@dataclass(frozen=True)
class Topic:
    """A topic as its cluster describes it.

    Attributes:
        name: its name.
        topic_id: the cluster's own identifier: a topic that is deleted and made anew gets another.
        partitions: how many partitions it has.
    """

    name: str
    topic_id: str
    partitions: int


def find_topic(
    spark: SparkSession, kafka: KafkaConfig, topic: str | None = None, setting: str = "kafka.topic"
) -> Topic:
    """Asks the cluster for the topic.

    Args:
        spark: the session, whose JVM has the Kafka client.
        kafka: the address, the topic and how long to wait.
        topic: another topic than `kafka.topic`.
        setting: where the user has named it, for messages.

    Raises:
        ConfigError: there is no such topic, or the client refuses its settings.
        InfrastructureError: the cluster does not answer in time, or its name is not found.
    """
    wanted = topic or kafka.topic
    jvm: Any = spark.sparkContext._jvm
    names = jvm.java.util.Collections.singletonList(wanted)
    with _admin(spark, kafka) as (admin, answer):
        try:
            found = answer(admin.describeTopics(names).allTopicNames()).get(wanted)
        except Py4JJavaError as error:
            if _MISSING in str(error.java_exception):
                raise ConfigError(
                    f"{setting}: there is no topic '{wanted}' at {kafka.bootstrap_servers};"
                    " create it, or name another"
                ) from None
            raise
        return Topic(wanted, found.topicId().toString(), found.partitions().size())


def end_offsets(spark: SparkSession, kafka: KafkaConfig, topic: Topic) -> dict[int, int]:
    """The offset after the last record of each partition that a reader may see now.

    Raises:
        InfrastructureError: the cluster does not answer in time.
    """
    jvm: Any = spark.sparkContext._jvm
    wanted = jvm.java.util.HashMap()
    for partition in range(topic.partitions):
        key = jvm.org.apache.kafka.common.TopicPartition(topic.name, partition)
        wanted.put(key, jvm.org.apache.kafka.clients.admin.OffsetSpec.latest())
    level = jvm.org.apache.kafka.common.IsolationLevel.valueOf(kafka.isolation_level.upper())
    options = jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(level)
    with _admin(spark, kafka) as (admin, answer):
        found = answer(admin.listOffsets(wanted, options).all())
        return {key.partition(): found.get(key).offset() for key in found.keySet()}


def require_same_topic(spark: SparkSession, config: PipelineConfig, topic: Topic) -> None:
    """Makes sure that the topic is the one that bronze was filled from; the first one is remembered.

    Raises:
        SourceError: it is another.
    """
    bronze = config.table("bronze")
    known = table_property(spark, bronze, TOPIC_ID)
    if known is None:
        set_table_property(spark, bronze, TOPIC_ID, hidden(topic.topic_id))
    elif shown(known) != topic.topic_id:
        raise SourceError(
            f"kafka.topic: '{topic.name}' is not the topic that {bronze} was filled from: found id"
            f" {topic.topic_id}, expected {shown(known)}. It was deleted and made anew, or the address is"
            " that of another cluster. See docs/runbook.md, 'The topic was made anew'"
        )


@contextmanager
def _admin(spark: SparkSession, kafka: KafkaConfig) -> Iterator[tuple[Any, Ask]]:
    """A client of the cluster, and a function that waits for an answer of it."""
    jvm: Any = spark.sparkContext._jvm
    timeout_ms = kafka.connect_timeout // timedelta(milliseconds=1)
    properties = jvm.java.util.Properties()
    for key, value in client_options(kafka).items():
        if key != "isolation.level":
            properties.setProperty(key, value)
    properties.setProperty("default.api.timeout.ms", str(timeout_ms))
    properties.setProperty("request.timeout.ms", str(timeout_ms))
    where = f"kafka.bootstrap_servers: {kafka.bootstrap_servers}"
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
    except Py4JJavaError as error:
        said = f"{where}: the Kafka client refuses to start: {_cause(error)}"
        # A name that is not found today may be found again in a minute.
        raise (InfrastructureError if _UNRESOLVED in said else ConfigError)(said) from None
    try:
        yield admin, lambda future: future.get(timeout_ms, jvm.java.util.concurrent.TimeUnit.MILLISECONDS)
    except Py4JJavaError as error:
        raise InfrastructureError(
            f"{where}: no answer within {timeout_ms / 1000:g} s ({_cause(error)});"
            " is the cluster up, may this machine reach it, and does it want another security.protocol in"
            " kafka.options?"
        ) from None
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(1))


def _cause(error: Py4JJavaError) -> str:
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return first_line(str(cause.toString()))
