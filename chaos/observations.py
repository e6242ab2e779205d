"""What was read of a run, by readers that have nothing of Oncelake: the oracle's input."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime

from chaos.traffic import Reading


@dataclass(frozen=True, order=True)
class Place:
    """The coordinates of a record.

    Attributes:
        partition: its partition.
        offset: its offset.
    """

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition} @ {self.offset}"


@dataclass(frozen=True, order=True)
class EventKey:
    """The dedup key of a reading."""

    meter: str
    number: int
    measured_at: datetime

    @classmethod
    def of(cls, reading: Reading) -> "EventKey":
        """Return the key of a reading."""
        return cls(reading.meter, reading.number, reading.measured_at)

    @property
    def day(self) -> date:
        """The event day."""
        return self.measured_at.date()

    def __str__(self) -> str:
        return f"{self.meter}/{self.number}/{self.measured_at:%d %H:%M:%S.%f}"


@dataclass(frozen=True)
class Acknowledged:
    """A record that a producer knows to be in the topic.

    Attributes:
        number: of the send.
        place: where the cluster said that it is.
        value: as it was sent.
    """

    number: int
    place: Place
    value: bytes | None


@dataclass(frozen=True)
class SourceRecord:
    """A record of the topic.

    Attributes:
        place: its coordinates.
        number: of the send.
        key: its key.
        value: its value.
        timestamp_ms: its Kafka timestamp.
    """

    place: Place
    number: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


@dataclass(frozen=True)
class BronzeRow:
    """A row of bronze.

    Attributes:
        place: where it came from.
        key: of the record.
        value: of the record.
        timestamp_ms: of the record.
        ingested_us: when it was read, in microseconds since the epoch.
    """

    place: Place
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    ingested_us: int


@dataclass(frozen=True)
class EventRow:
    """A row of the speed layer, the batch layer or the serving table.

    Attributes:
        reading: its columns of the contract.
        day: its event day, as the table has it.
        place: where it came from.
    """

    reading: Reading
    day: date
    place: Place

    @property
    def key(self) -> EventKey:
        """The dedup key."""
        return EventKey.of(self.reading)


@dataclass(frozen=True)
class QuarantineRow:
    """A row of the quarantine.

    Attributes:
        place: where it came from.
        reason: why.
        value: of the record.
    """

    place: Place
    reason: str
    value: bytes | None


@dataclass(frozen=True)
class OutputRecord:
    """A record of the output topic.

    Attributes:
        place: its coordinates there.
        key: of the event.
        reading: what it says; None if it takes the event back.
        origin: the record that the event came from.
        correction: what the header says; None for a new event.
    """

    place: Place
    key: EventKey
    reading: Reading | None
    origin: Place
    correction: str | None


@dataclass(frozen=True)
class Lake:
    """What a pipeline's lake and topics hold when the dust has settled.

    Attributes:
        acknowledged: what its producers know to be in the topic.
        source: the topic.
        bronze: bronze.
        speed: the speed layer.
        quarantine: the quarantine.
        certified: the certified days.
        batch: the batch layer at the certified version, of the certified days alone.
        serving: the serving table.
        output: the output topic, as `read_committed` consumers see it, in the order of each partition.
        sent_again: where the output topic ended each time when its events were sent from the beginning, by
            partition.
    """

    acknowledged: Sequence[Acknowledged]
    source: Sequence[SourceRecord]
    bronze: Sequence[BronzeRow]
    speed: Sequence[EventRow]
    quarantine: Sequence[QuarantineRow]
    certified: frozenset[date]
    batch: Sequence[EventRow]
    serving: Sequence[EventRow]
    output: Sequence[OutputRecord]
    sent_again: Sequence[Mapping[int, int]] = ()


@dataclass(frozen=True)
class Poll:
    """What a reader found at a moment of a run.

    Attributes:
        at_s: when, in seconds since the run began.
        verdicts: how many times each day was certified.
        served: a digest of the rows that readers get of each certified day.
        copied: a digest of the rows of each day of the serving table.
        doubled: keys that were there twice, in what readers get or in the serving table.
    """

    at_s: float
    verdicts: Mapping[date, int]
    served: Mapping[date, str]
    copied: Mapping[date, str] = field(default_factory=dict)
    doubled: Sequence[EventKey] = ()
