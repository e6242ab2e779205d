"""Kafka against bronze: what bronze lacks, and whether anything explains it.

Nothing here touches a table or a cluster.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from pipelines.config.audit import KnownGap
from pipelines.kafka.known_gaps import is_known_gap
from pipelines.kafka.topic_offsets import BrokerOffsets

Kind = Literal["before", "deleted", "skipped", "gap", "lag", "made_anew"]
DifferenceCause = Literal[
    "before",
    "deleted",
    "deleted_known",
    "skipped",
    "skipped_by_setting",
    "lost",
    "lost_though_read",
    "no_record",
    "removed_by_compaction",
    "gone_unknown",
    "gone_known",
    "gone_compacted",
    "gone_accepted",
    "not_read",
    "made_anew",
]
"""What a difference comes from, as `pipelines.cli.reconcile` says it in words."""
Range = tuple[int, int]

KINDS: Final[dict[DifferenceCause, Kind]] = {
    "before": "before",
    "deleted": "deleted",
    "deleted_known": "deleted",
    "skipped": "skipped",
    "skipped_by_setting": "skipped",
    **dict.fromkeys(("lost", "lost_though_read", "no_record", "removed_by_compaction"), "gap"),
    **dict.fromkeys(("gone_unknown", "gone_known", "gone_compacted", "gone_accepted"), "gap"),
    "not_read": "lag",
    "made_anew": "made_anew",
}
"""As what each cause is counted."""
ALARMS: Final[frozenset[DifferenceCause]] = frozenset(
    ("deleted", "skipped", "lost", "lost_though_read", "gone_unknown", "made_anew")
)
"""The causes that do not explain why records are missing."""


@dataclass(frozen=True)
class BronzeOffsets:
    """What bronze has of a partition.

    Attributes:
        first: Its first offset.
        last: Its last offset.
        gone: How many offsets between them bronze lacks, and Kafka no longer has.
        empty: How many it lacks that Kafka still covers, where Kafka gives no record.
        lost: How many it lacks where Kafka gives a record.
        skipped: How many records Kafka gives before the first.
        holes: The first few ranges that bronze lacks, both ends included.
        known: How many of `gone` are lost by `audit.known_gaps`.
        is_end_known: Whether that says so of all that Kafka has deleted behind the last offset.
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
        until: The offset after the last that was read.
        lost: How many records Kafka gives there.
    """

    until: int
    lost: int = 0


@dataclass(frozen=True)
class TopicPolicy:
    """What is known of the topic as a whole.

    Attributes:
        is_compacted: Whether Kafka removes records whose key has come again.
        is_anew: Whether it is another topic than the one that bronze was filled from.
        gaps_are_lawful: Whether the configuration says so.
        began_late: Whether the configuration says that ingest begins with what is newest.
        is_cut: Whether bronze says which day is its first complete one, since it lacks what was before.
        began: Where ingest first began, by partition; empty if nobody knows.
        known_gaps: What the configuration accepts as lost.
    """

    is_compacted: bool = False
    is_anew: bool = False
    gaps_are_lawful: bool = False
    began_late: bool = False
    is_cut: bool = False
    began: Mapping[int, int] = field(default_factory=dict)
    known_gaps: Sequence[KnownGap] = ()

    def missed(self, partition: int, until: int) -> range:
        """Return the offsets from where ingest first began up to another one; none where nobody knows."""
        began = self.began.get(partition, 0) if self.began else until
        return range(min(began, until), until)


@dataclass(frozen=True)
class OffsetDifference:
    """A difference between Kafka and bronze.

    Attributes:
        partition: Where.
        cause: What it comes from.
        offsets: How many offsets are concerned.
        first: The first offset of the range in which they lie.
        last: The last one.
        holes: The first few ranges that bronze lacks in it, where it has others of it.
        kafka_end: Kafka's end offset, where that is what differs; None if Kafka has no such partition.
    """

    partition: int
    cause: DifferenceCause
    offsets: int
    first: int
    last: int
    holes: tuple[Range, ...] = ()
    kafka_end: int | None = None

    @property
    def kind(self) -> Kind:
        """What it is."""
        return KINDS[self.cause]

    @property
    def alarm(self) -> bool:
        """Whether records are missing that nothing explains."""
        return self.cause in ALARMS


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
        broker_offsets: What Kafka has, of every partition.
        bronze_offsets: What bronze has, of every partition that it has anything of.
        topic_policy: What is known of the topic.
        tails: What was read behind the last records of bronze, by partition.

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
        elif broker:
            differences += _missed(partition, broker.earliest, topic_policy)
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
        broker_offsets: What Kafka has.
        bronze_offsets: What bronze has.
        until: The offset after the last that ingest's checkpoint says was read, by partition.
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
        cause: DifferenceCause = "deleted_known" if bronze_offsets.is_end_known else "deleted"
        yield _whole(partition, cause, bronze_offsets.last + 1, broker_offsets.earliest)
    if bronze_offsets.first > 0:
        yield from _before(partition, broker_offsets, bronze_offsets, topic_policy)
    yield from _gaps(partition, bronze_offsets, topic_policy)


def _behind(
    partition: int, offsets: range, tail: Tail | None, topic_policy: TopicPolicy
) -> Iterator[OffsetDifference]:
    """Yield what is behind the last record of bronze: lost if it was read, and to be read if not."""
    end = min(tail.until, offsets.stop) if tail else offsets.start
    read = range(offsets.start, max(end, offsets.start))
    lost = tail.lost if tail else 0
    if lost:
        yield OffsetDifference(partition, "lost_though_read", lost, read.start, read.stop - 1)
    if len(read) > lost:
        empty = len(read) - lost
        yield OffsetDifference(partition, _empty(topic_policy), empty, read.start, read.stop - 1)
    if read.stop < offsets.stop:
        yield _whole(partition, "not_read", read.stop, offsets.stop)


def _before(
    partition: int, broker_offsets: BrokerOffsets, bronze_offsets: BronzeOffsets, topic_policy: TopicPolicy
) -> Iterator[OffsetDifference]:
    first = bronze_offsets.first
    if not topic_policy.is_cut:
        yield from _missed(partition, min(first, broker_offsets.earliest), topic_policy)
    if skipped := bronze_offsets.skipped:
        cause: DifferenceCause = "skipped_by_setting" if topic_policy.began_late else "skipped"
        yield OffsetDifference(partition, cause, skipped, broker_offsets.earliest, first - 1)
    elif broker_offsets.earliest >= first:
        known = first if topic_policy.is_cut else topic_policy.missed(partition, first).start
        if known:
            yield _whole(partition, "before", 0, known)


def _missed(partition: int, until: int, topic_policy: TopicPolicy) -> Iterator[OffsetDifference]:
    """Yield what Kafka has deleted since ingest first began, before bronze got anything of the partition."""
    if missed := topic_policy.missed(partition, until):
        cause: DifferenceCause = "deleted"
        if is_known_gap(partition, missed, topic_policy.known_gaps):
            cause = "deleted_known"
        elif topic_policy.is_compacted or topic_policy.gaps_are_lawful:
            cause = _gone(topic_policy)
        yield _whole(partition, cause, missed.start, missed.stop)


def _gaps(partition: int, bronze: BronzeOffsets, topic_policy: TopicPolicy) -> Iterator[OffsetDifference]:
    found: dict[DifferenceCause, int] = {
        "lost": bronze.lost,
        _empty(topic_policy): bronze.empty,
        "gone_known": bronze.known,
        _gone(topic_policy): bronze.gone - bronze.known,
    }
    for cause, offsets in found.items():
        if offsets:
            yield OffsetDifference(partition, cause, offsets, bronze.first, bronze.last, bronze.holes)


def _empty(topic_policy: TopicPolicy) -> DifferenceCause:
    return "removed_by_compaction" if topic_policy.is_compacted else "no_record"


def _gone(topic_policy: TopicPolicy) -> DifferenceCause:
    if topic_policy.is_compacted:
        return "gone_compacted"
    return "gone_accepted" if topic_policy.gaps_are_lawful else "gone_unknown"


def _made_anew(partition: int, broker: BrokerOffsets | None, bronze: BronzeOffsets) -> OffsetDifference:
    found = _whole(partition, "made_anew", bronze.first, bronze.last + 1)
    return replace(found, kafka_end=broker.end if broker else None)


def _whole(partition: int, cause: DifferenceCause, start: int, end: int) -> OffsetDifference:
    """Return a difference that concerns every offset of a range, the end excluded."""
    return OffsetDifference(partition, cause, end - start, start, end - 1)
