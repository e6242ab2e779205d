"""The plan of a replay: which producer sends what, where and when. Pure, and the same for the same seed.

Three producers, one for each airport, send every flight around its scheduled departure, at least once:

- disorder: most records leave within minutes, some up to three hours later;
- retries: 5 % of the flights are sent again, soon, after many hours, or to another partition by a producer
  that restarted with another partitioner;
- late flights: a few are sent for the first time five to nine days of the replay later, when the speed
  layer's watermark has long passed them; the nightly run still gets them. The last day has none, since it
  stays uncertified: nothing would ever bring them in;
- overdue flights: two of each of the last days that the first night certifies are sent only then; the
  second night repairs these days;
- conflicts: a few copies tell another delay; some of those win, because they carry the earlier timestamp
  or, at the same timestamp, the lower partition;
- poison: a few records of each kind break the contract.
"""

import random
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date
from zlib import crc32

from demo.poison import REASONS, Poison, poisoned_value
from demo.sends import DAY, HOUR, MINUTE, SECOND, Send, Sort
from demo.source import Flight
from demo.truth import Copy, Truth, expected_events
from demo.wire import encode_value, record_key, value_fields

MAX_DISORDER_MS = 3 * HOUR
"""Half of the speed layer's watermark delay in `conf/base/pipelines/flights.yml`: none in time is late."""

_DUPLICATE_SHARE = 0.05
_CONFLICT_SHARE = 0.001
_LATE_SHARE = 0.001
_POISON_SHARE = 0.0002
_OVERDUE = 2
_LATE_DAYS = (5, 9)
_LATE_DAYS_OF_A_SHORT_REPLAY = (2, 2)


@dataclass(frozen=True)
class Plan:
    """A replay and its outcome.

    Attributes:
        days: Event days, ascending; the last one stays uncertified.
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
        """Return the number of sends for each reason to send."""
        return Counter(send.sort for send in self.sends)

    @property
    def first_night(self) -> tuple[date, ...]:
        """The days that the first night certifies."""
        return _first_night(self.days)

    @property
    def before_first_night(self) -> Sequence[Send]:
        """What is sent before the first night."""
        return self.sends[: len(self.sends) - self.sorts[Sort.OVERDUE]]

    @property
    def after_first_night(self) -> Sequence[Send]:
        """What is sent only when the first night is over: flights of days that it certified."""
        return self.sends[len(self.sends) - self.sorts[Sort.OVERDUE] :]


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
    held_back = planner.hold_back(flights, _first_night(days)[-2:])
    firsts = planner.firsts([flight for flight in flights if flight not in held_back], days)
    drafts = firsts + planner.retries(firsts) + planner.conflicts(firsts) + planner.poison(firsts)
    in_order = sorted(drafts, key=lambda send: send.at_ms)
    sends = (*in_order, *planner.overdue(held_back, in_order[-1].at_ms))
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
        late=sum(send.sort in (Sort.LATE, Sort.OVERDUE) for send in sends),
        uncertified_day=days[-1],
    )
    return Plan(days, partitions, sends, truth)


def _first_night(days: Sequence[date]) -> tuple[date, ...]:
    # The second night closes a day of its own; where only one is to close, it gets that one again.
    return tuple(days[: max(len(days) - 2, 1)])


def _send(at_ms: int, timestamp_ms: int, partition: int, sort: Sort, flight: Flight) -> Send:
    attempt = 1 if sort in (Sort.FIRST, Sort.LATE, Sort.OVERDUE) else 2
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

    def hold_back(self, flights: Sequence[Flight], days: Sequence[date]) -> set[Flight]:
        """Choose a few flights of each of some days that are sent only when these days are certified."""
        of_day = [[flight for flight in flights if flight.day == day] for day in days]
        return {flight for able in of_day for flight in self._rng.sample(able, min(len(able) - 1, _OVERDUE))}

    def overdue(self, flights: Collection[Flight], after_ms: int) -> list[Send]:
        """Send flights an hour after everything else, in the order of their departure."""
        in_order = sorted(flights, key=lambda flight: (flight.key.scheduled_departure, flight.key))
        at = after_ms + HOUR
        return [
            _send(at + nth * SECOND, at + nth * SECOND, self._partition(flight), Sort.OVERDUE, flight)
            for nth, flight in enumerate(in_order)
        ]

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
