"""What is known of a stage that may be behind: figures of its partitions, of its stream and of Kafka."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Final

from pipelines.config.streams import Query
from pipelines.kafka.fetches import FetchFigures
from pipelines.spark.stream_progress import BatchFigures, Refusal, StreamProgress

_RECENT: Final = timedelta(minutes=5)
# A run that takes what is there and ends, of which no earlier one is known.
_ONCE_S: Final = 60.0


@dataclass(frozen=True)
class PartitionLag:
    """How far a stage is behind in one partition.

    Attributes:
        partition: Its number; None where a stage does not know partitions.
        records: Offsets, or rows, that the stage has not processed.
        behind_s: The age of the first of these in seconds, by its own timestamp; None if there are none, or
            if it is unknown.
        rate_in: Records that come each second; None if unknown.
        rate_out: Records that the stage processes each second; None if unknown.
        retention_s: Seconds until Kafka deletes the first of these; None if it does not, or if this is not
            ingest.
        lost: Offsets that Kafka has deleted before they were processed.
        ahead: Offsets that were processed and that Kafka does not have.
        hidden: Offsets that an open transaction hides for more than five minutes.
        is_cut: Whether there may be more records than are counted.
    """

    partition: int | None
    records: int
    behind_s: float | None = None
    rate_in: float | None = None
    rate_out: float | None = None
    retention_s: float | None = None
    lost: int = 0
    ahead: int = 0
    hidden: int = 0
    is_cut: bool = False

    @property
    def catch_up_s(self) -> float | None:
        """Seconds until nothing is left at the present rates; None if that is never, or unknown."""
        return _catch_up(self.records, self.rate_in, self.rate_out)


@dataclass(frozen=True)
class TopicHealth:
    """The state of the topic.

    Attributes:
        offline: Partitions without a leader, of whose records nothing is known.
        under_replicated: Partitions with a replica that is not in sync.
        moved: Partitions that are led by another broker than that of their first replica.
        retention_s: How long Kafka keeps a record, in seconds; None if it does not delete by age.
        is_other: Whether it is not the topic that bronze was filled from.
    """

    offline: tuple[int, ...] = ()
    under_replicated: tuple[int, ...] = ()
    moved: tuple[int, ...] = ()
    retention_s: float | None = None
    is_other: bool = False


@dataclass(frozen=True)
class FrequentKey:
    """A frequent key of a sample: the key of records in Kafka, not that of the deduplication.

    Attributes:
        shown: What may be shown of it; None if nothing may be, or if records have no key.
        is_missing: Whether these are records without a key.
        share: Of the records of the sample, those with this key; at most.
        least: The same; at least.
        offset: Where such a record lies.
    """

    shown: str | None
    is_missing: bool
    share: float
    least: float
    offset: int


@dataclass(frozen=True)
class KeySample:
    """The keys of some unread records of a partition.

    Attributes:
        partition: The partition.
        records: How many records were looked at.
        keys: The most frequent keys, the most frequent first.
    """

    partition: int
    records: int
    keys: tuple[FrequentKey, ...]


@dataclass(frozen=True)
class FrequentDedupKey:
    """A frequent dedup key of a sample.

    Attributes:
        shown: What may be shown of it, as `oncelake explain` takes it; None if nothing may be.
        share: Of the rows of the sample, those with this key.
        place: Where such a row comes from, such as `flights-1@7`.
    """

    shown: str | None
    share: float
    place: str


@dataclass(frozen=True)
class DedupKeySample:
    """The dedup keys of some rows that a stage has not read, or has just read.

    Attributes:
        rows: How many rows were looked at.
        keys: The most frequent keys of valid ones, the most frequent first.
    """

    rows: int
    keys: tuple[FrequentDedupKey, ...]


@dataclass(frozen=True)
class StageFacts:
    """What is known of a stage.

    Attributes:
        stage: Which.
        at: When it was asked for.
        partitions: How far it is behind.
        stream: The figures of the newest run of its stream; None if it has left none.
        planned_at: When the newest micro-batch of its checkpoint was planned; None if there is none.
        is_alive: Whether the process of that run is there; None if it is on another machine.
        refusal: Why the last start was refused, if no run was at work since.
        missing_table: The table that the stage reads, if there is none yet.
        upstream_rate: Records that come each second, where partitions do not say; None if unknown.
        usual_rate_in: Records that came each second in the hour before the last minutes; None if unknown.
        health: Of the topic, for the stage that reads it.
        wanted_executors: How many executors the configuration asks for; None if it does not say.
        cluster: Of ingest, the cluster that it reads; None for the first.
        unreachable: Why that cluster was not asked, if it does not answer and others do not depend on it.
        fetches: Of a stage that reads Kafka and is behind, how brokers answer fetches; None if it is unknown.
        sample: Of such a stage whose partitions are uneven, keys of the partition that is most behind; None
            if they are unknown.
        dedup_keys: Of a stage that reads a table and has a long task, dedup keys; None if they are unknown.
    """

    stage: Query
    at: datetime
    partitions: tuple[PartitionLag, ...]
    stream: StreamProgress | None = None
    planned_at: datetime | None = None
    is_alive: bool | None = None
    refusal: Refusal | None = None
    missing_table: str | None = None
    upstream_rate: float | None = None
    usual_rate_in: float | None = None
    health: TopicHealth | None = None
    wanted_executors: int | None = None
    cluster: str | None = None
    unreachable: str | None = None
    fetches: FetchFigures | None = None
    sample: KeySample | None = None
    dedup_keys: DedupKeySample | None = None

    @property
    def name(self) -> str:
        """The stage, with the cluster if it is a further one, such as `ingest@eu`."""
        return self.stage if self.cluster is None else f"{self.stage}@{self.cluster}"

    @property
    def records(self) -> int:
        """Records that the stage has not processed."""
        return sum(each.records for each in self.partitions)

    @property
    def behind_s(self) -> float | None:
        """The age of the oldest of these, in seconds; 0 if there are none, None if it is unknown."""
        ages = [each.behind_s for each in self.partitions if each.records]
        known = [age for age in ages if age is not None]
        return None if len(known) < len(ages) else max(known, default=0.0)

    @property
    def rate_in(self) -> float | None:
        """Records that come each second; None if unknown."""
        return (
            self.upstream_rate
            if self.upstream_rate is not None
            else _sum([each.rate_in for each in self.partitions])
        )

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
        return records / seconds if seconds > 0 else None

    @property
    def catch_up_s(self) -> float | None:
        """Seconds until nothing is left at the present rates; None if that is never, or unknown."""
        return _catch_up(self.records, self.rate_in, self.rate_out)

    @property
    def trigger_s(self) -> float:
        """The time between two micro-batches, in seconds."""
        return self.stream.trigger_s if self.stream else 0.0

    @property
    def is_once(self) -> bool:
        """Whether its stream takes what is there and ends, to be started again by a scheduler."""
        return self.stream is not None and not self.stream.trigger_s

    @property
    def step_s(self) -> float:
        """The time from one micro-batch, or one run with `--once`, to the next, in seconds."""
        if self.stream and self.is_once and self.stream.previous_at:
            return (self.stream.started_at - self.stream.previous_at).total_seconds()
        return self.trigger_s or _ONCE_S

    @property
    def busy(self) -> tuple[BatchFigures, ...]:
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
    if rate_in is None or rate_out is None or rate_out <= rate_in:
        return None
    return records / (rate_out - rate_in)
