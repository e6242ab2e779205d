"""How far a stream has read the table before it, from its checkpoint."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pipelines.config.streams import TableQuery
from pipelines.delta.commits import adds_nothing
from pipelines.delta.io import small_rows
from pipelines.delta.small_tables import read_small
from pipelines.delta.tables import shape, small_frame, version
from pipelines.delta.time_travel import commit_file
from pipelines.records.decode import RECORD_ID
from pipelines.records.watermark import HELD_BACK
from pipelines.spark.checkpoints import (
    QueryFiles,
    damaged_file_error,
    micro_batches,
    offsets_of,
    query_files,
    sources_of,
)
from pipelines.spark.pipeline import Pipeline

_FILE: Final = "_file"
_UNTIL: Final = "_until"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def files_before_older(spark: SparkSession, table: str, at: int) -> DataFrame | None:
    """Return the files of bronze with records that a new query gets before records of an earlier ingestion.

    Args:
        spark: The session.
        table: The path of bronze.
        at: The version that the query begins with.

    Returns:
        `_file string, _until timestamp`: the name of a file, and the first ingestion of which records come in
        files after it; None if bronze is read in the order of ingestion. One row for each file that
        compaction has mixed so: of 128 MB, or the last one.
    """
    rows = read_small(spark, table, at)
    path, written = F.col("_metadata.file_path"), F.col("_metadata.file_modification_time")
    moments = rows.select(path.alias("_path"), written.alias("_written"), "_ingested_at")
    files = moments.groupBy("_path", "_written").agg(
        F.min("_ingested_at").alias("_first"), F.max("_ingested_at").alias("_last")
    )
    afterwards = Window.orderBy("_written", "_path").rowsBetween(1, Window.unboundedFollowing)
    mixed = files.withColumn(_UNTIL, F.min("_first").over(afterwards)).where(f"_last > {_UNTIL}")
    mixed_files = small_rows(mixed.select(_name(F.col("_path")).alias(_FILE), _UNTIL))
    return (
        small_frame(spark, mixed_files, shape(f"{_FILE} string, {_UNTIL} timestamp")) if mixed_files else None
    )


def hold_back(bronze: DataFrame, files: DataFrame) -> DataFrame:
    """Return a stream of bronze, with whether a record comes before one of an earlier ingestion.

    Such a record may not move the watermark, which would make the older ones late that are still to come.

    Args:
        bronze: The stream, as read.
        files: What `files_before_older` found.

    Returns:
        The same rows, with a boolean column `_held_back`.
    """
    # Spark has no `_metadata` for a stream of a Delta table.
    named = bronze.withColumn(_FILE, _name(F.input_file_name()))
    joined = named.join(F.broadcast(files), _FILE, "left")
    is_held_back = F.coalesce(F.col("_ingested_at") > F.col(_UNTIL), F.lit(False))
    return joined.withColumn(HELD_BACK, is_held_back).drop(_FILE, _UNTIL)


def _name(path: Column) -> Column:
    return F.regexp_extract(path, "[^/]+$", 0)


def unread_rows(pipeline: Pipeline) -> DataFrame:
    """Return the rows of bronze that `speed_stream` has not read; all of them if that is not known.

    Ingest's clock may have been set back, by `ingest.max_clock_behind` at most; or by more, after it was
    ahead.
    """
    spark = pipeline.spark
    table = pipeline.table("bronze")
    rows = read_small(spark, table)
    first = first_unread_version(pipeline)
    if not first:
        return rows
    if adds_nothing(spark, table, first - 1, version(spark, table)):
        # Of a topic at rest the version that was read last is too old for Delta to be read once more.
        return rows.where("false")
    try:
        done = read_small(spark, table, first - 1)
        newest = small_rows(done.groupBy("_topic").agg(F.unix_millis(F.max("_ingested_at")).alias("ms")))
    except AnalysisException:
        return rows
    committed_ms = min(_committed_ms(spark, table, at) for at in (first, version(spark, table)))
    behind = pipeline.config.ingest.max_clock_behind
    # By topic: a micro-batch of one cluster may come long after later ones of another. Where what was read is
    # newer than what was committed since, by the clock of the storage, ingest's clock was ahead: then
    # nothing is known by its time.
    known = (
        (F.col("_topic") == row["_topic"])
        & (F.col("_ingested_at") <= F.lit(_EPOCH + timedelta(milliseconds=row["ms"]) - behind))
        for row in newest
        if row["ms"] <= committed_ms
    )
    recent = ~reduce(or_, known, F.lit(False))
    return rows.where(recent).join(done.where(recent).select(*RECORD_ID), [*RECORD_ID], "left_anti")


def _committed_ms(spark: SparkSession, table: str, at: int) -> int:
    """Return when a version was committed, by the clock of its storage; 0 if the log no longer knows."""
    file = commit_file(spark, table, at)
    return file.modified_ms() if file.exists() else 0


def first_unread_version(pipeline: Pipeline, query: TableQuery = "speed") -> int | None:
    """Return the version of its source before which a query has read every commit and written its output.

    Args:
        pipeline: The pipeline.
        query: The query.

    Returns:
        The version, which may not be there yet; None if the stream has not come to the end of what it found
        when it began, or has never run.
    """
    done = query_files(pipeline.spark, pipeline.checkpoint(query)).next_batch - 1
    positions = positions_after(pipeline, query, done)
    first = positions[0] if positions else None
    return None if first is None or first.is_start else first.version


def last_version_read(pipeline: Pipeline, query: TableQuery) -> int | None:
    """Return the last version of its source of which a query has read something, or will by what it planned.

    Args:
        pipeline: The pipeline.
        query: The query.

    Returns:
        The version; None if the query has planned nothing yet, or found nothing.

    Raises:
        SourceError: A file of the checkpoint is damaged.
    """
    checkpoint = pipeline.checkpoint(query)
    if query_files(pipeline.spark, checkpoint).query is None:
        return None
    newest = next(reversed(micro_batches(pipeline.spark, checkpoint)), None)
    positions = None if newest is None else positions_after(pipeline, query, newest)
    position = positions[0] if positions else None
    return position.last if position else None


def start_version(pipeline: Pipeline, batch: int | None = None) -> int | None:
    """Return the version of bronze whose rows `speed_stream` reads, all of them, before any later commit.

    Args:
        pipeline: The pipeline.
        batch: The number of a micro-batch; None for the newest that was begun.

    Returns:
        The version; the newest for a query that has not begun. None if the micro-batch comes to the end of
        that version, or was after it.
    """
    if batch is None:
        batch = last_begun(query_files(pipeline.spark, pipeline.checkpoint("speed")))
    if batch < 0:
        return version(pipeline.spark, pipeline.table("bronze"))
    positions = positions_after(pipeline, "speed", batch)
    position = positions[0] if positions else None
    return position.version if position and position.is_start else None


def last_begun(files: QueryFiles) -> int:
    """Return the number of the last micro-batch that a query has begun; -1 if it has begun none."""
    return files.next_batch - 1 if files.in_flight is None else files.in_flight


@dataclass(frozen=True)
class Position:
    """How far a query has read a Delta table.

    Attributes:
        version: The version that it reads, or the next one.
        is_start: Whether that is the version that it began with, of which it reads all rows.
        is_whole: Whether it has read all versions before that one, and nothing of it.
        table_id: The id that Delta gave the table.
    """

    version: int
    is_start: bool
    is_whole: bool
    table_id: str | None = field(default=None, compare=False)

    @property
    def last(self) -> int:
        """The last version of which it has read something."""
        return self.version if self.is_start or not self.is_whole else self.version - 1


def positions_after(pipeline: Pipeline, query: TableQuery, batch: int) -> list[Position | None] | None:
    """Return how far a query has read each of its tables at the end of a micro-batch.

    Args:
        pipeline: The pipeline.
        query: The query.
        batch: The number of the micro-batch, which may be in flight.

    Returns:
        See `positions_of`; None if there is no such micro-batch, or the checkpoint no longer knows it.

    Raises:
        SourceError: The file that says so is damaged.
    """
    checkpoint = pipeline.checkpoint(query)
    offsets = offsets_of(pipeline.spark, checkpoint, batch) if batch >= 0 else None
    return None if offsets is None else positions_of(offsets, f"{checkpoint}/offsets/{batch}")


# Delta counts the files of a version from 0 on; -1 and below stand before the first.
_FIRST_FILE: Final = 0


def positions_of(offsets: str, path: str) -> list[Position | None]:
    """Return how far a micro-batch goes in each of its sources, which are Delta tables.

    Args:
        offsets: The text of its offset file (`OffsetSeqLog` of Spark), whose lines for sources, in the order
            of the plan, are `DeltaSourceOffset` of Delta.
        path: The file, for messages.

    Returns:
        For each source its position; None where it has none yet.

    Raises:
        SourceError: The file is damaged.
    """
    return [None if line == "-" else _position(json.loads(line), path) for line in sources_of(offsets)]


def _position(offset: dict[str, Any], path: str) -> Position:
    version, index, is_start = (offset.get(key) for key in ("reservoirVersion", "index", "isStartingVersion"))
    if type(version) is not int or type(index) is not int or type(is_start) is not bool:
        raise damaged_file_error(
            path, "reservoirVersion, index and isStartingVersion of each source, as Delta has them"
        )
    whole = not is_start and index < _FIRST_FILE
    return Position(version, is_start, whole, offset.get("reservoirId"))
