"""The offsets that bronze holds of the pipeline's topic."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.delta.io import small_rows
from pipelines.delta.small_tables import read_small
from pipelines.spark.pipeline import Pipeline


def bronze_of_topic(pipeline: Pipeline, at: int | None = None) -> DataFrame:
    """Return the records of bronze that were read from the configured topic of the pipeline's source.

    Args:
        pipeline: The pipeline.
        at: The version of bronze, if not the newest.
    """
    bronze = read_small(pipeline.spark, pipeline.table("bronze"), at)
    return bronze.where(F.col("_topic") == pipeline.config.kafka.source_topic)


def held_by_partition(records: DataFrame) -> dict[int, range]:
    """Return the first to the last offset of each partition among records of one topic."""
    ends = records.groupBy("_partition").agg(F.min("_offset").alias("first"), F.max("_offset").alias("last"))
    return {row["_partition"]: range(row["first"], row["last"] + 1) for row in small_rows(ends)}


def last_by_partition(records: DataFrame) -> dict[int, int]:
    """Return the last offset of each partition among records of one topic."""
    last = records.groupBy("_partition").agg(F.max("_offset").alias("last"))
    return {row["_partition"]: row["last"] for row in small_rows(last)}
