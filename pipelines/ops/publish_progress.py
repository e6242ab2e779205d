"""What a cluster knows of a sink's progress, and whether that goes with the checkpoint of its stream."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql import SparkSession
from tenacity import (
    retry,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_delay,
    wait_random_exponential,
)

from pipelines.errors import ConfigError, InfrastructureError, SourceError
from pipelines.ops.query_files import QueryFiles, query_files, write_note
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

    @property
    def patience_s(self) -> float:
        """How long to wait for the client, which says more than that time is over."""
        return self.timeout_s + 5


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
    with asking(sink) as cluster:
        topic = topic_id(cluster, sink.topic)
        make_progress_topic(cluster, sink.progress_topic, sink.slots)
        # Refused, if it has to be, before those who had the slots are shut out: they may be another's.
        known = marks(cluster, sink)
        refuse_others(sink, topic, known, query_files(spark, checkpoint))
        taken = take_all(sink, known)
        # Nothing of earlier runs can commit from now on, so what is read now stays.
        files, known = query_files(spark, checkpoint), marks(cluster, sink, is_stable=True)
        if mark := agree(sink, topic, known, files):
            write_marks(sink, taken, dict.fromkeys(range(sink.slots), mark))
        write_note(spark, checkpoint, {"topic_id": topic})
    return Publisher(sink, topic, files.next_batch - (files.in_flight is None))


def take_all(sink: TransactionalSink, known: Marks) -> list[Producer]:
    """Takes all slots, those that an earlier run had among them: no task of it can commit from now on.

    Raises:
        KafkaException: the cluster does not answer, or refuses.
    """
    slots = max([sink.slots, *(mark.slots for mark in known.values())])
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(sink.connection.take, range(slots)))


def write_marks(sink: TransactionalSink, taken: Sequence[Producer], wanted: Marks) -> None:
    """Writes progress, as a task would, so that it fails if somebody has taken the slot since.

    Args:
        sink: whose.
        taken: the producers of `take_all`.
        wanted: what progress is to say.

    Raises:
        KafkaException: the cluster does not answer, or publishing goes on elsewhere.
    """
    timeout_s = sink.connection.timeout_s
    consumer = sink.connection.consumer()
    try:
        group = consumer.consumer_group_metadata()
        for slot, mark in wanted.items():
            taken[slot].begin_transaction()
            offsets = [mark.commit(sink.progress_topic, slot)]
            taken[slot].send_offsets_to_transaction(offsets, group, timeout_s)
            taken[slot].commit_transaction(timeout_s)
    finally:
        consumer.close()


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
    except (KafkaException, TimeoutError) as error:
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
        return str(asked.result(cluster.patience_s).topic_id)
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
    partitions = _partitions(cluster, topic)
    if partitions >= slots:
        return
    if partitions:
        made = cluster.client.create_partitions(
            [NewPartitions(topic, slots)], request_timeout=cluster.timeout_s
        )[topic]
    else:
        made = cluster.client.create_topics([NewTopic(topic, slots)], request_timeout=cluster.timeout_s)[
            topic
        ]
    try:
        made.result(cluster.patience_s)
    except KafkaException as error:
        # Another pipeline may have made it, for slots of its own.
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise InfrastructureError(
                f"publish.progress_topic: '{topic}' with {slots} partitions cannot be made: {said(error)}."
                " Make it by hand; it never gets a record"
            ) from None
    _wait_for_partitions(cluster, topic, slots)
    _log.info("topic %s: made with %d partitions, for progress", topic, slots)


def _partitions(cluster: Cluster, topic: str) -> int:
    known = cluster.client.list_topics(timeout=cluster.timeout_s).topics.get(topic)
    return len(known.partitions) if known and not known.error else 0


@retry(
    retry=retry_if_exception_type(InfrastructureError),
    wait=wait_random_exponential(multiplier=0.1, max=2),
    stop=stop_after_delay(30),
    reraise=True,
)
def _wait_for_partitions(cluster: Cluster, topic: str, slots: int) -> None:
    if (found := _partitions(cluster, topic)) < slots:
        raise InfrastructureError(
            f"publish.progress_topic: '{topic}' has {found} partitions, and {slots} are needed; start again"
        )


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
        )[sink.name].result(cluster.patience_s)
    except KafkaException as error:
        if error.args[0].code() in _GROUP_ABSENT:
            return {}
        raise
    known = {
        each.partition: Mark.of(each) for each in found.topic_partitions if each.topic == sink.progress_topic
    }
    return {slot: mark for slot, mark in sorted(known.items()) if mark}


def refuse_others(sink: TransactionalSink, topic: str, known: Marks, files: QueryFiles) -> None:
    """Makes sure that progress is that of this checkpoint and this topic, whatever it says.

    Args:
        sink: as the stream will publish.
        topic: the id of the topic.
        known: what progress says.
        files: what the checkpoint says.

    Raises:
        SourceError: it is another's; the message says what to do.
    """
    known = _current(known)
    begun = [mark for mark in known.values() if mark.source]
    if files.query is None:
        if begun:
            raise SourceError(
                f"{sink.name}: the cluster has progress of a stream that published to '{sink.topic}' before,"
                f" but its checkpoint {files.path} is not there. {_WHO} {_FROM_THE_BEGINNING}"
            )
        return
    for mark in begun:
        if mark.source != files.query:
            raise SourceError(
                f"{sink.name}: progress is that of another checkpoint: found query {mark.source}, expected"
                f" {files.query} of {files.path}. {_WHO} {_FROM_THE_BEGINNING}"
            )
    others = {mark.topic_id for mark in known.values()} | {files.note.get("topic_id", topic)}
    if others - {topic}:
        raise SourceError(
            f"{sink.name}: topic '{sink.topic}' was made anew, or is another, or lies on another cluster,"
            f" since it was published to: found id {topic}, expected {', '.join(sorted(others - {topic}))}."
            f" {_FROM_THE_BEGINNING} {_GO_ON}"
        )


def agree(sink: TransactionalSink, topic: str, known: Marks, files: QueryFiles) -> Mark | None:
    """Holds progress against the checkpoint, when nobody can change it any more.

    Args:
        sink: as the stream will publish.
        topic: the id of the topic.
        known: what progress says, of stable offsets.
        files: what the checkpoint says.

    Returns:
        What is to be written as progress of all slots first; None if it is right as it is.

    Raises:
        SourceError: they do not go together; the message says what to do.
    """
    refuse_others(sink, topic, known, files)
    ours = Mark(files.next_batch, files.query or "", topic, sink.slots)
    if not known:
        return _without_progress(sink, ours, files)
    current = _current(known)
    slots = current[min(current)].slots
    fits = {files.next_batch, files.next_batch + 1} if files.in_flight is not None else {files.next_batch}
    if odd := sorted({mark.next_batch for mark in current.values()} - fits):
        raise SourceError(
            f"{sink.name}: progress is at micro-batch {', '.join(map(str, odd))}, but the checkpoint"
            f" {files.path} at {files.next_batch}: one of the two was restored from a backup. {_GO_ON}"
        )
    if slots != sink.slots or any(mark.slots != slots for mark in current.values()):
        if files.in_flight is None:
            return ours
        raise SourceError(
            f"{sink.name}: publish.slots: found {sink.slots}, but micro-batch {files.in_flight} was begun"
            f" with {slots}. Finish it with that number (publish_stream --once --set"
            f" publish.slots={slots}), then change it"
        )
    return _without_progress(sink, ours, files) if len(current) < slots else None


def _current(known: Marks) -> Marks:
    """Progress without that of slots that there are no more."""
    slots = known[min(known)].slots if known else 0
    return {slot: mark for slot, mark in known.items() if slot < slots}


def fits_in(mark: Mark | None, ours: Mark) -> bool:
    """Whether progress of a slot can be right while a micro-batch is under way.

    Args:
        mark: what progress says.
        ours: what it would say if nothing of that micro-batch was published.
    """
    return mark in (ours, replace(ours, next_batch=ours.next_batch + 1))


def _without_progress(sink: TransactionalSink, ours: Mark, files: QueryFiles) -> Mark:
    if files.in_flight is not None:
        raise SourceError(
            f"{sink.name}: the cluster has forgotten progress (offsets.retention.minutes?) while micro-batch"
            f" {files.in_flight} was under way, so nobody knows whether it was published. Look into topic"
            f" '{sink.topic}'. {_GO_ON}"
        )
    if files.next_batch:
        _log.warning(
            "%s: the cluster has forgotten the progress (offsets.retention.minutes?); nothing was under way,"
            " so it is written again",
            sink.name,
        )
        return ours
    # Which query it will be is not known before it runs.
    return replace(ours, source="")


def said(error: Exception) -> str:
    """What Kafka says of a failure."""
    first = error.args[0] if error.args else "no answer in time"
    return str(first.str() if isinstance(first, KafkaError) else first)


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
