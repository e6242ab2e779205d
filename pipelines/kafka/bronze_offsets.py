"""The offsets that bronze holds of the pipeline's topic."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.delta.io import small_rows
from pipelines.delta.log import newest_snapshot
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


@dataclass(frozen=True)
class Ingestion:
    """Which records of bronze are looked at, by `_ingested_at`.

    Attributes:
        since: From this moment on.
        until: Up to this moment.
        after: Later than this moment.
    """

    since: datetime
    until: datetime | None = None
    after: datetime | None = None

    def has(self, moment: datetime) -> bool:
        """Return whether records of a moment are looked at."""
        is_in_time = self.until is None or moment <= self.until
        return moment >= self.since and is_in_time and (self.after is None or moment > self.after)


class RecentOffsets:
    """The last offsets of what came since a moment, read once for those who divide it at the same moment."""

    def __init__(self) -> None:
        self._read_for: object = None
        self._divided_at: datetime | None = None
        self._last: Mapping[tuple[int, bool], int] = {}

    def last_by_partition(self, pipeline: Pipeline, came: Ingestion) -> dict[int, int]:
        """Return the last offset of each partition of the topic, as bronze is now.

        Args:
            pipeline: The pipeline.
            came: Which records count; not both until a moment and after one.
        """
        snapshot = newest_snapshot(pipeline.spark, pipeline.table("bronze"))
        of_bronze = snapshot.metadata().id(), int(snapshot.version()), int(snapshot.timestamp())
        at = came.until or came.after
        if self._read_for != (of_bronze, came.since) or at not in (None, self._divided_at):
            self._last = _last_divided(pipeline, came.since, at)
            self._read_for, self._divided_at = (of_bronze, came.since), at
        asked = {True} if came.after else {False} if came.until else {True, False}
        found: dict[int, int] = {}
        for (partition, is_later), last in self._last.items():
            if is_later in asked:
                found[partition] = max(last, found.get(partition, last))
        return found


def _last_divided(pipeline: Pipeline, since: datetime, at: datetime | None) -> dict[tuple[int, bool], int]:
    ingested = F.col("_ingested_at")
    is_later = F.lit(False) if at is None else ingested > F.lit(at)
    records = bronze_of_topic(pipeline).where(ingested >= F.lit(since))
    last = records.groupBy("_partition", is_later.alias("is_later")).agg(F.max("_offset").alias("last"))
    return {(row["_partition"], row["is_later"]): row["last"] for row in small_rows(last)}
