"""What a cluster knows of a sink's progress, and whether that goes with the checkpoint of its stream."""

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql import SparkSession
from tenacity import retry, retry_if_exception, stop_after_delay, wait_random_exponential

from pipelines.errors import ConfigError, InfrastructureError, SourceError
from pipelines.ops.query_files import QueryFiles, query_files
from pipelines.sinks.kafka_transactional import Publisher, TransactionalSink
from pipelines.sinks.slots import Mark

_AT_ONCE: Final = 8
_GROUP_ABSENT: Final = (KafkaError.GROUP_ID_NOT_FOUND,)
_PASSING: Final = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
)
_MISSING: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)

_log = logging.getLogger(__name__)

Marks = Mapping[int, Mark]
"""What progress says, by slot; slots that have none are left out."""


@dataclass(frozen=True)
class Cluster:
    """A cluster that is published to.

    Attributes:
        client: asks it.
        timeout_s: how long one answer may take.
    """

    client: AdminClient
    timeout_s: float


def publisher(spark: SparkSession, sink: TransactionalSink, checkpoint: str) -> Publisher:
    """Holds the cluster's progress against a stream's checkpoint, and makes what publishes the stream.

    Args:
        spark: the session.
        sink: where the stream goes.
        checkpoint: the path of the checkpoint with which it will be started.

    Returns:
        A function for `foreachBatch`.

    Raises:
        ConfigError: there is no such topic, or librdkafka refuses its settings.
        SourceError: progress and checkpoint do not go together; the message says what to do.
        InfrastructureError: the cluster does not answer.
    """
    files = query_files(spark, checkpoint)
    with asking(sink) as cluster:
        topic = topic_id(cluster, sink.topic)
        make_progress_topic(cluster, sink.progress_topic, sink.slots)
        # Refused, if it has to be, before those who had the slots are shut out: they may be another's.
        known = marks(cluster, sink)
        agree(sink, topic, known, files)
        shut_out(sink, known)
        if mark := agree(sink, topic, marks(cluster, sink, is_stable=True), files):
            write_marks(cluster, sink, mark)
    return Publisher(sink, topic)


def shut_out(sink: TransactionalSink, known: Marks) -> None:
    """Ends what is left of earlier runs: none of their tasks can commit from now on.

    Raises:
        KafkaException: the cluster does not answer, or refuses.
    """
    slots = max([sink.slots, *(mark.slots for mark in known.values())])
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(sink.connection.take, range(slots)))


@contextmanager
def asking(sink: TransactionalSink) -> Iterator[Cluster]:
    """A client of the cluster that a sink publishes to, for some questions.

    Raises:
        ConfigError: librdkafka refuses its settings.
        InfrastructureError: the cluster does not answer, or refuses.
    """
    try:
        client = AdminClient({**sink.client, "log_level": 0})
    except KafkaException as error:
        raise ConfigError(f"publish.options: librdkafka refuses them: {said(error)}") from None
    try:
        yield Cluster(client, sink.timeout / timedelta(seconds=1))
    except KafkaException as error:
        raise InfrastructureError(
            f"{sink.client['bootstrap.servers']}: the cluster that is published to does not answer, or"
            f" refuses: {said(error)}. Is it up, may this machine reach it, and does it want another"
            " security.protocol in publish.options?"
        ) from None


def topic_id(cluster: Cluster, topic: str) -> str:
    """The cluster's own identifier of a topic: one that is deleted and made anew gets another.

    Raises:
        ConfigError: there is no such topic.
    """
    asked = cluster.client.describe_topics(TopicCollection([topic]), request_timeout=cluster.timeout_s)[topic]
    try:
        return str(asked.result(cluster.timeout_s).topic_id)
    except KafkaException as error:
        if error.args[0].code() in _MISSING:
            raise ConfigError(
                f"publish.topic: there is no topic '{topic}'; create it, or name another"
            ) from None
        raise


def make_progress_topic(cluster: Cluster, topic: str, slots: int) -> None:
    """Sees to it that a topic has a partition for each slot, as committing offsets needs it.

    Raises:
        InfrastructureError: it cannot be made.
    """
    known = cluster.client.list_topics(timeout=cluster.timeout_s).topics.get(topic)
    partitions = len(known.partitions) if known and not known.error else 0
    if partitions >= slots:
        return
    if partitions:
        made = cluster.client.create_partitions([NewPartitions(topic, slots)])[topic]
    else:
        made = cluster.client.create_topics([NewTopic(topic, slots)])[topic]
    try:
        made.result(cluster.timeout_s)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return
        raise InfrastructureError(
            f"publish.progress_topic: '{topic}' with {slots} partitions cannot be made: {said(error)}."
            " Make it by hand; it never gets a record"
        ) from None
    _log.info("topic %s: made with %d partitions, for progress", topic, slots)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _PASSING


@retry(
    retry=retry_if_exception(_may_pass),
    wait=wait_random_exponential(multiplier=0.1, max=2),
    stop=stop_after_delay(30),
    reraise=True,
)
def marks(cluster: Cluster, sink: TransactionalSink, *, is_stable: bool = False) -> dict[int, Mark]:
    """What progress says of a sink.

    Args:
        cluster: where it is kept.
        sink: whose.
        is_stable: refuse to answer while transactions are under way, instead of leaving them out.
    """
    asked = [ConsumerGroupTopicPartitions(sink.name)]
    try:
        found = cluster.client.list_consumer_group_offsets(
            asked, require_stable=is_stable, request_timeout=cluster.timeout_s
        )[sink.name].result(cluster.timeout_s)
    except KafkaException as error:
        if error.args[0].code() in _GROUP_ABSENT:
            return {}
        raise
    known = {
        each.partition: Mark.of(each) for each in found.topic_partitions if each.topic == sink.progress_topic
    }
    return {slot: mark for slot, mark in sorted(known.items()) if mark}


def write_marks(cluster: Cluster, sink: TransactionalSink, mark: Mark | None) -> None:
    """Writes the same progress for each slot, and forgets that of others; None forgets all."""
    if marks(cluster, sink):
        cluster.client.delete_consumer_groups([sink.name])[sink.name].result(cluster.timeout_s)
    if mark:
        offsets = [mark.commit(sink.progress_topic, slot) for slot in range(sink.slots)]
        asked = [ConsumerGroupTopicPartitions(sink.name, offsets)]
        cluster.client.alter_consumer_group_offsets(asked)[sink.name].result(cluster.timeout_s)


def agree(sink: TransactionalSink, topic: str, known: Marks, files: QueryFiles) -> Mark | None:
    """Holds progress against the checkpoint, before a stream starts.

    Args:
        sink: as the stream will publish.
        topic: the id of the topic.
        known: what progress says.
        files: what the checkpoint says.

    Returns:
        What is to be written as progress of all slots first; None if it is right as it is.

    Raises:
        SourceError: they do not go together; the message says what to do.
    """
    if files.query is None:
        if known:
            raise SourceError(
                f"{sink.name}: the cluster has progress of a stream that published to '{sink.topic}' before,"
                f" but its checkpoint {files.path} is not there. {_WHO} {_FROM_THE_BEGINNING}"
            )
        return None
    if not known:
        return _without_progress(sink, topic, files)
    one = next(iter(known.values()))
    if any(mark.source != files.query for mark in known.values()):
        raise SourceError(
            f"{sink.name}: progress is that of another checkpoint: found query {one.source}, expected"
            f" {files.query} of {files.path}. {_WHO} {_FROM_THE_BEGINNING}"
        )
    if any(mark.topic_id != topic for mark in known.values()):
        raise SourceError(
            f"{sink.name}: topic '{sink.topic}' was made anew, or is another, since it was published to:"
            f" found id {topic}, expected {one.topic_id}. {_FROM_THE_BEGINNING} {_GO_ON}"
        )
    if any(mark.slots != sink.slots for mark in known.values()):
        if files.in_flight is None:
            return Mark(files.next_batch, files.query, topic, sink.slots)
        raise SourceError(
            f"{sink.name}: publish.slots: found {sink.slots}, but micro-batch {files.in_flight} was begun"
            f" with {one.slots}. Finish it with that number (publish_stream --once --set"
            f" publish.slots={one.slots}), then change it"
        )
    if files.next_batch and len(known) < sink.slots:
        return _without_progress(sink, topic, files)
    fits = {files.next_batch, files.next_batch + 1} if files.in_flight is not None else {files.next_batch}
    if odd := sorted({mark.next_batch for mark in known.values()} - fits):
        raise SourceError(
            f"{sink.name}: progress is at micro-batch {', '.join(map(str, odd))}, but the checkpoint"
            f" {files.path} at {files.next_batch}: one of the two was restored from a backup. {_GO_ON}"
        )
    return None


def _without_progress(sink: TransactionalSink, topic: str, files: QueryFiles) -> Mark | None:
    if files.in_flight is None:
        if files.next_batch == 0:
            return None
        _log.warning(
            "%s: the cluster has forgotten the progress (offsets.retention.minutes?); nothing was under way,"
            " so it is written again",
            sink.name,
        )
        return Mark(files.next_batch, str(files.query), topic, sink.slots)
    if files.in_flight == 0:
        return None
    raise SourceError(
        f"{sink.name}: the cluster has forgotten the progress (offsets.retention.minutes?) while micro-batch"
        f" {files.in_flight} was under way, so nobody knows whether it was published. Look into topic"
        f" '{sink.topic}'. {_GO_ON}"
    )


def said(error: KafkaException) -> str:
    """What Kafka says of a failure."""
    return str(error.args[0].str() if isinstance(error.args[0], KafkaError) else error)


_WHO: Final = (
    "Either another deployment publishes under the same pipeline and environment (give one of them another"
    " --env), or the checkpoint was lost or made anew."
)
_FROM_THE_BEGINNING: Final = (
    "Restore it, or publish all rows of the speed layer once more: oncelake publish reset --to beginning."
)
_GO_ON: Final = (
    "To go on from the checkpoint: oncelake publish reset --to checkpoint --in-flight published|unpublished."
)
