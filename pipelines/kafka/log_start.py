"""What a topic had held before its earliest offsets, where bronze begins with them."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from pipelines.delta.io import small_rows
from pipelines.kafka.source import envelopes_between
from pipelines.spark.pipeline import Pipeline

# The first offsets may be markers of transactions, which no reader gets.
_LOOKED_AT: Final = 1_000
# Where producers set the timestamp, a record that came late is older than those before it.
_FIRST: Final = 50
_LEAST: Final = 10
_LATER_THAN: Final = 0.9
_BY_BROKER: Final = 1
# Python's timestamps end with the year 9999, and Kafka's do not.
_LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)


def deleted_until(
    begun: Mapping[int, range],
    first_sent: Callable[[Mapping[int, range]], Mapping[int, float]],
    now: datetime,
) -> datetime | None:
    """Return until when records may have been sent that Kafka no longer has; None if it has all of them.

    That is when the first records that a partition still has were sent, see `first_sent`, of the partitions
    that have lost some; or now, if there is none. A timestamp of the future is believed: this machine's clock
    may be behind.

    Args:
        begun: The offsets that Kafka has of each partition that bronze begins with.
        first_sent: See the function of that name.
        now: The time.
    """
    cut = {number: held for number, held in begun.items() if held.start}
    if not cut:
        return None
    ranges = {
        n: range(held.start, min(held.stop, held.start + _LOOKED_AT)) for n, held in cut.items() if held
    }
    if len(ranges) < len(cut):
        return now
    sent = first_sent(ranges)
    if len(sent) < len(cut):
        return now
    return datetime.fromtimestamp(min(max(sent.values()), _LATEST.timestamp()), UTC)


def first_sent(pipeline: Pipeline, ranges: Mapping[int, range]) -> dict[int, float]:
    """Return when the first record within some offsets was sent, in seconds since 1970, by partition.

    Where producers set the timestamp, several records decide, as many as a fiftieth of the offsets and ten at
    least, by the time that is later than nine tenths of theirs: the first ones may have come days late, and
    what was before them was sent later; and the clock of one producer may be ahead. A time before 1970 is
    none: without one, Kafka says -1. A partition that has no time is left out.
    """
    records = envelopes_between(pipeline.spark, pipeline.config.kafka, ranges)
    records = records.where("unix_millis(_kafka_timestamp) >= 0")
    in_order = Window.partitionBy("_partition").orderBy("_offset")
    most = F.create_map(*(F.lit(n) for p, r in ranges.items() for n in (p, max(_LEAST, len(r) // _FIRST))))
    by_broker = F.col("_kafka_timestamp_type") == _BY_BROKER
    numbered = records.withColumn("_number", F.row_number().over(in_order))
    first = numbered.where(F.col("_number") <= F.when(by_broker, 1).otherwise(most[F.col("_partition")]))
    # No accuracy is lost: there are fewer values than the default of 10,000.
    sent = F.percentile_approx(F.unix_millis("_kafka_timestamp"), _LATER_THAN).alias("sent_ms")
    rows = small_rows(first.groupBy("_partition").agg(sent))
    return {row["_partition"]: row["sent_ms"] / 1000 for row in rows}
