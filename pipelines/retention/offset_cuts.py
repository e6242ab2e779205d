"""Where a table of Kafka records is cut off: at an offset of each partition, so that no gap comes to be."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.delta.io import small_rows
from pipelines.records.decode import sent_by


def first_kept(bronze: DataFrame, sent: datetime) -> list[dict[str, Any]]:
    """For each Kafka partition `topic, partition, offset`: the first offset sent at a moment or later.

    A partition without such a record keeps its last one, from which the audit tells that none is missing.
    """
    kept = F.min(F.when(sent_by() >= F.lit(sent), F.col("_offset")))
    return _by_partition(bronze, F.least(kept, F.max("_offset")))


def first_there(bronze: DataFrame) -> list[dict[str, Any]]:
    """For each Kafka partition `topic, partition, offset`: the first offset that the table holds."""
    return _by_partition(bronze, F.min("_offset"))


def below(cuts: Iterable[Mapping[str, Any]]) -> str:
    """An SQL condition: whether a record's offset lies below that of its partition."""
    parts = (
        f"(_topic = '{cut['topic']}' AND _partition = {cut['partition']} AND _offset < {cut['offset']})"
        for cut in cuts
    )
    return " OR ".join(parts) or "false"


def _by_partition(bronze: DataFrame, offset: Column) -> list[dict[str, Any]]:
    partitions = bronze.groupBy(F.col("_topic").alias("topic"), F.col("_partition").alias("partition"))
    return small_rows(partitions.agg(offset.alias("offset")))
