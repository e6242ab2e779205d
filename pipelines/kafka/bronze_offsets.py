"""The offsets that bronze holds of the pipeline's topic."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.delta.io import small_rows
from pipelines.delta.log import newest_snapshot
from pipelines.delta.small_tables import read_few_files
from pipelines.spark.pipeline import Pipeline


def bronze_of_topic(pipeline: Pipeline, at: int | None = None) -> DataFrame:
    """Return the records of bronze that were read from the configured topic of the pipeline's source.

    Args:
        pipeline: The pipeline.
        at: The version of bronze, if not the newest.
    """
    bronze = read_few_files(pipeline.spark, pipeline.table("bronze"), at)
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
    """A range of the times at which records of bronze were ingested (`_ingested_at`).

    Attributes:
        since: The first time of the range.
        until: The last time of the range; None if it has no end.
        after: Only records that were ingested later than this; None for no such limit. Not with `until`.
    """

    since: datetime
    until: datetime | None = None
    after: datetime | None = None

    def __post_init__(self) -> None:
        if self.until is not None and self.after is not None:
            raise ValueError("expected until or after, got both")

    @property
    def sides(self) -> set[bool]:
        """Which sides of the boundary are in it: False for up to it, True for later."""
        if self.until is not None:
            return {False}
        return {True} if self.after is not None else {False, True}


class RecentOffsets:
    """The last offsets of recent records, kept between the questions of one start of ingest.

    A start asks for the records since a time: first those up to a boundary, then those after it, then all of
    them. One aggregation, by partition and by side of the boundary, answers all three. Bronze is read again
    if it has changed, or if `since` or the boundary is another.
    """

    def __init__(self) -> None:
        self._source: tuple[tuple[str, int, int], datetime] | None = None
        self._boundary: datetime | None = None
        self._last: Mapping[tuple[int, bool], int] = {}

    def last_by_partition(self, pipeline: Pipeline, came: Ingestion) -> dict[int, int]:
        """Return the last offset of each partition of the topic, as bronze is now.

        Args:
            pipeline: The pipeline.
            came: Which records count.
        """
        snapshot = newest_snapshot(pipeline.spark, pipeline.table("bronze"))
        # A table that was made anew, or put back, can come to the same version with other records.
        bronze_state = str(snapshot.metadata().id()), int(snapshot.version()), int(snapshot.timestamp())
        source, boundary = (bronze_state, came.since), came.until or came.after
        if self._source != source or boundary not in (None, self._boundary):
            self._last = _last_by_side(pipeline, came.since, boundary)
            self._source, self._boundary = source, boundary
        found: dict[int, int] = {}
        for (partition, is_later), last in self._last.items():
            if is_later in came.sides:
                found[partition] = max(last, found.get(partition, last))
        return found


def _last_by_side(
    pipeline: Pipeline, since: datetime, boundary: datetime | None
) -> dict[tuple[int, bool], int]:
    ingested = F.col("_ingested_at")
    is_later = F.lit(False) if boundary is None else ingested > F.lit(boundary)
    records = bronze_of_topic(pipeline).where(ingested >= F.lit(since))
    last = records.groupBy("_partition", is_later.alias("is_later")).agg(F.max("_offset").alias("last"))
    return {(row["_partition"], row["is_later"]): row["last"] for row in small_rows(last)}
