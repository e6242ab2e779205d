"""The cluster that a sink publishes to: its topics, and the progress of slots, read and written."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from confluent_kafka import (
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from tenacity import (
    retry,
    retry_if_exception_type,
    stop_after_delay,
    wait_random_exponential,
)

from pipelines.config.secret_masking import mask_values
from pipelines.durations import format_interval
from pipelines.errors import ConfigError, InfrastructureError, SourceError
from pipelines.kafka.setting_names import CLEANUP
from pipelines.publishing.progress_reader import all_progress, progress
from pipelines.publishing.slots import SlotProducer, SlotProgress, UnreadableError, send_progress
from pipelines.publishing.transactional_sink import TransactionalSink

_AT_ONCE: Final = 8
_ABORT_S: Final = 5.0
# A record for each slot of a sink is enough; the newest segment, which is not compacted, stays short.
_COMPACTED: Final = {CLEANUP: "compact", "segment.ms": "3600000"}
_MISSING: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_NO_LOGIN: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED)
# With TLS 1.3 a cluster refuses a certificate, or that there is none, once the client takes it for connected.
_ALERT: Final = re.compile(r"SSL alert number (4\d|116)\b")
# What librdkafka says of the endpoint of tokens; of one that cannot be reached these are curl's words.
_UNISSUED: Final = "Failed to acquire SASL OAUTHBEARER token"
_NOT_REACHED: Final = re.compile(r"[Cc]ould not (connect|resolve)|[Tt]imed? ?out|[Cc]onnection (was )?reset")
_NO_RIGHT: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)

_log = logging.getLogger(__name__)

ProgressBySlot = Mapping[int, SlotProgress]
"""What progress says, by slot; slots that have none are left out."""


@dataclass(frozen=True)
class Cluster:
    """A cluster that is published to.

    Attributes:
        client: Asks it.
        timeout_s: How long one answer may take.
    """

    client: AdminClient
    timeout_s: float

    @property
    def client_timeout_s(self) -> float:
        """How long to wait for the client, which says more than that time is over."""
        return self.timeout_s + 5


@contextmanager
def asking(sink: TransactionalSink) -> Iterator[Cluster]:
    """Yield a client of the cluster that a sink publishes to, for some questions.

    Raises:
        ConfigError: Librdkafka refuses its settings; or the cluster refuses login, certificate or rights.
        InfrastructureError: The cluster does not answer, or refuses.
    """
    # A question only says that time is over; why there is no connection is told beside it.
    troubles = list[KafkaError]()
    settings: dict[str, Any] = {**sink.client, "log_level": 0, "error_cb": troubles.append}
    try:
        client = AdminClient(settings)
    except KafkaException as error:
        said = mask_values(librdkafka_error_text(error), _secrets(sink))
        where = f"publish.options, or {sink.login_settings}"
        raise ConfigError(f"{where}: librdkafka refuses them: {said}") from None
    try:
        yield Cluster(client, sink.timeout / timedelta(seconds=1))
    except (KafkaException, TimeoutError) as error:
        client.poll(0)
        raise _explained(sink, error, troubles) from None


def _explained(
    sink: TransactionalSink, error: Exception, troubles: Sequence[KafkaError]
) -> ConfigError | InfrastructureError:
    """Return what a failure of a question means.

    Args:
        sink: Whose cluster was asked.
        error: What the question has failed with.
        troubles: What the client has told of its connections.
    """
    where = f"{sink.client['bootstrap.servers']}: the cluster of the output topic"
    for trouble in troubles:
        if trouble.code() in _NO_LOGIN or _ALERT.search(trouble.str()):
            return _no_login(sink, where, " ".join(trouble.str().split()))
    said = librdkafka_error_text(error)
    first = error.args[0] if error.args else None
    if isinstance(first, KafkaError) and first.code() in _NO_RIGHT:
        return ConfigError(
            f"{where} does not allow it: {sink.command('doctor', '--acls')} lists what each job needs. Kafka"
            f" says: {said}"
        )
    endpoint = sink.client.get("sasl.oauthbearer.token.endpoint.url")
    tokens = f" and {endpoint}" if endpoint else ""
    return InfrastructureError(
        f"{where} does not answer, or refuses: {said}. Check that it is up, that this machine can reach it"
        f"{tokens}, and security.protocol"
    )


def _no_login(sink: TransactionalSink, where: str, said: str) -> ConfigError | InfrastructureError:
    """Return what it means that a client cannot log in.

    Args:
        sink: Whose cluster was asked.
        where: Which cluster that is.
        said: By librdkafka.
    """
    shown = f"librdkafka says: {mask_values(said, _secrets(sink))}"
    if _UNISSUED not in said:
        return ConfigError(
            f"{where} refuses the login, or the TLS handshake fails: check {sink.login_settings}, and whether"
            f" a password was changed, or a certificate is missing or has expired. {shown}"
        )
    # An endpoint that cannot be reached now may be reached in a minute.
    kind = InfrastructureError if _NOT_REACHED.search(said) else ConfigError
    return kind(
        f"{where} was not asked: there is no token for the login. Check the endpoint of tokens, and id and"
        f" secret of the client, see {sink.login_settings}. {shown}"
    )


def _secrets(sink: TransactionalSink) -> list[str]:
    """Return the secrets of a sink: librdkafka repeats what it cannot read."""
    return [str(sink.client[key]) for key in sink.secrets]


def topic_id(cluster: Cluster, topic: str) -> str:
    """Return the cluster's own identifier of a topic: one that is deleted and recreated gets another.

    Raises:
        ConfigError: There is no such topic.
    """
    future = cluster.client.describe_topics(TopicCollection([topic]), request_timeout=cluster.timeout_s)[
        topic
    ]
    try:
        return str(future.result(cluster.client_timeout_s).topic_id)
    except KafkaException as error:
        if error.args[0].code() in _MISSING:
            raise ConfigError(
                f"publish.topic: there is no topic '{topic}'; create it, or name another"
            ) from None
        raise


def ensure_progress_topic(cluster: Cluster, sink: TransactionalSink) -> None:
    """Make sure that the progress topic of a sink has a partition for each slot.

    It gets as many replicas as the output topic has: progress is written in the transactions of rows, so that
    publishing stops when either topic is not there.

    Raises:
        InfrastructureError: It cannot be made.
    """
    topic, slots = sink.progress_topic, sink.slots
    partitions = count_partitions(cluster, topic)
    if partitions:
        _compact(cluster, topic)
    if partitions >= slots:
        return
    client, timeout_s = cluster.client, cluster.timeout_s
    if partitions:
        more = [NewPartitions(topic, slots)]
        future = client.create_partitions(more, request_timeout=timeout_s)[topic]
    else:
        known_partitions(cluster, sink.topic)
        new = [NewTopic(topic, slots, min(_replicas(cluster, sink.topic)), config=_COMPACTED)]
        future = client.create_topics(new, request_timeout=timeout_s)[topic]
    try:
        future.result(cluster.client_timeout_s)
    except KafkaException as error:
        # Another pipeline may have made it, for slots of its own, or has given it more partitions.
        if error.args[0].code() not in (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS):
            raise InfrastructureError(
                f"publish.progress_topic: '{topic}' with {slots} partitions cannot be created:"
                f" {librdkafka_error_text(error)}. Create it by hand, with cleanup.policy=compact"
            ) from None
    _wait_for_partitions(cluster, topic, slots)
    _log.info("topic %s: created with %d partitions, for progress", topic, slots)


def _compact(cluster: Cluster, topic: str) -> None:
    """Make sure that a progress topic of earlier versions, which had no records, does not lose them."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        answers = cluster.client.describe_configs([resource], request_timeout=cluster.timeout_s)
        if answers[resource].result(cluster.client_timeout_s)[CLEANUP].value == "compact":
            return
        compact = ConfigEntry(CLEANUP, "compact", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[compact])
        altered = cluster.client.incremental_alter_configs([resource], request_timeout=cluster.timeout_s)
        altered[resource].result(cluster.client_timeout_s)
        _log.info("topic %s: set cleanup.policy = compact, since it keeps progress", topic)
    except KafkaException as error:
        _log.warning(
            "topic %s: expected cleanup.policy = compact, otherwise progress expires with its records; this"
            " client could not set it: %s",
            *(topic, librdkafka_error_text(error)),
        )


def count_partitions(cluster: Cluster, topic: str) -> int:
    """Return how many partitions a topic has; 0 if it is not there."""
    return len(_replicas(cluster, topic))


def known_partitions(cluster: Cluster, topic: str) -> int:
    """Return how many partitions a topic has that is there.

    Raises:
        InfrastructureError: The broker that was asked does not know them yet.
    """
    if count := count_partitions(cluster, topic):
        return count
    raise InfrastructureError(f"publish.topic: '{topic}' has no partitions yet; start again")


def _replicas(cluster: Cluster, topic: str) -> list[int]:
    """Return how many replicas each partition of a topic has; none if it is not there."""
    metadata = cluster.client.list_topics(timeout=cluster.timeout_s).topics.get(topic)
    if metadata is None or metadata.error:
        return []
    return [len(partition.replicas) for partition in metadata.partitions.values()]


@retry(
    retry=retry_if_exception_type(InfrastructureError),
    wait=wait_random_exponential(multiplier=0.1, max=2),
    stop=stop_after_delay(30),
    reraise=True,
)
def _wait_for_partitions(cluster: Cluster, topic: str, slots: int) -> None:
    if (count := count_partitions(cluster, topic)) < slots:
        raise InfrastructureError(
            f"publish.progress_topic: '{topic}' has {count} partitions, and {slots} are needed; start again"
        )


def read_slot_progress(
    cluster: Cluster, sink: TransactionalSink, *, is_stable: bool = False
) -> dict[int, SlotProgress]:
    """Return what progress says of a sink, also of slots that it had before.

    Args:
        cluster: Where it is kept.
        sink: Whose.
        is_stable: Wait for transactions in progress, instead of leaving them out; for those of other sinks
            only if a record of this one is behind them.

    Raises:
        SourceError: Something else is in the place of progress; the message says how it is repaired.
    """
    partitions = count_partitions(cluster, sink.progress_topic)
    if not partitions:
        return {}
    try:
        return all_progress(sink.connection, sink.slots, partitions, is_stable=is_stable)
    except UnreadableError as error:
        raise SourceError(f"{sink.name}: {error}. {sink.to_repair}") from None


def read_repairable_progress(
    cluster: Cluster, sink: TransactionalSink, *, is_stable: bool
) -> dict[int, SlotProgress]:
    """Return what progress says of a sink, as `read_slot_progress`, for who writes it anew.

    Of a slot where something else is in the place of its progress it says that it is lost.
    """
    partitions = count_partitions(cluster, sink.progress_topic)
    if not partitions:
        return {}
    lost = SlotProgress(0, "", "", sink.slots, is_lost=True)
    marks = all_progress(sink.connection, sink.slots, partitions, is_stable=is_stable, unreadable=lost)
    # A slot that the sink has not is one of more slots.
    return {slot: replace(mark, slots=max(mark.slots, slot + 1)) for slot, mark in marks.items()}


def fence_slots(sink: TransactionalSink, marks: ProgressBySlot) -> dict[int, SlotProducer]:
    """Take all slots, those that an earlier run had among them: no task of it can commit from now on.

    Raises:
        KafkaException: The cluster does not answer, or refuses.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(enumerate(pool.map(sink.connection.take, slots_to_take(sink.slots, marks))))


def slots_to_take(slots: int, marks: ProgressBySlot) -> range:
    """Return the slots that a sink has, or that it had before by what progress says."""
    return range(max([slots, *(mark.slots for mark in marks.values()), *(slot + 1 for slot in marks)]))


def end_transactions(sink: TransactionalSink, run: str) -> None:
    """End what tasks of a run have left open, as far as the cluster answers.

    Another run that has the slots by now keeps them, with its transactions.
    """
    try:
        marks = progress(sink.connection, range(sink.slots), is_stable=False)
        if all(mark.run == run for mark in marks.values()):
            fence_slots(sink, {})
    except (KafkaException, InfrastructureError) as error:
        _log.warning(
            "%s: open transactions were not ended: %s; the cluster ends them after %s",
            *(sink.name, librdkafka_error_text(error), format_interval(sink.transaction_timeout)),
        )


def write_slot_progress(
    sink: TransactionalSink, taken: Mapping[int, SlotProducer], marks: ProgressBySlot
) -> None:
    """Write progress, as a task would, so that it fails if somebody has taken the slot since.

    Args:
        sink: Whose.
        taken: Producers that have taken the slots, such as those of `fence_slots`.
        marks: What progress is to say.

    Raises:
        KafkaException: The cluster does not answer, or publishing goes on elsewhere.
    """
    timeout_s = sink.connection.timeout_s
    consumer = sink.connection.consumer()
    group = consumer.consumer_group_metadata()

    def write(slot: int) -> None:
        taken[slot].begin_transaction()
        try:
            send_progress(taken[slot], sink.connection, slot, marks[slot], group)
            taken[slot].commit_transaction(timeout_s)
        except KafkaException:
            # An open transaction would hide what follows from readers until its time is over.
            with suppress(KafkaException):
                taken[slot].abort_transaction(_ABORT_S)
            raise

    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(write, marks))
    finally:
        consumer.close()


def librdkafka_error_text(error: Exception) -> str:
    """Return what Kafka says of a failure."""
    first = error.args[0] if error.args else "no answer in time"
    return str(first.str() if isinstance(first, KafkaError) else first)
