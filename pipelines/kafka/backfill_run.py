"""One run of a backfill: the protocol, without Spark.

What is read and written is behind `BackfillSource`. The job uses Kafka and Delta
(`pipelines.steps.backfill`); `simulation` uses models of them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, Protocol

from pipelines.delta.backfill_writer import BackfillTable, BackfillWriter, Records, newest_ingestion
from pipelines.delta.epochs import Stamp
from pipelines.fault_points import Point, reach
from pipelines.kafka.backfill_lake import BackfillLake
from pipelines.kafka.backfill_plan import BackfillSpan, PartitionPlan, gone_of, plan_backfill
from pipelines.kafka.log_divergence import last_offsets, require_same_log
from pipelines.kafka.missing_offsets import MissingRange, chunks, in_reading_order


class BackfillLease(Protocol):
    """The lease of backfills while it is held."""

    def require(self) -> None:
        """Make sure that the lease is still this run's."""

    def stamp(self, what: str) -> Stamp:
        """Return what the run's next commit carries."""


class BackfillSource(BackfillLake, BackfillTable[Records], Protocol[Records]):
    """What a run reads and writes."""

    def prepare(self, ranges: Mapping[int, Sequence[MissingRange]]) -> None:
        """Find out what has to be known of all that will be read."""

    def lacking(self, chunk: Mapping[int, MissingRange]) -> AbstractContextManager[Records]:
        """Read the records of a chunk that bronze does not have; they are kept within the block."""

    def count(self, records: Records) -> int:
        """Return how many records these are."""

    def require_same_topic(self) -> None:
        """Make sure that the topic is still the one that bronze was filled from."""

    def require_not_read_ahead(self) -> None:
        """Make sure that no reader of bronze has read later versions than it has."""


@dataclass(frozen=True)
class BackfillProgress:
    """How far a backfill is.

    Attributes:
        done: Offsets that were read.
        total: Offsets that are to be read.
        records: Records that were appended to bronze.
        elapsed_s: Seconds since the first chunk was begun.
    """

    done: int
    total: int
    records: int
    elapsed_s: float

    @property
    def left_s(self) -> float | None:
        """Seconds until all is read, at the rate so far; None as long as that is unknown."""
        return self.elapsed_s * (self.total - self.done) / self.done if self.done else None


@dataclass(frozen=True)
class Backfill:
    """What a backfill has read, or would read.

    Attributes:
        topic: What the topic is called in bronze.
        partitions: What was to be read of each partition.
        progress: How far it came; nothing is done in a dry run.
        chunks: How many commits it made.
        gone: By partition, the ranges of which bronze lacks offsets that Kafka no longer has.
    """

    topic: str
    partitions: Mapping[int, PartitionPlan]
    progress: BackfillProgress
    chunks: int = 0
    gone: Mapping[int, list[range]] = field(default_factory=dict)


Tell = Callable[[BackfillProgress], None]


def copy_missing(
    source: BackfillSource[Records],
    hold: AbstractContextManager[BackfillLease | None],
    asked: BackfillSpan,
    tell: Tell,
) -> Backfill:
    """Append to bronze what it lacks of some offsets; see `pipelines.steps.backfill.backfill`.

    Args:
        source: What is read and written.
        hold: Holds the lease of backfills; None in its place for a dry run.
        asked: Which records.
        tell: Is told how far the run is.
    """
    # Before the plan: what retention removes afterwards must not come back.
    whole_from = source.whole_from()
    source.require_same_topic()
    require_same_log(source, last_offsets(source))
    with hold as lease:
        plan = plan_backfill(source, asked)
        reach(Point.OFFSETS_PLANNED)
        run = BackfillRun(source, plan, tell)
        if lease:
            run.copy(lease, whole_from)
    return run.result()


class BackfillRun(Generic[Records]):
    """One run, and how far it is.

    Args:
        source: What it reads and writes.
        plan: What is to be read of each partition.
        tell: Is told how far it is.
    """

    def __init__(
        self, source: BackfillSource[Records], plan: Mapping[int, PartitionPlan], tell: Tell
    ) -> None:
        self._source, self._plan, self._tell = source, plan, tell
        self._ranges = {
            number: in_reading_order(each.lack.ranges, each.first)
            for number, each in plan.items()
            if each.lack.ranges
        }
        self._total = sum(len(each.offsets) for ranges in self._ranges.values() for each in ranges)
        self._done = self._records = self._chunks = 0
        self._began = self._source.elapsed_s()
        self._gone = {
            number: [each.offsets for each in partition.gone.ranges]
            for number, partition in plan.items()
            if partition.gone.offsets
        }

    @property
    def progress(self) -> BackfillProgress:
        """How far it is."""
        return BackfillProgress(
            self._done, self._total, self._records, self._source.elapsed_s() - self._began
        )

    def result(self) -> Backfill:
        """Return what it has done."""
        topic = self._source.config.kafka.source_topic
        return Backfill(topic, self._plan, self.progress, self._chunks, self._gone)

    def copy(self, lease: BackfillLease, whole_from: str | None) -> None:
        """Append chunk after chunk, no faster than it may.

        Args:
            lease: The lease of backfills.
            whole_from: What bronze said before the run was planned of the first day that retention has left.
        """
        if not self._ranges:
            return
        source, backfill = self._source, self._source.config.backfill
        source.prepare(self._ranges)
        writer = BackfillWriter(
            source.config.table("bronze"),
            backfill.chunk_offsets,
            source,
            newest_ingestion(source),
            whole_from,
            partial(self._require_right, lease),
        )
        rate = backfill.max_offsets_per_second
        self._began = source.elapsed_s()
        self._tell(self.progress)
        for chunk in chunks(self._ranges, backfill.most_at_once):
            self._append(self._covered(chunk), writer, lease)
            self._done += sum(len(each.offsets) for each in chunk.values())
            self._tell(self.progress)
            reach(Point.CHUNK_COMMITTED)
            if rate:
                source.pause(max(0.0, self._done / rate - self.progress.elapsed_s))

    def _append(
        self, chunk: Mapping[int, MissingRange], writer: BackfillWriter[Records], lease: BackfillLease
    ) -> None:
        if not chunk:
            return
        with self._source.lacking(chunk) as records:
            # Where there are markers of transactions alone, there is nothing to commit.
            if self._source.count(records):
                # That they are of this topic is known only now.
                self._source.require_same_topic()
                self._records += writer.append(records, lease.stamp("backfill"))
                self._chunks += 1

    def _covered(self, chunk: Mapping[int, MissingRange]) -> dict[int, MissingRange]:
        """Return what Kafka has of a chunk; what it has deleted since the run was planned is noted."""
        available = self._source.available()
        covered: dict[int, MissingRange] = {}
        deleted: dict[int, range] = {}
        for number, each in chunk.items():
            first = available[number].start
            deleted[number] = range(each.offsets.start, min(each.offsets.stop, first))
            if left := range(max(each.offsets.start, first), each.offsets.stop):
                covered[number] = replace(each, offsets=left)
        for number, lack in gone_of(self._source, deleted).items():
            self._gone.setdefault(number, []).extend(missing.offsets for missing in lack.ranges)
        return covered

    def _require_right(self, lease: BackfillLease) -> None:
        """Make sure, before a commit, that bronze is still this run's to write to.

        A table that was put back from a backup knows nothing of the epochs that were taken since.
        """
        lease.require()
        self._source.require_not_read_ahead()
