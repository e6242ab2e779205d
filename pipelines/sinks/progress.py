"""Reads the progress of slots, on the driver."""

from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException, TopicPartition
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
    return {slot: mark for slot, mark in sorted(found.items()) if mark}
