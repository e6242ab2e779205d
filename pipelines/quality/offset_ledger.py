"""Offsets of bronze, from what the index wrote down of each piece of it: pure sums, no table is read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any


@dataclass(frozen=True)
class PartitionOffsets:
    """What bronze holds of one Kafka partition.

    Attributes:
        topic: the topic.
        partition: the partition.
        first: its first offset in bronze.
        last: its last offset in bronze.
        records: records in bronze.
        distinct: different offsets among them; None if the pieces do not tell, as they overlap and have gaps.
        sent: when its newest record was sent, as far as that can be believed.
        appended: when Kafka took its newest record, by the broker's clock; None if the topic keeps what
            producers say (`CreateTime`).
    """

    topic: str
    partition: int
    first: int
    last: int
    records: int
    distinct: int | None
    sent: datetime
    appended: datetime | None = None


def partition_offsets(pieces: Iterable[Mapping[str, Any]]) -> list[PartitionOffsets]:
    """Adds up the pieces of each partition.

    Args:
        pieces: `topic, partition, first, last, records, distinct, sent, appended` of each piece, sorted by
            topic and partition.
    """
    by_partition = groupby(pieces, key=lambda piece: (piece["topic"], piece["partition"]))
    return [_added_up(topic, partition, list(of)) for (topic, partition), of in by_partition]


def _added_up(topic: str, partition: int, pieces: list[Mapping[str, Any]]) -> PartitionOffsets:
    covered, end = 0, -1
    overlaps = False
    for piece in sorted(pieces, key=lambda piece: piece["first"]):
        overlaps |= piece["first"] <= end
        covered += max(0, piece["last"] - max(piece["first"] - 1, end))
        end = max(end, piece["last"])
    has_gaps = any(piece["distinct"] != piece["last"] - piece["first"] + 1 for piece in pieces)
    distinct: int | None = sum(piece["distinct"] for piece in pieces)
    if overlaps:
        distinct = None if has_gaps else covered
    return PartitionOffsets(
        topic,
        partition,
        min(piece["first"] for piece in pieces),
        end,
        sum(piece["records"] for piece in pieces),
        distinct,
        max(piece["sent"] for piece in pieces),
        max((piece["appended"] for piece in pieces if piece["appended"]), default=None),
    )
