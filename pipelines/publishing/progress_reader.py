"""Reads the progress of slots, on the driver."""

from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from tenacity import retry, retry_if_exception, stop_after_delay, wait_random_exponential

from pipelines.publishing.progress_records import recorded_progress
from pipelines.publishing.slots import SlotConnection, SlotProgress, UnreadableError

_PASSING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _PASSING


_tried_again = retry(
    retry=retry_if_exception(_may_pass),
    wait=wait_random_exponential(multiplier=0.1, max=2),
    stop=stop_after_delay(30),
    reraise=True,
)


@_tried_again
def progress(connection: SlotConnection, slots: Iterable[int], *, is_stable: bool) -> dict[int, SlotProgress]:
    """Return what progress says of slots; those that have none are left out.

    If the group's offsets have expired, or were deleted, the records of the progress topic are read.

    Args:
        connection: To the cluster that keeps it.
        slots: Their numbers.
        is_stable: Wait for transactions that are under way, instead of leaving them out. Those of other
            sinks are waited for only if a record of this one lies behind them.

    Raises:
        KafkaException: The cluster does not answer, or refuses.
        InfrastructureError: Records of the progress topic do not come.
    """
    requested = list(slots)
    marks = _offsets(connection, requested, is_stable=is_stable)
    if forgotten := [slot for slot in requested if slot not in marks]:
        marks |= recorded_progress(connection, forgotten, is_stable=is_stable)
    return dict(sorted(marks.items()))


@_tried_again
def all_progress(
    connection: SlotConnection,
    slots: int,
    partitions: int,
    *,
    is_stable: bool,
    unreadable: SlotProgress | None = None,
) -> dict[int, SlotProgress]:
    """Return what progress says of all slots of a sink, also of those that it had before.

    The offsets of its group are its own, so all of them are asked for. Partitions of the progress topic have
    records of other sinks, too: one is read only if the sink has, or by what it says had, a slot there.

    Args:
        connection: To the cluster that keeps it.
        slots: How many the sink has now.
        partitions: How many the progress topic has.
        is_stable: As for `progress`.
        unreadable: What stands for an offset, and for a record, that is no progress; None to refuse it. For
            the offset of a slot that has a record the record counts, as for one that has expired.

    Raises:
        UnreadableError: An offset or a record is no progress.
        KafkaException: The cluster does not answer, or refuses.
        InfrastructureError: Records of the progress topic do not come.
    """
    marks = _offsets(connection, range(partitions), is_stable=is_stable, unreadable=unreadable)
    read = set[int]()
    while True:
        count = min(max([slots, *(mark.slots for mark in marks.values())]), partitions)
        unknown = [
            slot
            for slot in range(count)
            if (slot not in marks or marks[slot] is unreadable) and slot not in read
        ]
        if not unknown:
            return dict(sorted(marks.items()))
        marks |= recorded_progress(connection, unknown, is_stable=is_stable, unreadable=unreadable)
        read |= {*unknown}


def _offsets(
    connection: SlotConnection,
    slots: Iterable[int],
    *,
    is_stable: bool,
    unreadable: SlotProgress | None = None,
) -> dict[int, SlotProgress]:
    """Return what the offsets of a sink's group say of slots."""
    # A consumer, since librdkafka's AdminClient crashes when it asks a coordinator that has just moved
    # (list_consumer_group_offsets of 2.16.0: it looks for a consumer that it is not).
    consumer = connection.consumer(is_stable=is_stable)
    try:
        places = [TopicPartition(connection.progress_topic, slot) for slot in slots]
        marks = {
            each.partition: _read(each, unreadable)
            for each in consumer.committed(places, connection.timeout_s)
        }
    finally:
        consumer.close()
    return {slot: mark for slot, mark in marks.items() if mark}


def _read(committed: TopicPartition, unreadable: SlotProgress | None) -> SlotProgress | None:
    try:
        return SlotProgress.of(committed)
    except UnreadableError:
        if unreadable is None:
            raise
        return unreadable
