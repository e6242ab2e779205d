"""The days that were published as a whole, at which version."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.config import PipelineConfig
from pipelines.sinks.delta import append, read, small_rows
from pipelines.sinks.tables import ensure_table, exists, shape, small_frame

_SHAPE: Final = (
    "pipeline string, day date, batch_version bigint, topic_id string, run_id string, published_at timestamp"
)
_TABLE: Final = "publications"


@dataclass(frozen=True)
class Publication:
    """How a day was published as a whole.

    Attributes:
        count: how often.
        version: the newest version of the batch table that it had; -1 if it was not published.
    """

    count: int = 0
    version: int = -1


def publications(
    spark: SparkSession, config: PipelineConfig, topic_id: str, at: int | None = None
) -> dict[date, Publication]:
    """How days were published to a topic as a whole.

    Args:
        spark: the session.
        config: the pipeline's configuration.
        topic_id: the cluster's identifier of the topic.
        at: the newest version of the batch table that counts; None for any.
    """
    table = config.ops_table(_TABLE)
    if not exists(spark, table):
        return {}
    rows = read(spark, table).where((F.col("pipeline") == config.name) & (F.col("topic_id") == topic_id))
    if at is not None:
        rows = rows.where(F.col("batch_version") <= at)
    found = rows.groupBy("day").agg(F.count("*").alias("count"), F.max("batch_version").alias("version"))
    return {row.pop("day"): Publication(**row) for row in small_rows(found)}


def record_publication(
    spark: SparkSession, config: PipelineConfig, day: date, version: int, topic_id: str, run_id: str
) -> None:
    """Records that a day was published as a whole."""
    table = config.ops_table(_TABLE)
    ensure_table(spark, table, shape(_SHAPE), partitions=["pipeline"])
    row = {
        "pipeline": config.name,
        "day": day,
        "batch_version": version,
        "topic_id": topic_id,
        "run_id": run_id,
        "published_at": datetime.now(UTC),
    }
    append(small_frame(spark, [row], shape(_SHAPE)), table)
