"""Reads the progress of slots: on the driver, and in tasks whose group has no offsets any more."""

import logging
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition
from tenacity import retry, retry_if_exception, stop_after_delay, wait_random_exponential

from pipelines.errors import InfrastructureError
from pipelines.publishing.partition_records import Stalled, records_until
from pipelines.publishing.slots import SlotConnection, SlotProgress

_PASSING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
)

_log = logging.getLogger(__name__)


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
        connection: to the cluster that keeps it.
        slots: their numbers.
        is_stable: wait for transactions that are under way, instead of leaving them out. Those of other
            sinks are waited for only if a record of this one lies behind them.

    Raises:
        KafkaException: the cluster does not answer, or refuses.
        InfrastructureError: records of the progress topic do not come.
    """
    requested = list(slots)
    marks = _offsets(connection, requested, is_stable=is_stable)
    if forgotten := [slot for slot in requested if slot not in marks]:
        marks |= _records(connection, forgotten, is_stable=is_stable)
    return dict(sorted(marks.items()))


@_tried_again
def all_progress(
    connection: SlotConnection, slots: int, partitions: int, *, is_stable: bool
) -> dict[int, SlotProgress]:
    """Return what progress says of all slots of a sink, also of those that it had before.

    The offsets of its group are its own, so all of them are asked for. Partitions of the progress topic have
    records of other sinks, too: one is read only if the sink has, or by what it says had, a slot there.

    Args:
        connection: to the cluster that keeps it.
        slots: how many the sink has now.
        partitions: how many the progress topic has.
        is_stable: as for `progress`.

    Raises:
        KafkaException: the cluster does not answer, or refuses.
        InfrastructureError: records of the progress topic do not come.
    """
    marks, read = _offsets(connection, range(partitions), is_stable=is_stable), set[int]()
    while True:
        count = min(max([slots, *(mark.slots for mark in marks.values())]), partitions)
        unknown = [slot for slot in range(count) if slot not in marks and slot not in read]
        if not unknown:
            return dict(sorted(marks.items()))
        marks |= _records(connection, unknown, is_stable=is_stable)
        read |= {*unknown}


def _offsets(connection: SlotConnection, slots: Iterable[int], *, is_stable: bool) -> dict[int, SlotProgress]:
    """Return what the offsets of a sink's group say of slots."""
    # A consumer, since librdkafka's AdminClient crashes when it asks a coordinator that has just moved
    # (list_consumer_group_offsets of 2.16.0: it looks for a consumer that it is not).
    consumer = connection.consumer(is_stable=is_stable)
    try:
        places = [TopicPartition(connection.progress_topic, slot) for slot in slots]
        marks = {
            each.partition: SlotProgress.of(each) for each in consumer.committed(places, connection.timeout_s)
        }
    finally:
        consumer.close()
    return {slot: mark for slot, mark in marks.items() if mark}


def _records(connection: SlotConnection, slots: list[int], *, is_stable: bool) -> dict[int, SlotProgress]:
    """Return the newest committed record of a sink, of each of some partitions of its progress topic."""
    marks = dict[int, SlotProgress | None]()
    holders = dict[int, _Held]()

    def waits(slot: int, hidden: range) -> bool:
        if holder := _held_by(connection, slot, hidden):
            holders[slot] = holder
        return holder is not None

    begin = [TopicPartition(connection.progress_topic, slot, OFFSET_BEGINNING) for slot in slots]
    ends = _ends(connection, slots) if is_stable else dict.fromkeys(slots, 0)
    patience_s = connection.transaction_timeout_ms / 1000 if is_stable else connection.timeout_s
    with closing(connection.consumer()) as consumer:
        try:
            for record in records_until(consumer, begin, ends, patience_s, waits):
                if record.key() == connection.name.encode():
                    # A record without a value takes progress back.
                    value = record.value()
                    marks[record.partition()] = SlotProgress.of_record(value) if value is not None else None
        except Stalled as stalled:
            slot = stalled.partition
            raise _do_not_come(connection, slot, holders.get(slot)) from None
    return {slot: mark for slot, mark in marks.items() if mark}


@dataclass(frozen=True)
class _Held:
    """An open transaction that hides records of a sink: whose it is, and where it begins."""

    name: str
    offset: int


def _held_by(connection: SlotConnection, slot: int, hidden: range) -> _Held | None:
    """Return the transaction that hides records of a sink; None if none of its records are hidden.

    Args:
        connection: of the sink.
        slot: the partition of the progress topic.
        hidden: offsets that readers of committed records do not get to. An open transaction begins with the
            first of them, and each record names the sink that it is of.
    """
    first, is_ours = None, False
    begin = [TopicPartition(connection.progress_topic, slot, hidden.start)]
    with closing(connection.consumer(is_stable=False)) as consumer:
        try:
            for record in records_until(consumer, begin, {slot: 0}, connection.timeout_s):
                if record.offset() >= hidden.stop:
                    break
                key = record.key() or b""
                first = first or _Held(key.decode(errors="replace"), record.offset())
                is_ours = is_ours or key == connection.name.encode()
        except Stalled:
            raise _do_not_come(connection, slot, None) from None
    if first is None or not is_ours:
        return None
    _log.warning(
        "%s: partition %d of topic %s has records behind an open transaction of %s: waiting until it ends",
        *(connection.name, slot, connection.progress_topic, first.name),
    )
    return first


def _do_not_come(connection: SlotConnection, slot: int, holder: _Held | None) -> InfrastructureError:
    where = f"{connection.name}: records of partition {slot} of topic '{connection.progress_topic}'"
    if holder is None:
        return InfrastructureError(f"{where} cannot be read; start again when the partition has a leader")
    return InfrastructureError(
        f"{where} are hidden by a transaction of '{holder.name}' that is open since offset {holder.offset}."
        " It ends when that sink is started again, or when its publish.transaction_timeout is over; if it"
        " does not, end it with kafka-transactions.sh (find-hanging, abort). Then start again"
    )


def _ends(connection: SlotConnection, slots: Iterable[int]) -> dict[int, int]:
    """Return where each partition of the progress topic ends, behind all that is under way."""
    with closing(connection.consumer(is_stable=False)) as consumer:
        places = {slot: TopicPartition(connection.progress_topic, slot) for slot in slots}
        return {
            slot: consumer.get_watermark_offsets(place, connection.timeout_s)[1]
            for slot, place in places.items()
        }
