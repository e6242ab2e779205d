"""Offsets of bronze, added up from the pieces in which it came."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.delta.io import small_rows
from pipelines.delta.tables import shape, small_frame
from pipelines.ledger.offset_ranges import PartitionOffsets, in_a_row, partition_offsets

SHAPE = (
    "topic string, partition int, first bigint, last bigint, records bigint, distinct bigint, sent timestamp,"
    " appended timestamp"
)
MIDNIGHT = datetime(2013, 1, 2, tzinfo=UTC)


def frame(spark: SparkSession, partitions: Iterable[Sequence[Sequence[int]]]) -> DataFrame:
    """The offsets of each piece of each partition, as the index writes them down."""
    rows = [
        {
            "topic": "t",
            "partition": partition,
            "first": min(offsets),
            "last": max(offsets),
            "records": len(offsets),
            "distinct": len(set(offsets)),
            "sent": MIDNIGHT,
            "appended": None,
        }
        for partition, pieces in enumerate(partitions)
        for offsets in pieces
    ]
    return small_frame(spark, rows, shape(SHAPE))


def added_up(pieces: DataFrame) -> list[PartitionOffsets]:
    return [PartitionOffsets(**row) for row in small_rows(partition_offsets(pieces))]


_pieces = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=8), min_size=1, max_size=5)
_in_order = st.lists(st.integers(1, 4), min_size=1, max_size=6).map(
    lambda lengths: [[*range(sum(lengths[:n]), sum(lengths[: n + 1]))] for n in range(len(lengths))]
)


@given(st.lists(st.one_of(_pieces, _in_order), min_size=60, max_size=60))
@settings(
    max_examples=3,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_the_sum_is_that_of_all_offsets_or_is_not_told_and_runs_of_pieces_are_alike(
    spark: SparkSession, partitions: list[list[list[int]]]
) -> None:
    pieces = frame(spark, partitions)
    found = added_up(pieces)
    for of_partition, there in zip(partitions, found, strict=True):
        every = [offset for offsets in of_partition for offset in offsets]
        assert (there.first, there.last, there.records) == (min(every), max(every), len(every))
        assert there.distinct in (None, len(set(every)))
    sums = [F.sum(name).alias(name) for name in ("records", "distinct")]
    ends = [F.min("first").alias("first"), *(F.max(n).alias(n) for n in ("last", "sent", "appended"))]
    runs = in_a_row(pieces).groupBy("topic", "partition", "run").agg(*sums, *ends)
    assert added_up(runs) == found


def test_pieces_that_were_read_again_are_counted_once(spark: SparkSession) -> None:
    pieces = [[[0, 1, 2, 3], [2, 3, 4], [7, 8]], [[5]], [[0, 2], [1, 2]], [[0, 1], [2], [3, 4]]]
    again, one, unsure, in_order = added_up(frame(spark, pieces))
    assert (again.records, again.distinct, again.last) == (9, 7, 8)
    assert (one.partition, one.distinct) == (1, 1)
    assert unsure.distinct is None
    assert (in_order.distinct, in_order.last) == (5, 4)
    runs = small_rows(in_a_row(frame(spark, pieces)).where("partition = 3").select("run").distinct())
    assert len(runs) == 1
