"""What producers send: single records, each with its reason to be sent, and waves of them."""

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from demo.poison import Poison
from demo.source import Flight

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


class Sort(StrEnum):
    """Why a record is sent."""

    FIRST = "first"
    LATE = "late"
    OVERDUE = "overdue"
    RETRY = "retry"
    LONG_GAP_RETRY = "long gap retry"
    OTHER_PARTITION_RETRY = "other partition retry"
    CONFLICT = "conflict"
    POISON = "poison"


class Send(NamedTuple):
    """One record on its way to Kafka.

    Attributes:
        at_ms: Simulated moment of sending, milliseconds since 1970.
        timestamp_ms: Kafka timestamp (CreateTime); earlier than `at_ms` for a client's own retry.
        partition: Where it goes.
        producer: Who sends it: the airport.
        attempt: 1 for the first send of an event, 2 for its copies.
        sort: Why.
        key: Kafka key.
        value: Kafka value.
        flight: The event as this record tells it; `None` for poison.
        poison: How it is broken, if it is.
    """

    at_ms: int
    timestamp_ms: int
    partition: int
    producer: str
    attempt: int
    sort: Sort
    key: bytes
    value: bytes | None
    flight: Flight | None
    poison: Poison | None = None


def split_waves(sends: Sequence[Send], count: int) -> list[Sequence[Send]]:
    """Cut a plan into waves of consecutive records of nearly the same size.

    Args:
        sends: Records in the order of sending.
        count: Wanted number of waves.

    Returns:
        At most `count` waves, none empty, which joined are `sends`.
    """
    edges = [len(sends) * index // count for index in range(count + 1)]
    return [sends[start:end] for start, end in pairwise(edges) if end > start]
