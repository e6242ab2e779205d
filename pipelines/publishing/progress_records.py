"""Reads progress from the records of the progress topic, which do not expire; on the driver and in tasks.

Executors have Python, confluent-kafka and pyarrow, so nothing else is imported here.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from pipelines.errors import InfrastructureError
from pipelines.publishing.partition_records import Stalled, records_until
from pipelines.publishing.slots import SlotConnection, SlotProgress, UnreadableError

_log = logging.getLogger(__name__)


def recorded_progress(
    connection: SlotConnection,
    slots: Sequence[int],
    *,
    is_stable: bool,
    unreadable: SlotProgress | None = None,
) -> dict[int, SlotProgress]:
    """Return the newest committed record of a sink, of each of some partitions of its progress topic.

    Args:
        connection: To the cluster that keeps it.
        slots: Their numbers; those that have none are left out.
        is_stable: Wait for transactions of this sink that are under way, instead of leaving them out.
        unreadable: What stands for a record that is no progress; None to refuse it.

    Raises:
        UnreadableError: A record is no progress.
        KafkaException: The cluster does not answer, or refuses.
        InfrastructureError: Records of the progress topic do not come.
    """
    marks = dict[int, SlotProgress | None]()
    holders = dict[int, _Held]()

    def waits(slot: int, hidden: range) -> bool:
        if holder := _held_by(connection, slot, hidden):
            holders[slot] = holder
        return holder is not None

    begin = [TopicPartition(connection.progress_topic, slot, OFFSET_BEGINNING) for slot in slots]
    ends = _ends(connection, slots) if is_stable else dict.fromkeys(slots, 0)
    client_timeout_s = connection.transaction_timeout_ms / 1000 if is_stable else connection.timeout_s
    with closing(connection.consumer()) as consumer:
        try:
            for record in records_until(consumer, begin, ends, client_timeout_s, waits):
                if record.key() == connection.name.encode():
                    # A record without a value takes progress back.
                    value = record.value()
                    marks[record.partition()] = None if value is None else _read(value, unreadable)
        except Stalled as stalled:
            slot = stalled.partition
            raise _do_not_come(connection, slot, holders.get(slot)) from None
    return {slot: mark for slot, mark in marks.items() if mark}


def _read(value: bytes, unreadable: SlotProgress | None) -> SlotProgress:
    try:
        return SlotProgress.of_record(value)
    except UnreadableError:
        if unreadable is None:
            raise
        return unreadable


@dataclass(frozen=True)
class _Held:
    """An open transaction that hides records of a sink: whose it is, and where it begins."""

    name: str
    offset: int


def _held_by(connection: SlotConnection, slot: int, hidden: range) -> _Held | None:
    """Return the transaction that hides records of a sink; None if none of its records are hidden.

    Args:
        connection: Of the sink.
        slot: The partition of the progress topic.
        hidden: Offsets that readers of committed records do not get to. An open transaction begins with the
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
