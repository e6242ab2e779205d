"""What producers send: a pure function of the seed, with copies, conflicts, late and broken records."""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from heapq import merge
from random import Random
from typing import Any, Final

PARTITIONS: Final = 4
FIRST_DAY: Final = date(2024, 3, 1)
DAYS: Final = tuple(FIRST_DAY + timedelta(days=number) for number in range(2))
"""The event days that a run certifies; the day after them stays with the speed layer."""
WATERMARK_DELAY: Final = timedelta(hours=6)
MAX_FUTURE: Final = timedelta(days=1)

_BEGIN: Final = datetime(2024, 3, 1, 16, tzinfo=UTC)
_SPAN: Final = timedelta(hours=40)
_METERS: Final = 40
_REMEMBERED: Final = 600


class Sort(StrEnum):
    """Why a record is sent."""

    FIRST = "first"
    COPY = "copy"
    CONFLICT = "conflict"
    LATE = "late"
    BROKEN = "broken"


@dataclass(frozen=True)
class Reading:
    """An event.

    Attributes:
        meter: which meter; with the next two the dedup key.
        number: counts the meter's readings.
        measured_at: the event time.
        power: what was measured.
        note: anything, or nothing.
    """

    meter: str
    number: int
    measured_at: datetime
    power: float
    note: str | None = None

    def document(self) -> bytes:
        """Return the value of a record that tells of it."""
        told = {
            "meter": self.meter,
            "number": self.number,
            "measured_at": self.measured_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "power": self.power,
            "note": self.note,
        }
        return json.dumps(told).encode()


@dataclass(frozen=True)
class Send:
    """A record on its way to Kafka.

    Attributes:
        number: counts the records of a run; it is the header `number` of the record.
        at_s: when it is sent, in seconds since the producers began.
        partition: where to.
        timestamp_ms: the producer's clock, in milliseconds since the epoch.
        value: the value of the record.
        sort: why it is sent.
    """

    number: int
    at_s: float
    partition: int
    timestamp_ms: int
    value: bytes | None
    sort: Sort

    @property
    def key(self) -> bytes:
        """The key of the record."""
        return str(self.number % _METERS).encode()


@dataclass(frozen=True)
class Skew:
    """A time in which the clock of a producer is wrong. Each partition has a producer of its own.

    Attributes:
        partition: of the producer.
        from_s: its beginning, in seconds since the producers began.
        to_s: its end.
        by: how far the clock is ahead; negative if it is behind.
    """

    partition: int
    from_s: float
    to_s: float
    by: timedelta


@dataclass(frozen=True)
class Burst:
    """A time in which producers send more than usual.

    Attributes:
        from_s: its beginning, in seconds since the producers began.
        to_s: its end.
        times: how many times as many records they send.
    """

    from_s: float
    to_s: float
    times: int


def traffic(
    seed: int, seconds: float, rate: float, skews: Sequence[Skew] = (), burst: Burst | None = None
) -> Iterator[Send]:
    """Yield what is sent in a run, in the order of sending.

    Args:
        seed: decides everything.
        seconds: how long producers send; their events span 40 hours in that time, however long it is.
        rate: records a second.
        skews: when the clock of a producer is wrong.
        burst: when they send more; None for never.
    """
    random = Random(f"traffic {seed}")  # noqa: S311 - nothing here is secret
    recent = deque[Reading](maxlen=_REMEMBERED)
    for number, at_s in enumerate(_moments(seconds, rate, burst)):
        clock = _BEGIN + _SPAN * (at_s / seconds)
        sort, value = _record(random, number, clock, recent)
        partition = random.randrange(PARTITIONS)
        skewed = [s.by for s in skews if s.partition == partition and s.from_s <= at_s < s.to_s]
        sent_ms = round((clock + sum(skewed, timedelta())).timestamp() * 1000)
        yield Send(number, at_s, partition, sent_ms, value, sort)


def _moments(seconds: float, rate: float, burst: Burst | None) -> Iterable[float]:
    """Return when records are sent, in order."""
    steady = (number / rate for number in range(int(seconds * rate)))
    if burst is None:
        return steady
    further = rate * (burst.times - 1)
    number_further = int((burst.to_s - burst.from_s) * further)
    return merge(steady, (burst.from_s + number / further for number in range(number_further)))


def _record(
    random: Random, number: int, clock: datetime, recent: deque[Reading]
) -> tuple[Sort, bytes | None]:
    chance = random.random()
    if recent and chance < 0.15:
        return Sort.COPY, random.choice(recent).document()
    if recent and chance < 0.19:
        told = random.choice(recent)
        other = Reading(told.meter, told.number, told.measured_at, told.power + 1, "conflict")
        return Sort.CONFLICT, other.document()
    if chance < 0.23:
        return Sort.BROKEN, _broken(random, number, clock)
    is_late = chance < 0.28
    behind = timedelta(hours=random.uniform(8, 14) if is_late else random.uniform(0, 0.5))
    measured = max(clock - behind, datetime(FIRST_DAY.year, FIRST_DAY.month, FIRST_DAY.day, tzinfo=UTC))
    # What is sent holds milliseconds.
    measured = measured.replace(microsecond=measured.microsecond // 1000 * 1000)
    power = round(random.uniform(0, 5000), 3)
    note = random.choice((None, "ok", 'é \\ "quoted"', ""))
    reading = Reading(f"m{random.randrange(_METERS):03}", number, measured, power, note)
    recent.append(reading)
    return (Sort.LATE if is_late else Sort.FIRST), reading.document()


def _broken(random: Random, number: int, clock: datetime) -> bytes | None:
    whole = Reading("m000", number, clock.replace(microsecond=0), 1.5)
    told = json.loads(whole.document())
    match random.randrange(6):
        case 0:
            return None
        case 1:
            return whole.document()[: random.randrange(5, 60)]
        case 2:
            return json.dumps([told]).encode()
        case 3:
            return json.dumps({name: value for name, value in told.items() if name != "power"}).encode()
        case 4:
            return json.dumps(told | {"number": "many"}).encode()
        case _:
            return json.dumps(told | {"power": -1.0}).encode()


@dataclass(frozen=True)
class Refused:
    """What is wrong with a record, by the words of the quarantine.

    Attributes:
        reason: as in `_reason`.
    """

    reason: str


def judge(value: bytes | None, timestamp_ms: int) -> Reading | Refused:
    """Return what a record of this traffic is; nothing of the decoder of the jobs is in this.

    Args:
        value: of the record.
        timestamp_ms: of the record, as Kafka has it.
    """
    told = _parsed(value)
    return told if isinstance(told, Refused) else judge_told(told, timestamp_ms)


def judge_told(told: Mapping[str, Any], timestamp_ms: int) -> Reading | Refused:
    """Return what the fields of a record say.

    Args:
        told: by their names.
        timestamp_ms: of the record, as Kafka has it.
    """
    if not isinstance(told.get("number"), int):
        return Refused("wrong_type")
    if "power" not in told:
        return Refused("missing_field")
    measured = datetime.fromisoformat(told["measured_at"])
    # Of several reasons, the first in the order of docs/semantics.md.
    if measured > datetime.fromtimestamp(timestamp_ms / 1000, UTC) + MAX_FUTURE:
        return Refused("event_time_future")
    if told["power"] < 0:
        return Refused("rule_failed")
    return Reading(told["meter"], told["number"], measured, told["power"], told["note"])


def _parsed(value: bytes | None) -> dict[str, Any] | Refused:
    if value is None:
        return Refused("null_value")
    try:
        told = json.loads(value)
    except ValueError:
        return Refused("malformed_json")
    return told if isinstance(told, dict) else Refused("not_an_object")
