"""Which offsets bronze lacks, counted in Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.config.audit import KnownGap
from pipelines.delta.io import small_rows
from pipelines.kafka.known_gaps import is_known_gap, known_missing
from pipelines.kafka.offset_comparison import BronzeOffsets
from pipelines.kafka.topic_offsets import BrokerOffsets

HOLES: Final = 5
"""Ranges of missing offsets that are named, of each partition."""


def held_offsets(offsets: DataFrame, kept: Mapping[int, BrokerOffsets]) -> dict[int, BronzeOffsets]:
    """Return what bronze has of each partition; what it lacks counts as `gone` or as `empty`.

    The offsets are put in order only of partitions that lack some.

    Args:
        offsets: `_partition int, _offset bigint` of bronze, of one topic.
        kept: what Kafka has.
    """
    ranges = offsets.groupBy("_partition").agg(
        *map(F.expr, ("min(_offset) AS first", "max(_offset) AS last", "count(DISTINCT _offset) AS n"))
    )
    rows = small_rows(ranges)
    held = {row["_partition"]: BronzeOffsets(row["first"], row["last"]) for row in rows}
    lacking = [row["_partition"] for row in rows if row["last"] - row["first"] + 1 > row["n"]]
    if not lacking:
        return held
    earliest = " ".join(f"WHEN {p} THEN {kept[p].earliest}" for p in lacking if p in kept)
    since = f"CASE _partition {earliest} ELSE 0 END" if earliest else "0"
    before = "lag(_offset) OVER (PARTITION BY _partition ORDER BY _offset)"
    holes = (
        offsets.where(f"_partition IN ({', '.join(map(str, lacking))})")
        .selectExpr("_partition", "_offset - 1 AS _to", f"{before} + 1 AS _from", f"{since} AS _since")
        .where("_from <= _to")
        .groupBy("_partition")
    )
    few = f"transform(min_by(struct(_from, _to), _from, {HOLES}), _h -> array(_h._from, _h._to))"
    counted = holes.agg(
        *(
            F.expr(text)
            for text in (
                "sum(greatest(least(_to + 1, _since) - _from, 0)) AS gone",
                "sum(greatest(_to + 1 - greatest(_from, _since), 0)) AS empty",
                f"{few} AS holes",
            )
        )
    )
    for row in small_rows(counted):
        there = held[row["_partition"]]
        holes_of = tuple((first, last) for first, last in row["holes"])
        held[row["_partition"]] = replace(there, gone=row["gone"], empty=row["empty"], holes=holes_of)
    return held


def with_known(
    held: Mapping[int, BronzeOffsets],
    kept: Mapping[int, BrokerOffsets],
    gaps: Sequence[KnownGap],
    offsets: DataFrame,
) -> dict[int, BronzeOffsets]:
    """Return what bronze has, once it is known which of its gaps somebody has accepted.

    Args:
        held: as `held_offsets` gives it.
        kept: what Kafka has.
        gaps: what is known to be lost.
        offsets: `_partition int, _offset bigint` of bronze.
    """
    both = {partition: (there, kept[partition]) for partition, there in held.items() if partition in kept}
    within = {p: range(there.first, min(there.last + 1, here.earliest)) for p, (there, here) in both.items()}
    known = known_missing(offsets, gaps, within)
    return dict(held) | {
        partition: replace(
            there,
            known=known.get(partition, 0),
            is_end_known=is_known_gap(partition, range(there.last + 1, here.earliest), gaps),
        )
        for partition, (there, here) in both.items()
    }


def asked_of_kafka(
    held: Mapping[int, BronzeOffsets], kept: Mapping[int, BrokerOffsets], *, from_start: bool
) -> dict[int, range]:
    """Return the offsets of each partition that Kafka still covers and among which bronze lacks some.

    Args:
        held: what bronze has.
        kept: what Kafka has.
        from_start: whether bronze ought to have what lies before its first offset.
    """
    asked: dict[int, range] = {}
    for partition, there in held.items():
        here = kept.get(partition)
        if here is None or there.last >= here.end:
            continue
        start = here.earliest if from_start else max(here.earliest, there.first)
        if there.empty:
            asked[partition] = range(start, there.last)
        elif start < there.first:
            asked[partition] = range(start, there.first)
    return asked


def with_lost(
    held: Mapping[int, BronzeOffsets], given: DataFrame, offsets: DataFrame
) -> dict[int, BronzeOffsets]:
    """Return what bronze has, once it is known under which offsets Kafka gives a record.

    Args:
        held: as `held_offsets` gives it.
        given: `_partition int, _offset bigint`: what Kafka gives among the offsets that bronze lacks.
        offsets: the same of bronze.
    """
    first = " ".join(f"WHEN {partition} THEN {there.first}" for partition, there in held.items())
    lost = given.join(offsets, ["_partition", "_offset"], "left_anti")
    counted = lost.groupBy(
        "_partition", F.expr(f"_offset < CASE _partition {first} END").alias("_before")
    ).count()
    found = dict(held)
    for row in small_rows(counted):
        there = found[row["_partition"]]
        found[row["_partition"]] = (
            replace(there, skipped=row["count"])
            if row["_before"]
            else replace(there, lost=row["count"], empty=there.empty - row["count"])
        )
    return found
