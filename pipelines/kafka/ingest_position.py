"""How far ingest has read Kafka, by its checkpoint, and whether bronze has what it read."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from pipelines.errors import SourceError
from pipelines.kafka.bronze_offsets import Ingestion
from pipelines.kafka.ingest_state import IngestState
from pipelines.spark.checkpoints import QueryFiles
from pipelines.spark.ingest_plans import MicroBatchPlan

# Behind ingest's last commit there are those of upkeep, a few each day, and of a backfill, which may be many.
_LOOK_BACK: Final = (50, 1_000)

_log = logging.getLogger(__name__)


def end_offsets_after(state: IngestState, moment: datetime) -> Mapping[int, int]:
    """Return where Kafka's partitions ended at some time after a moment, as ingest has found it.

    A micro-batch whose size nothing bounds goes to the end of each partition, as it is when it is planned.
    Whether anything did is said by ingest's own commit: the configuration of whoever asks here may be
    another than that by which ingest ran.

    Returns:
        The offset after the last record of each partition, by the last micro-batch that ingest has done;
        empty if its commit does not say that Kafka was asked for them at the moment or later.
    """
    files = state.files()
    done = files.next_batch - 1
    if done < 0:
        return {}
    asked_at = _asked(state, files.query, done)
    if asked_at is None or datetime.fromtimestamp(asked_at / 1000, UTC) < moment:
        return {}
    plan = state.plan(done)
    return plan.ends if plan else {}


def _asked(state: IngestState, query: str | None, batch: int) -> int | None:
    """Return what the commit of a micro-batch says of when Kafka was asked, as `StreamCommit.asked`.

    Not later than the commit: the clock of ingest may be ahead of that of the store.
    """
    for most in _LOOK_BACK:
        if found := [each for each in state.commits(most) if (each.query, each.batch) == (query, batch)]:
            asked, committed = found[0].asked, found[0].committed
            return asked if asked is None or committed is None else min(asked, committed)
    return None


def checkpoint_mismatch(state: IngestState, files: QueryFiles) -> str | None:
    """Compare the records in bronze with those that ingest's checkpoint says were read.

    Looked at is what came with the micro-batches that the checkpoint still has, a hundred of them. Whether an
    offset behind the last record of bronze was one, or the marker of a transaction, Kafka is asked.

    Args:
        state: What is known of ingest.
        files: What the checkpoint says.

    Returns:
        What is wrong, in words; None if they match.

    Raises:
        InfrastructureError: The cluster does not answer.
    """
    known = _known(state, files)
    if known is None:
        return None
    tails, counts = _tails(state, known)
    if counts:
        return _lost(state.config.kafka.source_topic, counts, tails)
    came = state.last_offsets(Ingestion(since=known.since, after=known.newest.at))
    twice = {p: last for p, last in came.items() if last >= known.newest.ends.get(p, 0)}
    if twice:
        partition, last = min(twice.items())
        return (
            f"{state.config.table('bronze')} has {state.config.kafka.source_topic}-{partition} up to offset"
            f" {last}, which {files.path} does not know, so ingest would read these records again"
        )
    return None


def lost_tail_ranges(state: IngestState) -> dict[int, range]:
    """Return what bronze has lost behind its last records, as `checkpoint_mismatch` finds it; ingest may run.

    Returns:
        By partition, the offsets from the one after the last in bronze to where ingest is; of a partition
        without a record in bronze those that ingest's checkpoint still knows.

    Raises:
        InfrastructureError: The cluster does not answer.
    """
    known = _known(state, state.files())
    if known is None:
        return {}
    tails, counts = _tails(state, known)
    if not counts:
        return {}
    last_offsets = state.last_offsets(partitions=counts)
    return {p: range(last_offsets.get(p, tails[p].start - 1) + 1, tails[p].stop) for p in counts}


def passed(state: IngestState, files: QueryFiles) -> Mapping[int, int]:
    """Return up to where a checkpoint has read that fits bronze; what bronze lacks below it were no records.

    Args:
        state: What is known of ingest.
        files: What the checkpoint says. That its last commit is in bronze is known.

    Returns:
        The offset after the last one that was read, by partition; empty if bronze lacks some of what Kafka
        still has, or if nothing was read.

    Raises:
        InfrastructureError: The cluster does not answer.
    """
    done = state.plan(files.next_batch - 1) if files.next_batch else None
    return {} if done is None or checkpoint_mismatch(state, files) else done.ends


@dataclass(frozen=True)
class _Known:
    """What the checkpoint still knows.

    Attributes:
        starts: The offsets at which that begins.
        since: Since when its records came.
        done: The last micro-batch that is done.
        newest: The last one that is planned.
    """

    starts: Mapping[int, int]
    since: datetime
    done: MicroBatchPlan
    newest: MicroBatchPlan


def _known(state: IngestState, files: QueryFiles) -> _Known | None:
    done = state.plan(files.next_batch - 1) if files.next_batch else None
    newest = done if files.in_flight is None else state.plan(files.in_flight)
    began = _window(state)
    return None if done is None or newest is None or began is None else _Known(*began, done, newest)


def _tails(state: IngestState, known: _Known) -> tuple[Mapping[int, range], Mapping[int, int]]:
    """Return the offsets behind the last records of bronze, and how many records Kafka has there, if any."""
    tails = {p: range(known.starts.get(p, 0), end) for p, end in known.done.ends.items()}
    tails = _behind(tails, state.last_offsets(Ingestion(since=known.since, until=known.newest.at)))
    counts = state.records_within(_covered(state, tails))
    if counts:
        # A clock that was set back gives records of later micro-batches an earlier time.
        tails = _behind({p: tails[p] for p in counts}, state.last_offsets(partitions=counts))
        counts = state.records_within(_covered(state, tails))
    return tails, counts


def _lost(topic: str, lost: Mapping[int, int], tails: Mapping[int, range]) -> str:
    missing = "; ".join(
        f"{count:,} records of {topic}-{partition} from offset {tails[partition].start} on"
        for partition, count in sorted(lost.items())
    )
    return f"{missing}: Kafka has them, and bronze does not, though ingest's checkpoint says they were read"


def _behind(read: Mapping[int, range], last_offsets: Mapping[int, int]) -> dict[int, range]:
    """Return what was read of each partition and lies behind its last record in bronze."""
    behind = {
        p: range(max(offsets.start, last_offsets.get(p, -1) + 1), offsets.stop) for p, offsets in read.items()
    }
    return {p: offsets for p, offsets in behind.items() if offsets}


def _window(state: IngestState) -> tuple[Mapping[int, int], datetime] | None:
    """Return the offsets at which what the checkpoint still knows begins, and since when its records came."""
    oldest = state.oldest()
    planned = None if oldest is None else state.plan(oldest)
    if planned is None:
        return None
    if oldest:
        return planned.ends, planned.at
    began = state.began()
    return None if began is None else (began, planned.at)


def _covered(state: IngestState, ranges: Mapping[int, range]) -> dict[int, range]:
    """Return what of some offsets Kafka still covers; the others are logged."""
    if not ranges:
        return {}
    bounds = state.bounds()
    covered: dict[int, range] = {}
    for partition, offsets in ranges.items():
        available = bounds.get(partition, range(offsets.stop, offsets.stop))
        first, end = available.start, available.stop
        if offsets.start < first:
            _log.warning(
                "%s-%d: bronze lacks offsets %d to %d, which Kafka no longer has; whether they were records"
                " is unknown",
                state.config.kafka.source_topic,
                partition,
                offsets.start,
                min(first, offsets.stop) - 1,
            )
        covered[partition] = range(max(offsets.start, first), min(offsets.stop, end))
    return covered


@dataclass(frozen=True)
class Continuation:
    """Where ingest goes on without the checkpoint that it had.

    Attributes:
        topic: The topic's name.
        starts: The first offset of each partition; None for the earliest that Kafka has then.
        deleted: Offsets that Kafka has deleted before they came into bronze, by partition. Without a record
            in bronze, those from where ingest first began; none if bronze has no record at all.
        begun: The offsets that Kafka has of each partition of which bronze has no record.
    """

    topic: str
    starts: Mapping[int, int | None]
    deleted: Mapping[int, range]
    begun: Mapping[int, range] = field(default_factory=dict)

    @property
    def starting_offsets(self) -> str:
        """The same in the form of Spark's `startingOffsets`.

        The earliest offsets are those that Kafka was asked for: what it deletes until it is read is a loss.
        """
        starts = {str(n): self.begun[n].start if at is None else at for n, at in self.starts.items()}
        return json.dumps({self.topic: starts})

    @property
    def is_first(self) -> bool:
        """Whether bronze has no record of the topic."""
        return len(self.begun) == len(self.starts)


def start_mismatch(bronze: str, began: Mapping[int, int], start: Continuation) -> str | None:
    """Compare where a checkpoint began, of which no micro-batch is planned yet, with where bronze goes on.

    Spark keeps the first answer. What Kafka has deleted since then it reports itself.

    Args:
        bronze: The path of bronze.
        began: The first offset of each partition, by the checkpoint.
        start: Where ingest would begin now.

    Returns:
        What is wrong, in words; None if they match.
    """
    for partition, at in sorted(began.items()):
        if partition not in start.starts:
            continue
        known = start.starts[partition]
        if known is None:
            available = follows = start.begun[partition].start
        else:
            available = known
            follows = start.deleted[partition].start if partition in start.deleted else known
        # What Kafka has deleted between the two is passed over by ingest itself.
        if at > available or (at < follows and known is not None):
            return (
                f"{bronze} goes on at {start.topic}-{partition} @ {follows}, but the checkpoint of ingest,"
                f" which has no micro-batch yet, begins at offset {at}: {_between(at, follows)}. Bronze was"
                " restored from an older backup, or another run has written to it"
            )
    return None


def _between(at: int, follows: int) -> str:
    if at > follows:
        return f"offsets {follows} to {at - 1} would never be read"
    return f"ingest would read offsets {at} to {follows - 1} again"


def first_start(state: IngestState) -> Continuation:
    """Return where ingest begins with an empty bronze: at the earliest offset of each partition.

    Raises:
        InfrastructureError: The cluster does not answer.
    """
    bounds = state.bounds()
    return Continuation(state.topic.name, dict.fromkeys(sorted(bounds)), {}, bounds)


def first_start_at_latest(state: IngestState, noted: Mapping[int, int]) -> Continuation:
    """Return where ingest begins with an empty bronze: behind what the topic held when it was first started.

    What came since is read, however many starts have died before the checkpoint knew where to begin.

    Args:
        state: What is known of ingest.
        noted: Where the partitions ended at the first start; empty if this is the first.

    Raises:
        InfrastructureError: The cluster does not answer.
    """
    if not noted:
        ends = {number: offsets.end for number, offsets in sorted(state.readable().items())}
        return Continuation(state.topic.name, ends, {})
    bounds = state.bounds()
    # A partition that was added since had nothing to skip.
    starts = {number: max(noted.get(number, 0), held.start) for number, held in sorted(bounds.items())}
    unread = {number: range(noted.get(number, 0), at) for number, at in starts.items()}
    deleted = {number: offsets for number, offsets in unread.items() if offsets}
    return Continuation(state.topic.name, starts, deleted, {number: bounds[number] for number in deleted})


def continuation(state: IngestState) -> Continuation:
    """Return where ingest goes on after the last record of each partition in bronze.

    A partition of which bronze has nothing begins with the earliest offset that Kafka has. Where nobody knows
    where ingest first began with it, all that Kafka has deleted of it counts as lost.

    Raises:
        SourceError: Bronze has offsets that Kafka has not.
        InfrastructureError: The cluster does not answer.
    """
    last_offsets, topic = state.last_offsets(), state.topic
    bounds = state.bounds()
    starts: dict[int, int | None] = {}
    deleted: dict[int, range] = {}
    for partition, available in sorted(bounds.items()):
        if partition not in last_offsets:
            starts[partition] = None
            continue
        following = last_offsets[partition] + 1
        if following > available.stop:
            raise SourceError(
                f"{state.config.table('bronze')} has {state.config.kafka.source_topic}-{partition} up to"
                f" offset {following - 1}, but Kafka's end offset is {available.stop}: the topic has lost"
                " records, or is another. See docs/runbook.md, 'The topic was recreated'"
            )
        if following < available.start:
            deleted[partition] = range(following, available.start)
        starts[partition] = max(following, available.start)
    begun = {number: bounds[number] for number, at in starts.items() if at is None}
    start = Continuation(topic.name, starts, deleted, begun)
    if start.is_first or not begun:
        return start
    began = state.first_began()
    unread = {number: range(began.get(number, 0), held.start) for number, held in begun.items()}
    return replace(start, deleted={**deleted, **{n: offsets for n, offsets in unread.items() if offsets}})


def beginning(state: IngestState, start: Continuation) -> dict[int, int]:
    """Return where ingest first began, for a checkpoint that takes the place of the one that knows it.

    From there on bronze has, or has lost, all records of a partition, whatever became of it since.

    Args:
        state: What is known of ingest.
        start: Where it goes on.

    Returns:
        The offset of each partition; 0 for one that nobody knows, of which bronze has no record. Empty if
        bronze has no record at all: it then begins with what Kafka has.
    """
    if start.is_first:
        return {}
    began = state.first_began()
    return {n: began.get(n, 0 if began or at is None else at) for n, at in start.starts.items()}
