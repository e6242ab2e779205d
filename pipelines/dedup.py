"""One row for each dedup key: bounded in a stream, exact in a batch."""

from datetime import timedelta
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipelines.contract import DataContract
from pipelines.intervals import format_interval

KAFKA_ORDER: Final = ("_kafka_timestamp", "_topic", "_partition", "_offset")


def first_within_watermark(events: DataFrame, contract: DataContract, delay: timedelta) -> DataFrame:
    """The first copy of each key that the stream sees, for as long as the watermark keeps its state.

    Rows older than the watermark are dropped by Spark and counted in `numRowsDroppedByWatermark`;
    they stay in bronze, and the nightly rebuild puts them into their day.

    Args:
        events: a stream of valid events.
        contract: names the key and the event time.
        delay: how far the watermark stays behind the newest event time.

    Returns:
        The same columns, fewer rows.
    """
    watermarked = events.withWatermark(contract.event_time, format_interval(delay))
    return watermarked.dropDuplicatesWithinWatermark(list(contract.key))


def winners(events: DataFrame, contract: DataContract) -> DataFrame:
    """The one copy of each key that the batch layer keeps: the first in Kafka's order.

    The choice depends on the records alone: neither on their order in `events` nor on parallelism.

    Args:
        events: a bounded frame of valid events with the columns of `KAFKA_ORDER`.
        contract: names the key.

    Returns:
        The same columns, one row for each key.
    """
    order = Window.partitionBy(*contract.key).orderBy(*KAFKA_ORDER)
    return events.withColumn("_rank", F.row_number().over(order)).where(F.col("_rank") == 1).drop("_rank")
