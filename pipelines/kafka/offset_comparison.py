"""Kafka against bronze: what bronze lacks, and whether anything explains it.

Offsets in, words out: nothing here touches a table or a cluster.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pipelines.kafka.topic_offsets import BrokerOffsets

Kind = Literal["before", "deleted", "skipped", "gap", "lag", "made_anew"]
Range = tuple[int, int]

_KNOWN: Final = "listed as lost in audit.known_gaps"


@dataclass(frozen=True)
class BronzeOffsets:
    """What bronze has of a partition.

    Attributes:
        first: its first offset.
        last: its last offset.
        gone: how many offsets between them bronze lacks, and Kafka no longer has.
        empty: how many it lacks that Kafka still covers, where Kafka gives no record.
        lost: how many it lacks where Kafka gives a record.
        skipped: how many records Kafka gives before the first.
        holes: the first few ranges that bronze lacks, both ends included.
        known: how many of `gone` are lost by `audit.known_gaps`.
        is_end_known: whether that says so of all that Kafka has deleted behind the last offset.
    """

    first: int
    last: int
    gone: int = 0
    empty: int = 0
    lost: int = 0
    skipped: int = 0
    holes: tuple[Range, ...] = ()
    known: int = 0
    is_end_known: bool = False


@dataclass(frozen=True)
class Tail:
    """What ingest's checkpoint says was read of a partition behind the last record in bronze.

    Attributes:
        until: the offset after the last that was read.
        lost: how many records Kafka gives there.
    """

    until: int
    lost: int = 0


@dataclass(frozen=True)
class TopicPolicy:
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
class OffsetDifference:
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


def compare_offsets(
    broker_offsets: Mapping[int, BrokerOffsets],
    bronze_offsets: Mapping[int, BronzeOffsets],
    topic_policy: TopicPolicy,
    tails: Mapping[int, Tail],
) -> list[OffsetDifference]:
    """Compare what Kafka has with what bronze has, partition by partition.

    Ingest's checkpoint must have been looked at before bronze, and bronze before Kafka was asked, so that
    what comes meanwhile is not read yet.

    Args:
        broker_offsets: what Kafka has, of every partition.
        bronze_offsets: what bronze has, of every partition that it has anything of.
        topic_policy: what is known of the topic.
        tails: what was read behind the last records of bronze, by partition.

    Returns:
        The differences, in the order of the partitions; none if bronze holds what Kafka has.
    """
    differences: list[OffsetDifference] = []
    for partition in sorted({*broker_offsets, *bronze_offsets}):
        broker, bronze = broker_offsets.get(partition), bronze_offsets.get(partition)
        if topic_policy.is_anew or (bronze and (broker is None or bronze.last >= broker.end)):
            if bronze:
                differences.append(_made_anew(partition, broker, bronze))
        elif broker and bronze:
            differences += _of_both(partition, broker, bronze, topic_policy)
        if broker and not topic_policy.is_anew and (bronze is None or bronze.last < broker.end):
            start = max(bronze.last + 1, broker.earliest) if bronze else broker.earliest
            differences += _behind(partition, range(start, broker.end), tails.get(partition), topic_policy)
    return differences


def asked_behind(
    broker_offsets: Mapping[int, BrokerOffsets],
    bronze_offsets: Mapping[int, BronzeOffsets],
    until: Mapping[int, int],
) -> dict[int, range]:
    """Return the offsets behind the last records of bronze that Kafka covers and that ingest has read.

    Args:
        broker_offsets: what Kafka has.
        bronze_offsets: what bronze has.
        until: the offset after the last that ingest's checkpoint says was read, by partition.
    """
    ranges = {
        partition: range(
            max(broker.earliest, bronze_offsets[partition].last + 1 if partition in bronze_offsets else 0),
            min(broker.end, until.get(partition, 0)),
        )
        for partition, broker in broker_offsets.items()
    }
    return {partition: offsets for partition, offsets in ranges.items() if offsets}


def _of_both(
    partition: int, broker_offsets: BrokerOffsets, bronze_offsets: BronzeOffsets, topic_policy: TopicPolicy
) -> Iterator[OffsetDifference]:
    if broker_offsets.earliest > bronze_offsets.last + 1:
        yield OffsetDifference(
            partition,
            "deleted",
            broker_offsets.earliest - bronze_offsets.last - 1,
            alarm=not bronze_offsets.is_end_known,
            words=f"{_span(bronze_offsets.last + 1, broker_offsets.earliest - 1)}: deleted from Kafka"
            " before they were read" + (f"; {_KNOWN}" if bronze_offsets.is_end_known else ""),
        )
    if bronze_offsets.first > 0:
        yield from _before(partition, broker_offsets, bronze_offsets, topic_policy)
    if bronze_offsets.gone or bronze_offsets.empty or bronze_offsets.lost:
        yield from _gaps(partition, bronze_offsets, topic_policy)


def _behind(
    partition: int, offsets: range, tail: Tail | None, topic_policy: TopicPolicy
) -> Iterator[OffsetDifference]:
    """Yield what is behind the last record of bronze: lost if it was read, and to be read if not."""
    end = min(tail.until, offsets.stop) if tail else offsets.start
    read = range(offsets.start, max(end, offsets.start))
    lost = tail.lost if tail else 0
    if lost:
        words = (
            f"{lost:,} records within {_span(read.start, read.stop - 1)}: Kafka has them, and bronze does"
            " not, though ingest's checkpoint says they were read"
        )
        yield OffsetDifference(partition, "gap", lost, alarm=True, words=words)
    if len(read) > lost:
        words = (
            f"{len(read) - lost:,} offsets within {_span(read.start, read.stop - 1)}: {_empty(topic_policy)}"
        )
        yield OffsetDifference(partition, "gap", len(read) - lost, alarm=False, words=words)
    if read.stop < offsets.stop:
        yield _lag(partition, read.stop, offsets.stop)


def _empty(topic_policy: TopicPolicy) -> str:
    if topic_policy.is_compacted:
        return "removed by compaction"
    return "Kafka has no record there: transaction markers, or records of aborted transactions"


def _before(
    partition: int, broker_offsets: BrokerOffsets, bronze_offsets: BronzeOffsets, topic_policy: TopicPolicy
) -> Iterator[OffsetDifference]:
    if bronze_offsets.skipped:
        why = (
            "kafka.starting_offsets: latest"
            if topic_policy.began_late
            else "Kafka has them, and bronze does not"
        )
        span = _span(broker_offsets.earliest, bronze_offsets.first - 1)
        words = f"{bronze_offsets.skipped:,} records of {span}: not read: {why}"
        yield OffsetDifference(
            partition, "skipped", bronze_offsets.skipped, alarm=not topic_policy.began_late, words=words
        )
    elif broker_offsets.earliest >= bronze_offsets.first:
        words = f"{_span(0, bronze_offsets.first - 1)}: from before bronze began; Kafka no longer has them"
        yield OffsetDifference(partition, "before", bronze_offsets.first, alarm=False, words=words)


def _gaps(
    partition: int, bronze_offsets: BronzeOffsets, topic_policy: TopicPolicy
) -> Iterator[OffsetDifference]:
    first_few = ", ".join(_span(*hole) for hole in bronze_offsets.holes)
    where = f"within {_span(bronze_offsets.first, bronze_offsets.last)} (the first: {first_few})"
    if bronze_offsets.lost:
        words = f"{bronze_offsets.lost:,} records {where}: Kafka has them, and bronze does not"
        yield OffsetDifference(partition, "gap", bronze_offsets.lost, alarm=True, words=words)
    if bronze_offsets.empty:
        words = f"{bronze_offsets.empty:,} offsets {where}: {_empty(topic_policy)}"
        yield OffsetDifference(partition, "gap", bronze_offsets.empty, alarm=False, words=words)
    if bronze_offsets.known:
        words = f"{bronze_offsets.known:,} offsets {where}, which Kafka no longer has: {_KNOWN}"
        yield OffsetDifference(partition, "gap", bronze_offsets.known, alarm=False, words=words)
    if gone := bronze_offsets.gone - bronze_offsets.known:
        reasons = {
            "the topic is compacted": topic_policy.is_compacted,
            "audit.offset_gaps: warn accepts gaps": topic_policy.gaps_are_lawful,
        }
        lawful = next((reason for reason, holds in reasons.items() if holds), None)
        words = f"{gone:,} offsets {where}, which Kafka no longer has: " + (
            lawful or "whether they were records is unknown"
        )
        yield OffsetDifference(partition, "gap", gone, alarm=lawful is None, words=words)


def _made_anew(
    partition: int, broker_offsets: BrokerOffsets | None, bronze_offsets: BronzeOffsets
) -> OffsetDifference:
    has = f"Kafka's end offset is {broker_offsets.end}" if broker_offsets else "Kafka has no such partition"
    words = (
        f"bronze has {_span(bronze_offsets.first, bronze_offsets.last)}, {has}:"
        " the topic was recreated, or is another"
    )
    return OffsetDifference(
        partition, "made_anew", bronze_offsets.last - bronze_offsets.first + 1, alarm=True, words=words
    )


def _lag(partition: int, start: int, end: int) -> OffsetDifference:
    words = f"{_span(start, end - 1)}: not read yet, or transaction markers"
    return OffsetDifference(partition, "lag", end - start, alarm=False, words=words)


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}..{last}"
