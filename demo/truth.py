"""What the lake must hold after a replay, derived from what was sent and from nothing else."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

from demo.source import Flight, FlightKey, FlightPayload


class Copy(NamedTuple):
    """One valid send of an event, with all that decides which copy wins.

    Attributes:
        flight: The event as this copy tells it.
        timestamp_ms: Kafka timestamp, milliseconds since 1970.
        partition: Where it went.
        position: Its place in the order of sending, which within a partition is the order of offsets.
    """

    flight: Flight
    timestamp_ms: int
    partition: int
    position: int


class Expected(NamedTuple):
    """The one row that an event must have.

    Attributes:
        day: The event day.
        winner: The payload of the first copy by Kafka timestamp, then partition, then offset.
        losers: Payloads of other copies, where they differ from the winner.
    """

    day: date
    winner: FlightPayload
    losers: frozenset[FlightPayload]


@dataclass(frozen=True)
class Truth:
    """What the lake must hold.

    Attributes:
        events: The expected row of every event.
        sent: Number of records sent.
        duplicates: Number of valid records sent beyond the first of each event, conflicting ones included.
        quarantined: Number of records by quarantine reason.
        late: Number of events of certified days sent only days later, or when their day was certified.
        uncertified_day: The last event day, which the speed layer serves.
    """

    events: Mapping[FlightKey, Expected]
    sent: int
    duplicates: int
    quarantined: Mapping[str, int]
    late: int
    uncertified_day: date

    @property
    def conflicts(self) -> int:
        """Return the number of events of which copies differ."""
        return sum(bool(expected.losers) for expected in self.events.values())

    @property
    def rows_by_day(self) -> dict[date, int]:
        """Return the number of events of each event day, ascending."""
        return dict(sorted(Counter(expected.day for expected in self.events.values()).items()))

    def acceptable(self, key: FlightKey) -> frozenset[FlightPayload]:
        """Tell which payloads a reader may see for an event.

        Of a certified day only the winner; of the uncertified one any copy, since the speed layer keeps the
        copy that it sees first and leaves the choice to the nightly rebuild.

        Args:
            key: An event of `events`.

        Returns:
            The payloads.
        """
        expected = self.events[key]
        winner = frozenset({expected.winner})
        return winner | expected.losers if expected.day == self.uncertified_day else winner

    def fingerprint(self) -> str:
        """Condense all expected rows to one text, the same for the same truth.

        Returns:
            SHA-256 over the rows in the order of their keys, in hexadecimal.
        """
        digest = hashlib.sha256()
        for key, expected in sorted(self.events.items(), key=lambda item: item[0]):
            digest.update(repr((key, expected.day, expected.winner)).encode())
        return digest.hexdigest()


def expected_events(copies: Iterable[Copy]) -> dict[FlightKey, Expected]:
    """Choose the winner of every event.

    Args:
        copies: Every valid send.

    Returns:
        The expected row of every event.
    """
    winners: dict[FlightKey, Copy] = {}
    contested: defaultdict[FlightKey, set[FlightPayload]] = defaultdict(set)
    for copy in copies:
        key = copy.flight.key
        best = winners.setdefault(key, copy)
        if copy.flight.payload != best.flight.payload:
            contested[key] |= {copy.flight.payload, best.flight.payload}
        if copy[1:] < best[1:]:
            winners[key] = copy
    return {
        key: Expected(
            copy.flight.day, copy.flight.payload, frozenset(contested.get(key, set()) - {copy.flight.payload})
        )
        for key, copy in winners.items()
    }
