"""The offsets that bronze holds of each Kafka partition, added up from the rows of its index."""

from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


@dataclass(frozen=True)
class PartitionOffsets:
    """What bronze holds of one Kafka partition.

    Attributes:
        topic: The topic.
        partition: The partition.
        first: Its first offset in bronze.
        last: Its last offset in bronze.
        records: Records in bronze.
        distinct: Different offsets among them; None if unknown, since the pieces overlap and have gaps.
        sent: When its newest record was sent, as far as that can be believed.
        appended: When Kafka took its newest record, by the broker's clock; None if the topic keeps what
            producers say (`CreateTime`).
        known: Offsets that bronze lacks between the first and the last, and that `audit.known_gaps` names.
    """

    topic: str
    partition: int
    first: int
    last: int
    records: int
    distinct: int | None
    sent: datetime
    appended: datetime | None = None
    known: int = 0


def partition_offsets(pieces: DataFrame) -> DataFrame:
    """Add up the pieces of each partition: one row for each, in the columns of `PartitionOffsets`.

    Args:
        pieces: `topic, partition, first, last, records, distinct, sent, appended` of each piece.
    """
    # Of a partition, the last offset of all pieces that begin before one, or with it.
    before = "OVER (PARTITION BY topic, partition ORDER BY first, last ROWS UNBOUNDED PRECEDING)"
    placed = pieces.selectExpr("*", f"max(last) {before} AS upto").selectExpr(
        "*", "lag(upto, 1, -1L) OVER (PARTITION BY topic, partition ORDER BY first, last) AS end"
    )
    covered = "sum(greatest(0L, last - greatest(first - 1, end)))"
    has_gaps = "bool_or(distinct <> last - first + 1)"
    distinct = (
        f"CASE WHEN NOT bool_or(first <= end) THEN sum(distinct) WHEN NOT {has_gaps} THEN {covered} END"
    )
    added = placed.groupBy("topic", "partition").agg(
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.sum("records").alias("records"),
        F.expr(distinct).alias("distinct"),
        F.max("sent").alias("sent"),
        F.max("appended").alias("appended"),
    )
    return added.orderBy("topic", "partition")


def in_a_row(pieces: DataFrame) -> DataFrame:
    """Add `run`, which is the same for pieces of a partition that follow each other without a gap.

    Added up, such pieces are one that says of the partition what they said separately.

    Args:
        pieces: As `partition_offsets` takes them.
    """
    of_partition = "PARTITION BY topic, partition ORDER BY first, last"
    begins = f"int(first - 1 <=> lag(last) OVER ({of_partition}))"
    return pieces.selectExpr("*", f"1 - {begins} AS begins").selectExpr(
        "* EXCEPT (begins)", f"sum(begins) OVER ({of_partition} ROWS UNBOUNDED PRECEDING) AS run"
    )
