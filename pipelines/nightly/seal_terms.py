"""Whether bronze has all that was sent until the end of a day: the terms of the seal.

What is asked of lake and cluster goes through `SealLake`: the simulation has a model of it.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Final, Protocol, TypeVar
from zoneinfo import ZoneInfo

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_fixed

from pipelines.config.commands import command
from pipelines.config.model import PipelineConfig
from pipelines.errors import ConfigError, SourceError
from pipelines.kafka.ingest_position import end_offsets_after
from pipelines.kafka.ingest_state import IngestState
from pipelines.kafka.known_gaps import is_known_gap
from pipelines.kafka.log_divergence import require_same_log
from pipelines.kafka.topic_offsets import BrokerOffsets
from pipelines.ledger.offset_ranges import PartitionOffsets
from pipelines.message_texts import first_items
from pipelines.runtime.system_clock import Clock

_LOOK_EVERY_S: Final = 2.0
_SHOWN: Final = 5


class _NotYet(SourceError):
    """Bronze has not come far enough; it may in a moment."""


class SealedIndex(Protocol):
    """The index of a version of bronze."""

    def offsets(self) -> Sequence[PartitionOffsets]:
        """Return what that version holds of each partition."""


Index_co = TypeVar("Index_co", bound=SealedIndex, covariant=True)


class SealLake(Clock, Protocol[Index_co]):
    """A lake whose days are sealed."""

    @property
    def config(self) -> PipelineConfig:
        """The pipeline's configuration."""

    @property
    def zone(self) -> ZoneInfo:
        """The zone in which days end."""

    def ingests(self) -> Sequence[IngestState]:
        """Find the topic of each cluster that is asked, and make sure that bronze was filled from it."""

    def first_kept(self, source: PipelineConfig) -> Mapping[int, int] | None:
        """Return the first offset of each partition that retention kept in bronze, where it removed any.

        Args:
            source: The configuration of one cluster, whose records are meant.

        Returns:
            None if other records were lost, too.
        """

    def index(self) -> Index_co:
        """Return the index of bronze as it is now."""


def wait_until_sealed(lake: SealLake[Index_co], last: date) -> Index_co:
    """Wait until bronze has all of a day and of those before it; see `pipelines.nightly.seal.seal`."""
    config = lake.config
    end = end_of(last, lake.zone) + config.batch.seal_grace
    if lake.now() < end:
        raise SourceError(
            f"{last} cannot be sealed before {end:%Y-%m-%d %H:%M:%S} UTC (its end plus batch.seal_grace); run"
            " again then"
        )
    asked = lake.ingests() if config.batch.seal_by == "kafka" else ()
    topics = [_Topic(ingest, partial(lake.first_kept, ingest.config)) for ingest in asked]
    until = lake.elapsed_s() + config.batch.seal_wait.total_seconds()

    def is_over(_: RetryCallState) -> bool:
        return lake.elapsed_s() >= until

    for attempt in Retrying(
        retry=retry_if_exception_type(_NotYet),
        stop=is_over,
        wait=wait_fixed(_LOOK_EVERY_S),
        sleep=lake.pause,
        reraise=True,
    ):
        with attempt:
            index = lake.index()
            offset_ranges = index.offsets()
            _require_records(config, lake.zone, offset_ranges, last)
            for topic in topics:
                require_none_lacking(topic.config, last, topic.lacking(offset_ranges, end))
    for topic in topics:
        topic.require_same_log(offset_ranges)
    return index


def require_begun(ingest: IngestState) -> None:
    """Make sure that ingest has begun with the cluster, if it is one of several.

    Only then does bronze know its topic, and which days are incomplete since records had been deleted.

    Raises:
        SourceError: It has not.
    """
    config, kafka = ingest.config, ingest.config.kafka
    if kafka.has_others and not ingest.has_begun(ingest.files()):
        raise SourceError(
            f"{config.table('bronze')}: ingest has not started for {kafka.source_topic} of"
            f" {kafka.setting('bootstrap_servers')}; run: {command(config, 'ingest_stream', '--once')}"
        )


class _Topic:
    """The topic of a cluster as it was when a run began: what it had then no longer changes."""

    def __init__(self, ingest: IngestState, first_kept: Callable[[], Mapping[int, int] | None]) -> None:
        self._ingest, self.config, self._first_kept = ingest, ingest.config, first_kept
        config = self.config
        self.broker_offsets = ingest.readable()
        ends = {number: broker.end for number, broker in self.broker_offsets.items()}
        require_known_gaps_past(config, ends, f"topic {config.kafka.source_topic}")
        # By partition and range of offsets, whether there are records.
        self._has_records: dict[tuple[int, range], bool] = {}

    def require_same_log(self, offset_ranges: Sequence[PartitionOffsets]) -> None:
        """Make sure that Kafka has the records that bronze has, as far as their last ones show.

        Raises:
            SourceError: It ends before them, or has others there.
        """
        require_same_log(self._ingest, _last_offsets(self.config, offset_ranges))

    def lacking(self, offset_ranges: Sequence[PartitionOffsets], end: datetime) -> dict[int, range]:
        """Return the partitions with records that bronze lacks, and the offsets among which these are.

        Raises:
            SourceError: Offsets are gone from Kafka, and bronze does not have them.
        """
        of_topic = [offsets for offsets in offset_ranges if offsets.topic == self.config.kafka.source_topic]
        seen = end_offsets_after(self._ingest, end)
        seen_offsets = {
            number: BrokerOffsets(broker.earliest, min(broker.end, seen.get(number, broker.end)))
            for number, broker in self.broker_offsets.items()
        }
        # Ingest may have begun meanwhile.
        began = self._ingest.first_began()
        above = above_bronze(of_topic, seen_offsets, end, began)
        ends = {
            number: range(offsets.start, self.broker_offsets[number].earliest)
            for number, offsets in above.items()
        }
        before = self._before_bronze(of_topic, began)
        deleted = {n: range(r.start, min(r.stop, self.broker_offsets[n].earliest)) for n, r in before.items()}
        # An empty range, where Kafka has deleted none of them, counts as known.
        known = self.config.audit.known_gaps
        gone = [each for each in [*ends.items(), *deleted.items()] if not is_known_gap(*each, known)]
        if gone and self.config.audit.offset_gaps == "fail":
            raise SourceError(_gone(self.config, gone))
        if unread := self._unread([each for each in ends.items() if not is_known_gap(*each, known)]):
            raise SourceError(_gone_unread(self.config, unread))
        kept = {n: range(max(r.start, self.broker_offsets[n].earliest), r.stop) for n, r in before.items()}
        if skipped := self._with_records({n: r for n, r in kept.items() if not is_known_gap(n, r, known)}):
            raise _NotYet(_skipped(self.config, skipped))
        return self._with_records(above)

    def _unread(self, gone: Sequence[tuple[int, range]]) -> list[tuple[int, range]]:
        """Return deleted offsets that ingest has not come past: nobody knows whether they were records.

        What it has come past were markers of transactions, or compacted.
        """
        if not gone:
            return []
        done = self._ingest.files().next_batch - 1
        plan = self._ingest.plan(done) if done >= 0 else None
        ends = plan.ends if plan else {}
        return [(number, offsets) for number, offsets in gone if offsets.stop > ends.get(number, 0)]

    def _with_records(self, ranges: Mapping[int, range]) -> dict[int, range]:
        """Return those of some offsets among which Kafka has records."""
        readable = {
            n: range(max(offsets.start, self.broker_offsets[n].earliest), offsets.stop)
            for n, offsets in ranges.items()
        }
        unknown = {n: r for n, r in readable.items() if r and (n, r) not in self._has_records}
        counts = self._ingest.records_within(unknown, stop_at_first=True)
        self._has_records |= {(n, r): n in counts for n, r in unknown.items()}
        return {n: offsets for n, offsets in ranges.items() if self._has_records.get((n, readable[n]))}

    def _before_bronze(
        self, offset_ranges: Sequence[PartitionOffsets], began: Mapping[int, int]
    ) -> dict[int, range]:
        """Return the offsets between where ingest began and the first one in bronze.

        Bronze has lost what they held, as by a RESTORE, unless retention removed them or bronze says that it
        lost others.
        """
        kept = self._first_kept() if began else None
        if kept is None:
            return {}
        return {
            each.partition: range(max(began.get(each.partition, 0), kept.get(each.partition, 0)), each.first)
            for each in offset_ranges
            if each.partition in self.broker_offsets
        }


def require_known_gaps_past(config: PipelineConfig, ends: Mapping[int, int], source: str) -> None:
    """Make sure that `audit.known_gaps` accepts nothing as lost that is still to come.

    Args:
        config: The pipeline's configuration.
        ends: By partition, the offset before which all are past.
        source: Who says so, for the message: the topic, or bronze where Kafka is not asked.

    Raises:
        ConfigError: It names such offsets, or a partition that is not there.
    """
    for gap in config.audit.known_gaps:
        number, gap_text = gap.partition, f"found partition {gap.partition}, {gap.first}..{gap.last}"
        if number not in ends:
            raise ConfigError(f"audit.known_gaps: {gap_text}; {source} has no partition {number}")
        if gap.last >= ends[number]:
            raise ConfigError(
                f"audit.known_gaps: {gap_text}; expected offsets less than {ends[number]}, where {source}"
                " ends: list only what was lost"
            )


def _last_offsets(config: PipelineConfig, offset_ranges: Sequence[PartitionOffsets]) -> dict[int, int]:
    return {each.partition: each.last for each in offset_ranges if each.topic == config.kafka.source_topic}


def above_bronze(
    offset_ranges: Sequence[PartitionOffsets],
    broker_offsets: Mapping[int, BrokerOffsets],
    end: datetime,
    began: Mapping[int, int],
) -> dict[int, range]:
    """Return the offsets above the last one in bronze, of each partition of which Kafka has any.

    Args:
        offset_ranges: What bronze holds of each partition.
        broker_offsets: What Kafka has of each partition.
        end: A partition with a record that the broker took at this moment or later is not among them.
        began: Where ingest first began, as far as that is known of the partition. What Kafka had deleted
            by then is not missed here: bronze says from which day on it is complete.
    """
    by_partition = {offsets.partition: offsets for offsets in offset_ranges}
    above: dict[int, range] = {}
    for partition, broker in sorted(broker_offsets.items()):
        bronze = by_partition.get(partition)
        start = bronze.last + 1 if bronze else began.get(partition, 0)
        if start < broker.end and not (bronze and bronze.appended and bronze.appended >= end):
            above[partition] = range(start, broker.end)
    return above


def end_of(day: date, zone: ZoneInfo) -> datetime:
    """Return the moment at which a day ends."""
    return datetime.combine(day + timedelta(days=1), time(), zone).astimezone(UTC)


def _require_records(
    config: PipelineConfig, zone: ZoneInfo, offset_ranges: Sequence[PartitionOffsets], last: date
) -> None:
    bronze = config.table("bronze")
    if not offset_ranges:
        raise _NotYet(f"{bronze}: empty; run first: {command(config, 'ingest_stream', '--once')}")
    if config.batch.seal_by == "kafka":
        return
    newest = max(offsets.sent for offsets in offset_ranges)
    if newest.astimezone(zone).date() < last:
        raise _NotYet(
            f"{bronze}: no record of {last} yet: the newest one was sent at {newest:%Y-%m-%d %H:%M} UTC;"
            f" {_catch_up(config)}"
        )
    require_known_gaps_past(config, _last_offsets(config, offset_ranges), bronze)


def require_none_lacking(config: PipelineConfig, last: date, lacking: Mapping[int, range]) -> None:
    """Make sure that bronze lacks nothing that a day has to be sealed with.

    Args:
        config: The pipeline's configuration.
        last: The day.
        lacking: By partition, the offsets that bronze has to come through yet.

    Raises:
        SourceError: It lacks some.
    """
    if not lacking:
        return
    shown = [
        f"{config.kafka.source_topic}-{number}: bronze lacks records in offsets"
        f" {offsets.start}..{offsets.stop - 1}"
        for number, offsets in lacking.items()
    ]
    raise _NotYet(
        f"{config.table('bronze')}: {last} cannot be sealed yet: {first_items(shown, _SHOWN, 'partitions')};"
        f" {_catch_up(config)}; if it has, find out what bronze lacks: {command(config, 'reconcile')}"
    )


def _catch_up(config: PipelineConfig) -> str:
    return f"let ingest catch up: {command(config, 'ingest_stream', '--once')}"


def _skipped(config: PipelineConfig, skipped: Mapping[int, range]) -> str:
    shown = [
        f"{config.kafka.source_topic}-{number}: offsets {offsets.start:,} to {offsets.stop - 1:,}"
        for number, offsets in skipped.items()
    ]
    parts = " ".join(f"--offsets {n}:{each.start}..{each.stop - 1}" for n, each in skipped.items())
    return (
        f"{config.table('bronze')}: Kafka has records before the first one in bronze, which ingest has"
        f" passed: {first_items(shown, _SHOWN, 'partitions')}. No day was certified. Bronze lost them: read"
        f" them again: {command(config, 'backfill', parts)}; or list them in audit.known_gaps"
    )


def _shown_offsets(config: PipelineConfig, ranges: Sequence[tuple[int, range]]) -> str:
    return "; ".join(
        f"{config.kafka.source_topic}-{number}: offsets {offsets.start:,} to {offsets.stop - 1:,}"
        for number, offsets in ranges[:_SHOWN]
    )


def _gone_unread(config: PipelineConfig, gone: Sequence[tuple[int, range]]) -> str:
    return (
        f"{config.table('bronze')}: Kafka has deleted offsets that ingest has not read:"
        f" {_shown_offsets(config, gone)}. No day was certified. See docs/runbook.md, 'Offsets are gone'"
    )


def _gone(config: PipelineConfig, gone: Sequence[tuple[int, range]]) -> str:
    return (
        f"{config.table('bronze')}: Kafka has deleted offsets that bronze lacks:"
        f" {_shown_offsets(config, gone)}. See docs/runbook.md, 'Offsets are gone'. On a compacted or"
        " transactional topic, set audit.offset_gaps: warn; list a loss that you accept in audit.known_gaps"
    )
