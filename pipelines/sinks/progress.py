"""Reads the progress of slots, on the driver."""

from collections.abc import Iterable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition
from tenacity import retry, retry_if_exception, stop_after_delay, wait_random_exponential

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
        found |= _records(connection, forgotten)
    return {slot: mark for slot, mark in sorted(found.items()) if mark}


def _records(connection: Connection, slots: list[int]) -> dict[int, Mark | None]:
    """The newest record of a sink in each of some partitions of its progress topic, of those committed."""
    topic, found = connection.progress_topic, dict[int, Mark | None]()
    consumer = connection.consumer()
    try:
        left = {*slots}
        consumer.assign([TopicPartition(topic, slot, OFFSET_BEGINNING) for slot in slots])
        while left:
            # Its stubs allow None wherever a record that is none has nothing.
            message: Any = consumer.poll(connection.timeout_s)
            if message is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no records of {topic} came"))
            error = message.error()
            if error is None and message.key() == connection.name.encode():
                # A record without a value takes progress back.
                value = message.value()
                found[message.partition()] = Mark.of_record(value) if value is not None else None
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            elif error is not None:
                raise KafkaException(error)
    finally:
        consumer.close()
    return found
