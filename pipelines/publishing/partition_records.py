"""Reads partitions of a topic to their ends."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

_WAIT_S: Final = 1.0
_AT_ONCE: Final = 10_000


class Stalled(Exception):
    """No record came for too long, and a partition has not come to its end.

    Attributes:
        partition: Its number, the lowest of those.
    """

    def __init__(self, partition: int) -> None:
        super().__init__(f"partition {partition}")
        self.partition = partition


def records_until(
    consumer: Consumer,
    begin: Sequence[TopicPartition],
    ends: Mapping[int, int],
    client_timeout_s: float,
    waits: Callable[[int, range], bool] = lambda partition, hidden: True,
) -> Iterator[Any]:
    """Yield the records of partitions of a topic, until each of them has come to its end.

    Records behind an end may be among them, if other partitions are read for longer.

    Args:
        consumer: Reads them, and is told of ends (`enable.partition.eof`).
        begin: Where to begin in each partition.
        ends: The offset after the last record, by the number of the partition; 0 for what is there now.
        client_timeout_s: How long to wait for the next record of any partition, in seconds.
        waits: Whether to wait for records of a partition that an open transaction hides. A reader of
            committed records comes to an end where the transaction begins; the range is from there to the
            offset in `ends`.

    Raises:
        Stalled: No record came for that long.
        KafkaException: The cluster does not answer, or refuses.
    """
    left = dict(ends)
    until = time.monotonic() + client_timeout_s
    consumer.assign(list(begin))
    while left:
        if time.monotonic() > until:
            raise Stalled(min(left))
        for message in _next(consumer):
            if not _is_end(message):
                until = time.monotonic() + client_timeout_s
                yield message
                continue
            hidden = range(message.offset(), left.get(message.partition(), 0))
            if not hidden or not waits(message.partition(), hidden):
                left.pop(message.partition(), None)


def _next(consumer: Consumer) -> list[Any]:
    """Return what has come, as soon as something has; nothing if nothing comes for a while."""
    first = consumer.consume(1, _WAIT_S)
    return [*first, *consumer.consume(_AT_ONCE, 0)] if first else []


def _is_end(message: Any) -> bool:
    """Return whether it is no record, but says that there are no more of its partition now."""
    if (error := message.error()) is None:
        return False
    if error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    return True
