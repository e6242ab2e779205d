"""Reads the progress of slots, on the driver."""

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition
from tenacity import retry, retry_if_exception, stop_after_delay, wait_random_exponential

from pipelines.errors import InfrastructureError
from pipelines.sinks.slots import Connection, Mark

_PASSING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _PASSING


@retry(
    retry=retry_if_exception(_may_pass),
    wait=wait_random_exponential(multiplier=0.1, max=2),
    stop=stop_after_delay(30),
    reraise=True,
)
def progress(connection: Connection, slots: Iterable[int], *, is_stable: bool) -> dict[int, Mark]:
    """What progress says of slots; those that have none are left out.

    Where the group's offsets have expired, or were deleted, the records of the progress topic tell.

    Args:
        connection: to the cluster that keeps it.
        slots: their numbers.
        is_stable: wait for transactions that are under way, instead of leaving them out.

    Raises:
        KafkaException: the cluster does not answer, or refuses.
        InfrastructureError: records of the progress topic do not come.
    """
    # A consumer, since librdkafka's AdminClient crashes when it asks a coordinator that has just moved
    # (list_consumer_group_offsets of 2.16.0: it looks for a consumer that it is not).
    consumer = connection.consumer(is_stable=is_stable)
    try:
        places = [TopicPartition(connection.progress_topic, slot) for slot in slots]
        found = {each.partition: Mark.of(each) for each in consumer.committed(places, connection.timeout_s)}
    finally:
        consumer.close()
    if forgotten := [slot for slot, mark in found.items() if mark is None]:
        found |= _records(connection, forgotten, is_stable=is_stable)
    return {slot: mark for slot, mark in sorted(found.items()) if mark}


def _records(connection: Connection, slots: list[int], *, is_stable: bool) -> dict[int, Mark | None]:
    """The newest record of a sink in each of some partitions of its progress topic, of those committed."""
    topic, found = connection.progress_topic, dict[int, Mark | None]()
    left = _ends(connection, slots) if is_stable else dict.fromkeys(slots, 0)
    patience_s = connection.transaction_timeout_ms / 1000 if is_stable else connection.timeout_s
    until = time.monotonic() + patience_s
    consumer = connection.consumer()
    try:
        consumer.assign([TopicPartition(topic, slot, OFFSET_BEGINNING) for slot in slots])
        while left:
            if time.monotonic() > until:
                raise InfrastructureError(
                    f"{connection.name}: records of partition {min(left)} of topic '{topic}' do not come: an"
                    " open transaction hides them, or it has no leader. Start again when that has ended"
                    " (kafka-transactions.sh find-hanging)"
                )
            # Its stubs allow None wherever a record that is none has nothing.
            message: Any = consumer.poll(1.0)
            if message is None:
                continue
            error, slot = message.error(), message.partition()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            # Readers of committed records are told of an end where a transaction is open.
            if error is not None and message.offset() >= left.get(slot, 0):
                left.pop(slot, None)
            if error is None:
                until = time.monotonic() + patience_s
                if message.key() == connection.name.encode():
                    # A record without a value takes progress back.
                    value = message.value()
                    found[slot] = Mark.of_record(value) if value is not None else None
    finally:
        consumer.close()
    return found


def _ends(connection: Connection, slots: Iterable[int]) -> dict[int, int]:
    """Where each partition of the progress topic ends, behind all that is under way."""
    consumer = connection.consumer(is_stable=False)
    try:
        places = {slot: TopicPartition(connection.progress_topic, slot) for slot in slots}
        return {
            slot: consumer.get_watermark_offsets(place, connection.timeout_s)[1]
            for slot, place in places.items()
        }
    finally:
        consumer.close()
