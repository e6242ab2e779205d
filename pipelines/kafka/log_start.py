"""What a topic had held before its earliest offsets, when bronze is begun."""

from datetime import UTC, datetime
from typing import Final

from pyspark.sql import functions as F

from pipelines.delta.io import small_rows
from pipelines.kafka.admin import admin_client
from pipelines.kafka.source import envelopes_between
from pipelines.kafka.topics import Topic, offset_bounds
from pipelines.spark.pipeline import Pipeline

# The first offsets may be markers of transactions, which no reader gets.
_LOOKED_AT: Final = 1_000


def deleted_until(pipeline: Pipeline, topic: Topic) -> datetime | None:
    """Return until when records may have been sent that Kafka no longer has; None if it has all of them.

    That is when the first record that a partition still has was sent, of the partitions that have lost some;
    or now, if there is none.

    Args:
        pipeline: The pipeline.
        topic: the topic.

    Raises:
        InfrastructureError: the cluster does not answer.
    """
    with admin_client(pipeline.spark, pipeline.config.kafka) as admin:
        cut = {number: held for number, held in offset_bounds(admin, topic).items() if held.start}
    if not cut:
        return None
    ranges = {
        n: range(held.start, min(held.stop, held.start + _LOOKED_AT)) for n, held in cut.items() if held
    }
    if len(ranges) < len(cut):
        return datetime.now(UTC)
    records = envelopes_between(pipeline.spark, pipeline.config.kafka, ranges)
    first = records.groupBy("_partition").agg(F.min_by("_kafka_timestamp", "_offset").alias("sent"))
    sent = [row["sent"] for row in small_rows(first)]
    return max(sent) if len(sent) == len(cut) else datetime.now(UTC)
