"""The plan of a replay: which producer sends what, where and when. Pure, and the same for the same seed.

Three producers, one for each airport, send every flight around its scheduled departure, at least once:

- disorder: most records leave within minutes, some up to three hours later;
- retries: 5 % of the flights are sent again, soon, after many hours, or to another partition by a producer
  that restarted with another partitioner;
- late flights: a few are sent for the first time five to nine days of the replay later, when the speed
  layer's watermark has long passed them; the nightly run still gets them. The last day has none, since it
  stays open: nothing would ever bring them in;
- conflicts: a few copies tell another delay; some of those win, because they carry the earlier timestamp
  or, at the same timestamp, the lower partition;
- poison: a few records of each kind break the contract.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

from demo.poison import REASONS, Poison, poisoned_value
from demo.source import Flight
from demo.truth import Copy, Truth, expected_events
from demo.wire import encode_value, record_key, value_fields

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

MAX_DISORDER_MS = 3 * HOUR
"""Half of the speed layer's watermark delay in `conf/base/pipelines/flights.yml`: none in time is late."""

_DUPLICATE_SHARE = 0.05
_CONFLICT_SHARE = 0.001
_LATE_SHARE = 0.001
_POISON_SHARE = 0.0002
_LATE_DAYS = (5, 9)
_LATE_DAYS_OF_A_SHORT_REPLAY = (2, 2)


class Sort(StrEnum):
    """Why a record is sent."""

    FIRST = "first"
    LATE = "late"
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


@dataclass(frozen=True)
class Plan:
    """A replay and its outcome.

    Attributes:
        days: Event days, ascending; the last one stays open.
        partitions: Number of partitions of the topic.
        sends: Every record in the order of sending.
        truth: What the lake must hold afterwards.
    """

    days: tuple[date, ...]
    partitions: int
    sends: tuple[Send, ...]
    truth: Truth

    @property
    def sorts(self) -> Counter[Sort]:
        """Number of sends for each reason to send."""
        return Counter(send.sort for send in self.sends)


def plan_replay(flights: Sequence[Flight], seed: int, partitions: int = 3) -> Plan:
    """Plan the replay of some days of flights.

    Args:
        flights: Distinct events of at least one day.
        seed: The same seed gives the same plan.
        partitions: Number of partitions of the topic, at least 2.

    Returns:
        The plan with its truth.

    Raises:
        ValueError: No flights, or fewer than 2 partitions.
    """
    if not flights or partitions < 2:
        raise ValueError(f"expected flights and 2 partitions, found {len(flights)} and {partitions}")
    days = tuple(sorted({flight.day for flight in flights}))
    planner = _Planner(random.Random(seed), partitions)  # noqa: S311 - repeatable, nothing secret
    firsts = planner.firsts(flights, days)
    drafts = firsts + planner.retries(firsts) + planner.conflicts(firsts) + planner.poison(firsts)
    sends = tuple(sorted(drafts, key=lambda send: send.at_ms))
    copies = [
        Copy(send.flight, send.timestamp_ms, send.partition, position)
        for position, send in enumerate(sends)
        if send.flight is not None
    ]
    events = expected_events(copies)
    truth = Truth(
        events=events,
        sent=len(sends),
        duplicates=len(copies) - len(events),
        quarantined=Counter(REASONS[send.poison] for send in sends if send.poison is not None),
        late=sum(send.sort is Sort.LATE for send in sends),
        open_day=days[-1],
    )
    return Plan(days, partitions, sends, truth)


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


def _send(at_ms: int, timestamp_ms: int, partition: int, sort: Sort, flight: Flight) -> Send:
    attempt = 1 if sort in (Sort.FIRST, Sort.LATE) else 2
    return Send(
        at_ms,
        timestamp_ms,
        partition,
        flight.key.origin,
        attempt,
        sort,
        record_key(flight.key),
        encode_value(value_fields(flight.key, flight.payload)),
        flight,
    )


class _Planner:
    """Draws all that is random, in one fixed order."""

    def __init__(self, rng: random.Random, partitions: int) -> None:
        self._rng = rng
        self._partitions = partitions

    def firsts(self, flights: Sequence[Flight], days: Sequence[date]) -> list[Send]:
        """Send every flight once, a few of them days late."""
        place = {day: index for index, day in enumerate(days)}
        least, most = _LATE_DAYS if len(days) > _LATE_DAYS[0] else _LATE_DAYS_OF_A_SHORT_REPLAY
        able = [index for index, flight in enumerate(flights) if place[flight.day] + least < len(days)]
        late = set(self._rng.sample(able, min(len(able), _share(flights, _LATE_SHARE))))
        return [
            self._first(flight, days[place[flight.day] :][least : most + 1] if index in late else ())
            for index, flight in enumerate(flights)
        ]

    def retries(self, firsts: Sequence[Send]) -> list[Send]:
        """Send some flights again, unchanged."""
        again = self._rng.sample(firsts, min(len(firsts), _share(firsts, _DUPLICATE_SHARE)))
        sorts = (Sort.RETRY, Sort.LONG_GAP_RETRY, Sort.OTHER_PARTITION_RETRY)
        shares = self._rng.choices(sorts, weights=(70, 20, 10), k=len(again))
        # At least one of each sort, so that a short demo shows every one.
        return [
            self._retry(first, sort)
            for first, sort in zip(again, [*sorts, *shares[len(sorts) :]], strict=False)
        ]

    def conflicts(self, firsts: Sequence[Send]) -> list[Send]:
        """Send some flights again with another delay."""
        in_time = [send for send in firsts if send.sort is Sort.FIRST]
        wanted = max(_share(firsts, _CONFLICT_SHARE), 4)
        return [
            self._conflict(first, variant % 4)
            for variant, first in enumerate(self._rng.sample(in_time, min(len(in_time), wanted)))
        ]

    def poison(self, firsts: Sequence[Send]) -> list[Send]:
        """Send broken records in between."""
        wanted = _share(firsts, _POISON_SHARE)
        return [self._poison(self._rng.choice(firsts), kind) for kind in Poison for _ in range(wanted)]

    def _first(self, flight: Flight, late_days: Sequence[date]) -> Send:
        departure = int(flight.key.scheduled_departure.timestamp() * SECOND)
        at = departure + self._disorder()
        if not late_days:
            return _send(at, at, self._partition(flight), Sort.FIRST, flight)
        at += (self._rng.choice(late_days) - flight.day).days * DAY
        return _send(at, at, self._partition(flight), Sort.LATE, flight)

    def _retry(self, first: Send, sort: Sort) -> Send:
        flight = _flight_of(first)
        if sort is Sort.LONG_GAP_RETRY:
            at = first.at_ms + self._rng.randint(6 * HOUR, 20 * HOUR)
            return _send(at, at, first.partition, sort, flight)
        at = first.at_ms + self._rng.randint(SECOND // 5, 2 * MINUTE)
        if sort is Sort.OTHER_PARTITION_RETRY:
            return _send(at, at, self._other(first.partition), sort, flight)
        # Half are the client's own retries, which keep their timestamp; half the application's.
        timestamp = self._rng.choice((first.timestamp_ms, at))
        return _send(at, timestamp, first.partition, sort, flight)

    def _conflict(self, first: Send, variant: int) -> Send:
        flight = _flight_of(first)
        told = (flight.payload.departure_delay or 0.0) + self._rng.randint(1, 90)
        changed = flight._replace(payload=flight.payload._replace(departure_delay=told))
        at = first.at_ms + self._rng.randint(MINUTE, 30 * MINUTE)
        timestamp, partition = at, first.partition
        match variant:
            case 1:  # stamped earlier by a clock that is behind: the copy wins
                timestamp = first.timestamp_ms - SECOND
            case 2:  # at the same millisecond the lower partition wins
                timestamp, partition = first.timestamp_ms, self._other(first.partition)
            case 3:  # at the same millisecond of the same partition the lower offset wins
                timestamp = first.timestamp_ms
        return _send(at, timestamp, partition, Sort.CONFLICT, changed)

    def _poison(self, first: Send, kind: Poison) -> Send:
        at = first.at_ms + self._rng.randint(0, MINUTE)
        value = poisoned_value(kind, _flight_of(first))
        return first._replace(
            at_ms=at,
            timestamp_ms=at,
            attempt=1,
            sort=Sort.POISON,
            value=value,
            flight=None,
            poison=kind,
        )

    def _disorder(self) -> int:
        if self._rng.random() < 0.85:
            return self._rng.randint(0, 15 * MINUTE)
        return self._rng.randint(15 * MINUTE, MAX_DISORDER_MS)

    def _partition(self, flight: Flight) -> int:
        return crc32(record_key(flight.key)) % self._partitions

    def _other(self, partition: int) -> int:
        return (partition + 1) % self._partitions


def _flight_of(send: Send) -> Flight:
    if send.flight is None:
        raise ValueError("poison has no flight")
    return send.flight


def _share(items: Sequence[object], share: float) -> int:
    return max(round(len(items) * share), 2)
