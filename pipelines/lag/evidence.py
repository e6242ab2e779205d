"""What is known of a stage that may be behind: figures of its partitions, of its stream and of Kafka."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import median
from typing import Final

from pipelines.spark.stream_progress import MicroBatch, Query, StreamProgress

_RECENT: Final = timedelta(minutes=5)


@dataclass(frozen=True)
class PartitionLag:
    """How far a stage is behind in one partition.

    Attributes:
        partition: Its number; None where a stage does not know partitions.
        records: Offsets, or rows, that the stage has not processed.
        behind_s: The age of the first of these in seconds, by its own timestamp; None if there are none.
        rate_in: Records that come each second; None if unknown.
        rate_out: Records that the stage processes each second; None if unknown.
        retention_s: Seconds until Kafka deletes the first of these; None if it does not, or if this is not
            ingest.
        lost: Offsets that Kafka has deleted before they were processed.
    """

    partition: int | None
    records: int
    behind_s: float | None = None
    rate_in: float | None = None
    rate_out: float | None = None
    retention_s: float | None = None
    lost: int = 0

    @property
    def catch_up_s(self) -> float | None:
        """Seconds until nothing is left at the present rates; None if that is never, or unknown."""
        return _catch_up(self.records, self.rate_in, self.rate_out)


@dataclass(frozen=True)
class TopicHealth:
    """Partitions of the topic that brokers do not serve as they should.

    Attributes:
        offline: Those without a leader.
        under_replicated: Those with a replica that is not in sync.
    """

    offline: tuple[int, ...] = ()
    under_replicated: tuple[int, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """What is known of a stage.

    Attributes:
        stage: Which.
        at: When it was asked for.
        partitions: How far it is behind.
        stream: The figures of the newest run of its stream; None if it has left none.
        in_flight_s: Since when the micro-batch that is begun and not done is being processed, in seconds;
            None if none is.
        is_alive: Whether the process of that run is there; None if it is on another machine.
        fed: Records that come each second, where partitions do not say; None if unknown.
        usual_rate_in: Records that have come each second in the last hour; None if unknown.
        health: Of the topic, for the stage that reads it.
        wanted_executors: How many executors the configuration asks for; None if it does not say.
    """

    stage: Query
    at: datetime
    partitions: tuple[PartitionLag, ...]
    stream: StreamProgress | None = None
    in_flight_s: float | None = None
    is_alive: bool | None = None
    fed: float | None = None
    usual_rate_in: float | None = None
    health: TopicHealth | None = None
    wanted_executors: int | None = None

    def of_topic(self, usual_rate_in: float, health: TopicHealth) -> "Evidence":
        """Return the same, with what is known of the topic."""
        return replace(self, usual_rate_in=usual_rate_in, health=health)

    def fed_with(self, rate: float | None) -> "Evidence":
        """Return the same, with the rate at which the stage before gives records."""
        return replace(self, fed=rate)

    @property
    def records(self) -> int:
        """Records that the stage has not processed."""
        return sum(each.records for each in self.partitions)

    @property
    def behind_s(self) -> float:
        """The age of the oldest of these, in seconds; 0 if there are none."""
        return max((each.behind_s for each in self.partitions if each.behind_s is not None), default=0.0)

    @property
    def rate_in(self) -> float | None:
        """Records that come each second; None if unknown."""
        return self.fed if self.fed is not None else _sum([each.rate_in for each in self.partitions])

    @property
    def rate_out(self) -> float | None:
        """Records that the stage processes each second; None if unknown."""
        by_partition = _sum([each.rate_out for each in self.partitions])
        return self._processed() if by_partition is None else by_partition

    def _processed(self) -> float | None:
        """Return the rate of the last minutes, by the micro-batches of the stream."""
        if not self.stream or not self.stream.batches:
            return None
        since = max(self.at - _RECENT, self.stream.batches[0].at)
        seconds = (self.at - since).total_seconds()
        records = sum(batch.records for batch in self.stream.batches if batch.at >= since)
        return records / seconds if seconds else None

    @property
    def catch_up_s(self) -> float | None:
        """Seconds until nothing is left at the present rates; None if that is never, or unknown."""
        return _catch_up(self.records, self.rate_in, self.rate_out)

    @property
    def trigger_s(self) -> float:
        """The time between two micro-batches, in seconds."""
        return self.stream.trigger_s if self.stream else 0.0

    @property
    def busy(self) -> tuple[MicroBatch, ...]:
        """The last micro-batches that read records, the oldest first."""
        return tuple(batch for batch in self.stream.batches if batch.records) if self.stream else ()

    @property
    def usual_s(self) -> float:
        """What a micro-batch with records usually takes, in seconds; 0 if none is known."""
        return median(batch.seconds for batch in self.busy) if self.busy else 0.0

    @property
    def capacity(self) -> float | None:
        """Records each second that the stage processes while it works; None if unknown."""
        seconds = sum(batch.seconds for batch in self.busy)
        return sum(batch.records for batch in self.busy) / seconds if seconds else None


def _sum(rates: Sequence[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def _catch_up(records: int, rate_in: float | None, rate_out: float | None) -> float | None:
    if not records:
        return 0.0
    gain = (rate_out or 0.0) - (rate_in or 0.0)
    return records / gain if gain > 0 else None
