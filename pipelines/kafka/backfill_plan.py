"""What a backfill reads: the offsets that were asked for, that bronze lacks, and that ingest leaves to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from pipelines.config.commands import command
from pipelines.config.model import PipelineConfig
from pipelines.errors import ConfigError
from pipelines.kafka.backfill_lake import BackfillLake
from pipelines.kafka.ingest_position import lost_tail_ranges
from pipelines.kafka.known_gaps import is_known_gap, known_of
from pipelines.kafka.missing_offsets import MissingOffsets, lacking

_NOTHING: Final = MissingOffsets()


@dataclass(frozen=True)
class BackfillSpan:
    """What was asked for: records by the time at which they were sent, or by their offsets.

    Attributes:
        since: From the first record of each partition that was sent at this moment or later; None: from the
            first that Kafka has.
        until: Up to the first record that was sent at this moment or later; None: up to where ingest goes on.
        offsets: By partition, if offsets were asked for.
        cluster: The cluster that has them; None for the first.
    """

    since: datetime | None = None
    until: datetime | None = None
    offsets: Mapping[int, range] = field(default_factory=dict)
    cluster: str | None = None


@dataclass(frozen=True)
class PartitionPlan:
    """What is to be read of a partition.

    Attributes:
        span: The offsets that were asked for.
        lack: What bronze lacks of those that Kafka has, below where ingest goes on.
        gone: What it lacks of those that Kafka no longer has, without `audit.known_gaps`.
        left_to_ingest: How many of the offsets that Kafka has ingest will read itself.
        removed: Offsets that retention has removed from bronze, which stay out.
        first: The first offset in bronze: what lies before it is read from its end. If bronze has none,
            where ingest goes on; or, if it had some and lost them, the first of those.
    """

    span: range
    lack: MissingOffsets
    gone: MissingOffsets = _NOTHING
    left_to_ingest: int = 0
    removed: int = 0
    first: int = 0


def plan_backfill(lake: BackfillLake, asked: BackfillSpan) -> dict[int, PartitionPlan]:
    """Return what a backfill has to read of each partition that it was asked for.

    Where ingest goes on is looked up before bronze, so that bronze has what lies below.

    Args:
        lake: What bronze and Kafka say.
        asked: What was asked for.

    Raises:
        ConfigError: The topic has no such partition; or a gap would be left before the first record in
            bronze, or behind the last one, where neither ingest nor the seal would see it.
        InfrastructureError: The cluster does not answer.
    """
    topic = lake.topic
    if unknown := sorted(number for number in asked.offsets if number >= topic.partitions):
        raise ConfigError(
            f"--offsets: found partition {unknown[0]}, expected 0 to {topic.partitions - 1}, which"
            f" {lake.config.kafka.source_topic} has"
        )
    continues = ingest_continues(lake)
    available = lake.available()
    starts, stops = (lake.sent_since(moment) if moment else {} for moment in (asked.since, asked.until))
    spans = dict(asked.offsets) or _by_time(lake, asked, available, starts, stops)
    held, first_kept = lake.held(), lake.first_kept()
    lost = lost_tail_ranges(lake)
    if first_kept is None:
        # Of a bronze that was cut otherwise, what lies before its first record stays out.
        first_kept = {n: offsets.start for n, offsets in held.items()}
    elif unheld := spans.keys() - held.keys():
        lost |= _all_lost(lake, {n: available[n] for n in unheld}, continues)
    plans = {
        n: Bounds(span, available[n], continues.get(n, 0), held.get(n), first_kept.get(n, 0), lost.get(n))
        for n, span in sorted(spans.items())
    }
    _require_no_gap(lake.config, plans)
    missing = lacking(lake.blocks, {number: bounds.readable for number, bounds in plans.items()})
    gone = gone_of(lake, {number: bounds.deleted for number, bounds in plans.items()})
    return {
        number: PartitionPlan(
            bounds.span,
            missing[number],
            gone.get(number, _NOTHING),
            bounds.left_to_ingest,
            bounds.removed,
            bounds.first,
        )
        for number, bounds in plans.items()
    }


def _all_lost(
    lake: BackfillLake, available: Mapping[int, range], continues: Mapping[int, int]
) -> dict[int, range]:
    """Return what ingest has read of partitions of which bronze has nothing, which is lost.

    Its checkpoint may have forgotten most of it. Where retention has removed records, nobody can tell. Where
    Kafka has no record among these offsets, as after transactions that were aborted, nothing is missing.

    Args:
        lake: What bronze and Kafka say.
        available: The partitions, and what Kafka has of them.
        continues: Where ingest goes on.
    """
    began = lake.first_began()
    read = {n: range(began.get(n, 0), continues.get(n, 0)) for n in available}
    there = {n: _between(read[n], offsets.start, offsets.stop) for n, offsets in available.items()}
    filled = lake.records_within({n: r for n, r in there.items() if r}, stop_at_first=True)
    return {n: offsets for n, offsets in read.items() if n in filled}


def gone_of(lake: BackfillLake, deleted: Mapping[int, range]) -> dict[int, MissingOffsets]:
    """Return what bronze lacks of offsets that Kafka no longer has, without `audit.known_gaps`.

    Args:
        lake: What bronze says.
        deleted: The offsets, by partition.

    Returns:
        By partition; those of which it lacks none are left out.
    """
    spans = {number: offsets for number, offsets in deleted.items() if offsets}
    if not spans:
        return {}
    gone = lacking(lake.blocks, spans)
    known = known_of(lake.held_within, lake.config.audit.known_gaps, spans)
    left = {number: lack.offsets - known.get(number, 0) for number, lack in gone.items()}
    return {
        number: MissingOffsets(left[number], lack.ranges) for number, lack in gone.items() if left[number] > 0
    }


def ingest_continues(lake: BackfillLake) -> Mapping[int, int]:
    """Return the offset at which ingest goes on, by partition; what it has not got to is not in the result.

    Without a micro-batch that is done, as after a reset, that is behind the last record in bronze.
    """
    done = lake.files().next_batch - 1
    if done >= 0:
        plan = lake.plan(done)
        return plan.ends if plan else {}
    return {number: last + 1 for number, last in lake.last_offsets().items()}


@dataclass(frozen=True)
class Bounds:
    """Offsets that were asked for of a partition, and what divides them.

    Attributes:
        span: What was asked for.
        available: What Kafka has.
        continues: Where ingest goes on.
        held: The first to the last offset in bronze; None if there is none.
        kept: The first offset that stays in bronze: what lies before it was removed. 0 if nothing was.
        lost: What ingest had read behind them, and bronze lacks; None if nothing.
    """

    span: range
    available: range
    continues: int
    held: range | None = None
    kept: int = 0
    lost: range | None = None

    @property
    def first(self) -> int:
        """See `PartitionPlan`."""
        if self.held:
            return self.held.start
        return self.lost.start if self.lost else self.continues

    @property
    def gaps(self) -> list[range]:
        """What would be left out before the first record in bronze, and behind the last one."""
        readable = self.readable
        before = range(readable.stop, self.first)
        behind = range(max(self.lost.start, self.available.start), readable.start) if self.lost else range(0)
        return [gap for gap in (before, behind) if gap and readable]

    @property
    def readable(self) -> range:
        """What Kafka has of it, and ingest does not read itself."""
        return _between(self.span, max(self.available.start, self.kept), self.continues)

    @property
    def deleted(self) -> range:
        """What Kafka no longer has of it."""
        return _between(self.span, self.kept, self.available.start)

    @property
    def left_to_ingest(self) -> int:
        """How many offsets ingest will read itself."""
        return len(_between(self.span, max(self.continues, self.available.start), self.available.stop))

    @property
    def removed(self) -> int:
        """How many offsets retention has removed."""
        return len(_between(self.span, 0, self.kept))


def _between(span: range, first: int, stop: int) -> range:
    start = max(span.start, first)
    return range(start, max(start, min(span.stop, stop)))


def _by_time(
    lake: BackfillLake,
    asked: BackfillSpan,
    available: Mapping[int, range],
    starts: Mapping[int, int],
    stops: Mapping[int, int],
) -> dict[int, range]:
    """Return the offsets of each partition between two moments.

    A moment before the first record that Kafka has may be one of which Kafka has deleted records.

    Args:
        lake: What bronze says.
        asked: The moments.
        available: The offsets that Kafka has.
        starts: By partition, the first offset since the first moment; -1 if there is none.
        stops: The same of the second.
    """
    spans: dict[int, range] = {}
    unproven: dict[int, range] = {}
    for number, offsets in available.items():
        spans[number] = sent_within(offsets, starts.get(number), stops.get(number))
        if asked.since and spans[number].start == offsets.start > 0:
            unproven[number] = range(offsets.start)
    if unproven and asked.since:
        proven = lake.last_sent_before(asked.since, {n: offsets.stop for n, offsets in unproven.items()})
        spans |= {n: range(proven.get(n, -1) + 1, spans[n].stop) for n in unproven}
    return spans


def sent_within(available: range, start: int | None, stop: int | None) -> range:
    """Return the offsets of a partition between two moments.

    Args:
        available: The offsets that Kafka has.
        start: The first offset since the first moment, -1 if there is none; None if no moment was named.
        stop: The same of the second.
    """
    first = available.start if start is None else start
    end = available.stop if stop is None else stop
    return range(available.stop if first < 0 else first, available.stop if end < 0 else end)


def _require_no_gap(config: PipelineConfig, plans: Mapping[int, Bounds]) -> None:
    """Refuse to leave a gap at an end of bronze, but for one that is known.

    Raises:
        ConfigError: There would be one; the message has the offsets that leave none.
    """
    found, needed = list[str](), list[str]()
    for number, bounds in plans.items():
        gaps = [gap for gap in bounds.gaps if not is_known_gap(number, gap, config.audit.known_gaps)]
        if not gaps:
            continue
        found += [f"{config.kafka.source_topic}-{number} @ {gap.start}..{gap.stop - 1}" for gap in gaps]
        whole = [bounds.readable, *gaps]
        first, stop = min(each.start for each in whole), max(each.stop for each in whole)
        needed.append(f"--offsets {number}:{first}..{stop - 1}")
    if found:
        raise ConfigError(
            f"{config.table('bronze')} would lack offsets between its records and those that were asked for:"
            f" found {'; '.join(found)}, expected none. Nothing was read. Ask for them as well, or first:"
            f" {command(config, 'backfill', ' '.join(needed))}. See docs/backfill.md, 'What it does'"
        )
