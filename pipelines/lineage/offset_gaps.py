"""Which offsets bronze lacks, counted in Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.config.audit import KnownGap
from pipelines.delta.io import small_rows
from pipelines.kafka.known_gaps import is_known_gap, known_missing
from pipelines.kafka.topic_offsets import BrokerOffsets
from pipelines.lineage.offset_comparison import BronzeOffsets

HOLES: Final = 5
"""Ranges of missing offsets that are named, of each partition."""


def held_offsets(offsets: DataFrame, broker_offsets: Mapping[int, BrokerOffsets]) -> dict[int, BronzeOffsets]:
    """Return what bronze has of each partition; what it lacks counts as `gone` or as `empty`.

    The offsets are put in order only of partitions that lack some.

    Args:
        offsets: `_partition int, _offset bigint` of bronze, of one topic.
        broker_offsets: What Kafka has.
    """
    ranges = offsets.groupBy("_partition").agg(
        *map(F.expr, ("min(_offset) AS first", "max(_offset) AS last", "count(DISTINCT _offset) AS n"))
    )
    rows = small_rows(ranges)
    bronze_offsets = {row["_partition"]: BronzeOffsets(row["first"], row["last"]) for row in rows}
    lacking = [row["_partition"] for row in rows if row["last"] - row["first"] + 1 > row["n"]]
    if not lacking:
        return bronze_offsets
    earliest = " ".join(f"WHEN {p} THEN {broker_offsets[p].earliest}" for p in lacking if p in broker_offsets)
    since = f"CASE _partition {earliest} ELSE 0 END" if earliest else "0"
    before = "lag(_offset) OVER (PARTITION BY _partition ORDER BY _offset)"
    holes = (
        offsets.where(f"_partition IN ({', '.join(map(str, lacking))})")
        .selectExpr("_partition", "_offset - 1 AS _to", f"{before} + 1 AS _from", f"{since} AS _since")
        .where("_from <= _to")
        .groupBy("_partition")
    )
    first_holes = f"transform(min_by(struct(_from, _to), _from, {HOLES}), _h -> array(_h._from, _h._to))"
    counted = holes.agg(
        *(
            F.expr(text)
            for text in (
                "sum(greatest(least(_to + 1, _since) - _from, 0)) AS gone",
                "sum(greatest(_to + 1 - greatest(_from, _since), 0)) AS empty",
                f"{first_holes} AS holes",
            )
        )
    )
    for row in small_rows(counted):
        bronze = bronze_offsets[row["_partition"]]
        holes_of = tuple((first, last) for first, last in row["holes"])
        bronze_offsets[row["_partition"]] = replace(
            bronze, gone=row["gone"], empty=row["empty"], holes=holes_of
        )
    return bronze_offsets


def with_known(
    bronze_offsets: Mapping[int, BronzeOffsets],
    broker_offsets: Mapping[int, BrokerOffsets],
    gaps: Sequence[KnownGap],
    offsets: DataFrame,
) -> dict[int, BronzeOffsets]:
    """Return what bronze has, once it is known which of its gaps somebody has accepted.

    Args:
        bronze_offsets: As `held_offsets` gives it.
        broker_offsets: What Kafka has.
        gaps: What is known to be lost.
        offsets: `_partition int, _offset bigint` of bronze.
    """
    both = {
        partition: (bronze, broker_offsets[partition])
        for partition, bronze in bronze_offsets.items()
        if partition in broker_offsets
    }
    within = {
        p: range(bronze.first, min(bronze.last + 1, broker.earliest)) for p, (bronze, broker) in both.items()
    }
    missing = known_missing(offsets, gaps, within)
    return dict(bronze_offsets) | {
        partition: replace(
            bronze,
            known=missing.get(partition, 0),
            is_end_known=is_known_gap(partition, range(bronze.last + 1, broker.earliest), gaps),
        )
        for partition, (bronze, broker) in both.items()
    }


def asked_of_kafka(
    bronze_offsets: Mapping[int, BronzeOffsets],
    broker_offsets: Mapping[int, BrokerOffsets],
    expected_from: Mapping[int, int],
) -> dict[int, range]:
    """Return the offsets of each partition that Kafka still covers and among which bronze lacks some.

    Args:
        bronze_offsets: What bronze has.
        broker_offsets: What Kafka has.
        expected_from: By partition, the first offset that bronze ought to have; 0 for others.
    """
    ranges: dict[int, range] = {}
    for partition, bronze in bronze_offsets.items():
        broker = broker_offsets.get(partition)
        if broker is None or bronze.last >= broker.end:
            continue
        start = max(broker.earliest, expected_from.get(partition, 0))
        if bronze.empty:
            ranges[partition] = range(start, bronze.last)
        elif start < bronze.first:
            ranges[partition] = range(start, bronze.first)
    return ranges


def with_lost(
    bronze_offsets: Mapping[int, BronzeOffsets], kafka_records: DataFrame, offsets: DataFrame
) -> dict[int, BronzeOffsets]:
    """Return what bronze has, once it is known under which offsets Kafka gives a record.

    Args:
        bronze_offsets: As `held_offsets` gives it.
        kafka_records: `_partition int, _offset bigint`: what Kafka gives among the offsets that bronze lacks.
        offsets: The same of bronze.
    """
    first = " ".join(f"WHEN {partition} THEN {bronze.first}" for partition, bronze in bronze_offsets.items())
    lost = kafka_records.join(offsets, ["_partition", "_offset"], "left_anti")
    counted = lost.groupBy(
        "_partition", F.expr(f"_offset < CASE _partition {first} END").alias("_before")
    ).count()
    updated = dict(bronze_offsets)
    for row in small_rows(counted):
        bronze = updated[row["_partition"]]
        updated[row["_partition"]] = (
            replace(bronze, skipped=row["count"])
            if row["_before"]
            else replace(bronze, lost=row["count"], empty=bronze.empty - row["count"])
        )
    return updated
