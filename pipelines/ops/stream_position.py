"""How far a stream has read the table before it, from its checkpoint."""

import json
from typing import Literal

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config import PipelineConfig
from pipelines.ops.query_files import offsets_of, query_files
from pipelines.sinks.delta import read


def unread_rows(spark: SparkSession, config: PipelineConfig) -> DataFrame:
    """The rows of bronze that `speed_stream` has not read; all of them where that cannot be told.

    What was ingested after the newest row that it has read counts as unread.
    """
    table = config.table("bronze")
    rows = read(spark, table)
    first = first_unread_version(spark, config)
    if not first:
        return rows
    try:
        newest = read(spark, table, first - 1).agg(F.max("_ingested_at").alias("t")).first()
    except AnalysisException:
        return rows
    if newest is None or newest["t"] is None:
        return rows
    return rows.where(F.col("_ingested_at") > F.lit(newest["t"]))


def first_unread_version(
    spark: SparkSession, config: PipelineConfig, query: Literal["speed", "publish"] = "speed"
) -> int | None:
    """The version of its source before which a query has read every commit and written what it makes of it.

    Args:
        spark: the session.
        config: the pipeline's configuration.
        query: `speed`, whose source is bronze, or `publish`, whose source is the speed layer.

    Returns:
        The version, which may not be there yet; None if the stream has not come to the end of what it found
        when it began, or has never run.
    """
    checkpoint = config.checkpoint(query)
    done = query_files(spark, checkpoint).next_batch - 1
    offsets = offsets_of(spark, checkpoint, done) if done >= 0 else None
    return None if offsets is None else version_of(offsets)


def version_of(offsets: str) -> int | None:
    """The first unread version, by the text of an offset file whose one source is a Delta table.

    Returns:
        As `first_unread_version`.
    """
    offset = json.loads(offsets.splitlines()[-1])
    return None if offset["isStartingVersion"] else int(offset["reservoirVersion"])
