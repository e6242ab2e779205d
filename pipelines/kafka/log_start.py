"""What a topic had held before its earliest offsets, where bronze begins with them."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import functions as F

from pipelines.delta.io import small_rows
from pipelines.kafka.source import envelopes_between
from pipelines.spark.pipeline import Pipeline

# The first offsets may be markers of transactions, which no reader gets.
_LOOKED_AT: Final = 1_000
# Python's timestamps end with the year 9999, and Kafka's do not.
_LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)


def deleted_until(
    begun: Mapping[int, range],
    first_sent: Callable[[Mapping[int, range]], Mapping[int, float]],
    now: datetime,
) -> datetime | None:
    """Return until when records may have been sent that Kafka no longer has; None if it has all of them.

    That is when the first record that a partition still has was sent, of the partitions that have lost some;
    or now, if there is none. A timestamp of the future is believed: this machine's clock may be behind.

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

    A time before 1970 is none: without one, Kafka says -1. A partition that has no time is left out.
    """
    records = envelopes_between(pipeline.spark, pipeline.config.kafka, ranges)
    records = records.where("unix_millis(_kafka_timestamp) >= 0")
    first = F.unix_millis(F.min_by("_kafka_timestamp", "_offset")).alias("sent_ms")
    rows = small_rows(records.groupBy("_partition").agg(first))
    return {row["_partition"]: row["sent_ms"] / 1000 for row in rows}
