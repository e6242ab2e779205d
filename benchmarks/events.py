"""Generated events: JSON readings of meters with retries, disorder and broken records, and their truth."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

DAY: Final = date(2024, 3, 1)
PARTITIONS: Final = 8
_CHUNK: Final = 100_000
_DEVICES: Final = 5_000
_SITES: Final = ("berlin-01", "berlin-02", "hamburg-01", "leipzig-01", "munich-01", "munich-02")
_STATUS: Final = ("ok", "ok", "ok", "ok", "ok", "ok", "estimated", "fault")
_DUPLICATES: Final = 0.2
# A retry follows its first copy within so many events.
_RETRY_WITHIN: Final = 20_000
_BROKEN_EVERY: Final = 10_000
_MIDNIGHT_MS: Final = int(datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC).timestamp() * 1000)
_FIRST_SENT_MS: Final = _MIDNIGHT_MS + 20 * 60_000
_SPAN_MS: Final = 23 * 3_600_000
_DISORDER_MS: Final = 10 * 60_000
_JSON: Final = (
    '{"site":"%s","device":"meter-%06d","sequence":%d,"measured_at":"%sZ","status":"%s","voltage":%.2f,'
    '"current":%.3f,"power":%.3f,"temperature":%.1f,"firmware":"4.12.%d-release","channel":"mqtt/gateway-%03d"}'
)

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Truth:
    """What the records are, known from their making.

    Attributes:
        records: all records.
        unique: different events among the valid ones.
        duplicates: valid records that repeat an earlier one.
        broken: records that are not JSON.
        value_bytes: the length of all values, in bytes.
    """

    records: int
    unique: int
    duplicates: int
    broken: int
    value_bytes: int

    @property
    def sequence_sum(self) -> int:
        """The sum of the field `sequence` over the unique events, which are numbered from 0."""
        return self.unique * (self.unique - 1) // 2


@dataclass(frozen=True)
class Chunk:
    """Records in the order in which they are sent.

    Attributes:
        keys: the Kafka key of each record.
        values: the JSON of each; of a broken one, its first half.
        partitions: the Kafka partition of each: all records of a meter are in one.
        sent_ms: the Kafka timestamp of each, in milliseconds since the epoch, rising.
        is_fresh: of each, whether it is neither broken nor repeats an earlier record.
        broken: how many are cut off.
    """

    keys: list[bytes]
    values: list[bytes]
    partitions: list[int]
    sent_ms: list[int]
    is_fresh: list[bool]
    broken: int

    @property
    def fresh(self) -> int:
        """How many are neither broken nor repeat an earlier record."""
        return sum(self.is_fresh)


def chunks(records: int, seed: int) -> Iterator[Chunk]:
    """Make records; the same arguments give the same bytes.

    Event times rise with the order of sending, with up to ten minutes of disorder, and all lie on `DAY`.

    Args:
        records: how many.
        seed: decides which records are retries, and of which events.
    """
    random = np.random.default_rng(seed)
    known = 0
    for start in range(0, records, _CHUNK):
        number = np.arange(start, min(start + _CHUNK, records), dtype=np.int64)
        broken = number % _BROKEN_EVERY == _BROKEN_EVERY - 1
        again = (random.random(len(number)) < _DUPLICATES) & ~broken & (number > 0)
        newest = known + np.cumsum(~again & ~broken) - 1
        back = random.integers(0, _RETRY_WITHIN, len(number))
        event = np.where(again, np.maximum(newest - back, 0), newest)
        known = int(newest[-1]) + 1
        values = _render(event, records)
        for place in np.flatnonzero(broken).tolist():
            values[place] = values[place][: len(values[place]) // 2]
        device = _device(event)
        yield Chunk(
            [b"meter-%06d" % one for one in device.tolist()],
            values,
            (device % PARTITIONS).tolist(),
            (_FIRST_SENT_MS + number * _SPAN_MS // records).tolist(),
            is_fresh=(~again & ~broken).tolist(),
            broken=int(np.count_nonzero(broken)),
        )


def add_up(made: Truth | None, chunk: Chunk) -> Truth:
    """Return the truth of the records so far, with those of one more chunk."""
    before = made or Truth(0, 0, 0, 0, 0)
    return Truth(
        before.records + len(chunk.values),
        before.unique + chunk.fresh,
        before.duplicates + len(chunk.values) - chunk.fresh - chunk.broken,
        before.broken + chunk.broken,
        before.value_bytes + sum(map(len, chunk.values)),
    )


def _render(event: Integers, records: int) -> list[bytes]:
    """Return JSON of events, a function of their numbers alone: a retry has the bytes of the first copy."""
    device = _device(event)
    noise = event * 2_654_435_761 % 1_000_003
    # Numbers of events run slower than those of records, so no event is measured after it was sent.
    measured = _FIRST_SENT_MS + event * _SPAN_MS // records - noise % _DISORDER_MS
    texts = np.datetime_as_string(measured.astype("datetime64[ms]"), unit="ms")
    voltage = 220 + noise % 2000 / 100
    current = 1 + noise % 9000 / 1000
    columns: list[list[Any]] = [
        np.asarray(_SITES)[device % len(_SITES)].tolist(),
        device.tolist(),
        event.tolist(),
        texts.tolist(),
        np.asarray(_STATUS)[noise % len(_STATUS)].tolist(),
        voltage.tolist(),
        current.tolist(),
        (voltage * current).tolist(),
        (5 + noise % 300 / 10).tolist(),
        (noise % 10).tolist(),
        (device % 500).tolist(),
    ]
    return [(_JSON % row).encode() for row in zip(*columns, strict=True)]


def _device(event: Integers) -> Integers:
    return event * 7_919 % _DEVICES
