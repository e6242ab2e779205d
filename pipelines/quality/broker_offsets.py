"""Kafka against bronze: what bronze lacks, and whether anything explains it.

Offsets in, words out: nothing here touches a table or a cluster.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["before", "deleted", "skipped", "gap", "lag", "made_anew"]
Range = tuple[int, int]


@dataclass(frozen=True)
class Kept:
    """What Kafka has of a partition: its earliest offset, and the one after its newest."""

    earliest: int
    end: int


@dataclass(frozen=True)
class Held:
    """What bronze has of a partition.

    Attributes:
        first: its first offset.
        last: its last offset.
        gone: how many offsets between them bronze lacks, and Kafka has not any more.
        empty: how many it lacks that Kafka still covers, where Kafka gives no record.
        lost: how many it lacks where Kafka gives a record.
        skipped: how many records Kafka gives before the first.
        holes: the first few ranges that bronze lacks, both ends included.
    """

    first: int
    last: int
    gone: int = 0
    empty: int = 0
    lost: int = 0
    skipped: int = 0
    holes: tuple[Range, ...] = ()


@dataclass(frozen=True)
class Habits:
    """What is known of the topic as a whole.

    Attributes:
        is_compacted: whether Kafka removes records whose key has come again.
        is_anew: whether it is another topic than the one that bronze was filled from.
        gaps_are_lawful: whether the configuration says so.
        began_late: whether the configuration says that ingest begins with what is newest.
    """

    is_compacted: bool = False
    is_anew: bool = False
    gaps_are_lawful: bool = False
    began_late: bool = False


@dataclass(frozen=True)
class Finding:
    """A difference between Kafka and bronze.

    Attributes:
        partition: where.
        kind: what it is.
        offsets: how many offsets are concerned.
        alarm: whether records are missing that nothing explains.
        words: what was found and why, in words.
    """

    partition: int
    kind: Kind
    offsets: int
    alarm: bool
    words: str


def compare_offsets(kept: Mapping[int, Kept], held: Mapping[int, Held], habits: Habits) -> list[Finding]:
    """Compares what Kafka has with what bronze has, partition by partition.

    Bronze must have been looked at before Kafka was asked, so that what comes meanwhile is not read yet.

    Args:
        kept: what Kafka has, of every partition.
        held: what bronze has, of every partition that it has anything of.
        habits: what is known of the topic.

    Returns:
        The differences, in the order of the partitions; none if bronze holds what Kafka has.
    """
    found: list[Finding] = []
    for partition in sorted({*kept, *held}):
        here, there = kept.get(partition), held.get(partition)
        if habits.is_anew or (there and (here is None or there.last >= here.end)):
            if there:
                found.append(_made_anew(partition, here, there))
        elif here and there:
            found += _of_both(partition, here, there, habits)
        elif here and here.end > here.earliest:
            found.append(_lag(partition, here.earliest, here.end))
    return found


def _of_both(partition: int, kept: Kept, held: Held, habits: Habits) -> Iterator[Finding]:
    if kept.earliest > held.last + 1:
        yield Finding(
            partition,
            "deleted",
            kept.earliest - held.last - 1,
            alarm=True,
            words=f"{_span(held.last + 1, kept.earliest - 1)}: deleted from Kafka before they were read",
        )
    if held.first > 0:
        yield from _before(partition, kept, held, habits)
    if held.gone or held.empty or held.lost:
        yield from _gaps(partition, held, habits)
    start = max(held.last + 1, kept.earliest)
    if kept.end > start:
        yield _lag(partition, start, kept.end)


def _before(partition: int, kept: Kept, held: Held, habits: Habits) -> Iterator[Finding]:
    if held.skipped:
        why = "kafka.starting_offsets: latest" if habits.began_late else "Kafka has them, and bronze has not"
        span = _span(kept.earliest, held.first - 1)
        words = f"{held.skipped:,} records of {span}: not read: {why}"
        yield Finding(partition, "skipped", held.skipped, alarm=not habits.began_late, words=words)
    elif kept.earliest >= held.first:
        words = f"{_span(0, held.first - 1)}: from before bronze began; Kafka has not got them any more"
        yield Finding(partition, "before", held.first, alarm=False, words=words)


def _gaps(partition: int, held: Held, habits: Habits) -> Iterator[Finding]:
    first_few = ", ".join(_span(*hole) for hole in held.holes)
    where = f"within {_span(held.first, held.last)} (the first: {first_few})"
    if held.lost:
        words = f"{held.lost:,} records {where}: Kafka has them, and bronze has not"
        yield Finding(partition, "gap", held.lost, alarm=True, words=words)
    if held.empty:
        why = (
            "removed by compaction"
            if habits.is_compacted
            else "Kafka has no record there: markers of transactions, or records of aborted ones"
        )
        words = f"{held.empty:,} offsets {where}: {why}"
        yield Finding(partition, "gap", held.empty, alarm=False, words=words)
    if held.gone:
        known = {
            "the topic is compacted": habits.is_compacted,
            "audit.offset_gaps: warn says that gaps are lawful": habits.gaps_are_lawful,
        }
        lawful = next((reason for reason, holds in known.items() if holds), None)
        words = f"{held.gone:,} offsets {where}, which Kafka has not got any more: " + (
            lawful or "nothing can tell now whether these were records"
        )
        yield Finding(partition, "gap", held.gone, alarm=lawful is None, words=words)


def _made_anew(partition: int, kept: Kept | None, held: Held) -> Finding:
    has = f"Kafka ends before {kept.end}" if kept else "Kafka has no such partition"
    words = f"bronze has {_span(held.first, held.last)}, {has}: the topic was made anew, or is another"
    return Finding(partition, "made_anew", held.last - held.first + 1, alarm=True, words=words)


def _lag(partition: int, start: int, end: int) -> Finding:
    words = f"{_span(start, end - 1)}: not read yet, or markers of transactions"
    return Finding(partition, "lag", end - start, alarm=False, words=words)


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}..{last}"
