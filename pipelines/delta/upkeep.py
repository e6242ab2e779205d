"""Upkeep of a Delta table: small files made larger, old files and old rows removed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.delta.conflicts import retry_conflicts
from pipelines.delta.epochs import Stamp
from pipelines.delta.fenced_commits import delete_rows_fenced, rewrite_rows
from pipelines.delta.io import read
from pipelines.delta.log import delta_log, newest_snapshot
from pipelines.delta.row_changes import RowChange
from pipelines.delta.small_tables import has_removable_files
from pipelines.delta.table_properties import (
    APPEND_ONLY,
    DELETED_FILE_RETENTION,
    deleted_file_retention,
    ensure_table_property,
    set_table_properties,
    table_property,
)
from pipelines.delta.table_state import removed_files
from pipelines.delta.tables import version
from pipelines.delta.time_travel import commit_file
from pipelines.session_settings import session_settings

DELTAS_OWN: Final = timedelta(days=7)
"""For how long Delta keeps files that a table no longer needs, if the table does not say."""
_DELTAS_COMMITS: Final = 10
# One task of a scan reads as much, so larger files would not make reading faster.
_LARGE: Final = 128 * 1024 * 1024
_COMPACTED: Final = {
    f"spark.databricks.delta.optimize.{bound}FileSize": str(_LARGE) for bound in ("min", "max")
}
_FOR_VACUUM: Final = {
    # Otherwise what the table says of removed files counts, and the batch table says ten years.
    "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
    # The configuration has asked for a week at least.
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # Its counts are read from the log. Commits beside the streams have to be safe for all of upkeep.
    "spark.databricks.delta.vacuum.logging.enabled": "true",
}
_LISTING_TASKS: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_QUIET: Final = timedelta(hours=12)
_REMOVED: Final = "oncelake_removed_files"
_RECENT: Final = 100


@dataclass(frozen=True)
class Files:
    """Some files: how many, and their bytes together."""

    count: int = 0
    bytes: int = 0

    def __add__(self, other: "Files") -> "Files":
        return Files(self.count + other.count, self.bytes + other.bytes)


def small_files(spark: SparkSession, table: str, where: str | None = None) -> Files:
    """Return files that `compact` would put together: those that are small, and not alone in their folder."""
    files = (
        read(spark, table)
        .where(where or "true")
        .select("_metadata.file_path", "_metadata.file_size")
        .distinct()
    )
    folders = files.where(f"file_size < {_LARGE}").selectExpr(
        "regexp_extract(file_path, '^(.*)/', 1) AS folder", "file_size"
    )
    small_by_folder = folders.groupBy("folder").agg(
        F.count("*").alias("number"), F.sum("file_size").alias("size")
    )
    return _added_up(small_by_folder.where("number > 1"))


def compact(spark: SparkSession, table: str, where: str | None = None) -> Files:
    """Put small files together, without a change of the data: a stream that reads the table sees nothing.

    Args:
        spark: The session.
        table: The path of the table.
        where: A condition on the columns by which its files are divided; without it the whole table.

    Returns:
        The files that were put together.

    Raises:
        InfrastructureError: Others rewrote the same files at each try.
    """
    optimize = DeltaTable.forPath(spark, table).optimize()
    scope = optimize.where(where) if where else optimize
    with session_settings(spark, _COMPACTED):
        metrics = retry_conflicts(table, scope.executeCompaction)
    row = metrics.select("metrics.numFilesRemoved", "metrics.filesRemoved.totalSize").first()
    return Files(*row) if row is not None else Files()


def old_files(spark: SparkSession, table: str, after: timedelta, until: int | None = None) -> Files:
    """Return the files that `vacuum` would remove."""
    if until is None and not _is_needed(spark, table, after):
        return Files()
    unneeded = _vacuum(spark, table, after, how="DRY RUN")
    if until is not None:
        unneeded = unneeded.union(_vacuum(spark, table, timedelta(), until, "DRY RUN")).distinct()
    stored = spark.read.format("binaryFile").option("recursiveFileLookup", True).load(table)
    removable = (
        stored.select("path", "length").join(unneeded, "path").selectExpr("1 AS number", "length AS size")
    )
    return _added_up(removable)


def vacuum(spark: SparkSession, table: str, after: timedelta, until: int | None = None) -> Files:
    """Remove files that the table has not needed for some time, and those that no commit names.

    Args:
        spark: The session.
        table: The path of the table.
        after: For how long a file stays that is needed by older versions only, or that no commit names: such
            a one, if young, may be of a commit that is under way.
        until: Remove at once what commits have removed up to this version.

    Returns:
        The files that were removed.
    """
    if after > (deleted_file_retention(spark, table) or DELTAS_OWN):
        # Delta forgets when a file was removed as soon as this time is over, whatever the options of VACUUM.
        ensure_table_property(spark, table, DELETED_FILE_RETENTION, f"interval {_hours(after)} hours")
    _checkpoint(spark, table)
    if until is None and not _is_needed(spark, table, after):
        return Files()
    before = version(spark, table)
    _vacuum(spark, table, after)
    if until is not None:
        _vacuum(spark, table, timedelta(), until)
    # Streams may have written since.
    logged = DeltaTable.forPath(spark, table).history(_RECENT).where(F.col("version") > before)
    # Empty folders are counted as well.
    removed = logged.where(
        "operation = 'VACUUM START' AND operationMetrics.sizeOfDataToDelete > 0"
    ).selectExpr(
        "bigint(operationMetrics.numFilesToDelete) AS number",
        "bigint(operationMetrics.sizeOfDataToDelete) AS size",
    )
    return _added_up(removed)


def _checkpoint(spark: SparkSession, table: str) -> None:
    """Let Delta write a checkpoint of a log that has as many commits behind its last one as others have.

    Tables of streams have one at each hundredth commit. One without a stream would have none for months, and
    by it Delta deletes old parts of the log, which name least and greatest values of what was forgotten.
    """
    snapshot = newest_snapshot(spark, table)
    if snapshot.logSegment().deltas().size() >= _DELTAS_COMMITS:
        none = spark.sparkContext._jvm.scala.Option.empty()  # type: ignore[union-attr]
        delta_log(spark, table).checkpoint(snapshot, none)


def _is_needed(spark: SparkSession, table: str, after: timedelta) -> bool:
    """Return whether `VACUUM` may find something to remove, or Delta needs its commits."""
    # For a small table, whose files are mostly needed or young, VACUUM takes longer than all other upkeep.
    now = datetime.now(UTC)
    before = now - timedelta(hours=_hours(after))
    if has_removable_files(spark, table, int(before.timestamp() * 1000)):
        return True
    # Delta deletes old parts of a log only when it makes a checkpoint, which takes commits.
    return now - committed_at(spark, table, version(spark, table)) > _QUIET


def _vacuum(
    spark: SparkSession, table: str, after: timedelta, until: int | None = None, how: str = ""
) -> DataFrame:
    # Spark's default of ten thousand tasks takes minutes for a table of a few files.
    tasks = {_LISTING_TASKS: str(4 * spark.sparkContext.defaultParallelism)}
    among = ""
    if until is not None:
        # Not VACUUM LITE, which wants the log from its first commit on.
        removed_files(spark, table, until).createOrReplaceTempView(_REMOVED)
        among = f"USING INVENTORY (TABLE {_REMOVED})"
    with session_settings(spark, {**_FOR_VACUUM, **tasks}):
        return spark.sql(f"VACUUM delta.`{table}` {among} RETAIN {_hours(after)} HOURS {how}")


def committed_at(spark: SparkSession, table: str, at: int) -> datetime:
    """Return when a version of a table was committed; long ago, if its log no longer knows."""
    # Not by the table's history, which reads all commits that its log has.
    file = commit_file(spark, table, at)
    if not file.exists():
        return datetime.min.replace(tzinfo=UTC)
    return datetime.fromtimestamp(file.modified_ms() / 1000, UTC)


def delete_rows(
    spark: SparkSession,
    table: str,
    condition: str,
    properties: Mapping[str, str],
    stamps: Callable[[str], Stamp],
) -> None:
    """Delete rows, by commits that a run can only make while no later run has taken over.

    A table that refuses this is made to take it, and refuses again afterwards, also if it fails.

    Args:
        spark: The session.
        table: The path of the table.
        condition: Which rows, in SQL; there is one at least.
        properties: What is kept with the table from before the first row goes.
        stamps: Gives what the commits carry.

    Raises:
        StaleEpoch: A later epoch has claimed the table. No row was deleted.
        InfrastructureError: Others wrote to the table at each try.
    """
    refuses = table_property(spark, table, APPEND_ONLY) is not None
    kept = {**properties, **({APPEND_ONLY: "false"} if refuses else {})}
    try:
        delete_rows_fenced(spark, table, condition, kept, stamps)
    finally:
        if refuses:
            refuse_deletes(spark, table)


def change_rows(
    spark: SparkSession,
    table: str,
    change: RowChange,
    properties: Mapping[str, str],
    note: str | None = None,
) -> None:
    """Change or delete rows, after the table's properties have been set.

    A table that refuses this is made to take this one change, and refuses again afterwards, also if it
    fails.

    Args:
        spark: The session.
        table: The path of the table.
        change: Which rows, and how. It is one commit, or none if there is no such row.
        properties: What is kept with the table from before the first row changes.
        note: Kept in the commit, as `userMetadata`.

    Raises:
        InfrastructureError: Others rewrote the same files at each try.
    """
    refuses = table_property(spark, table, APPEND_ONLY) is not None
    set_table_properties(spark, table, {**properties, **({APPEND_ONLY: "false"} if refuses else {})})
    try:
        rewrite_rows(spark, table, change, note)
    finally:
        if refuses:
            refuse_deletes(spark, table)


def refuse_deletes(spark: SparkSession, table: str) -> None:
    """Make a table refuse updates and deletes, if it does not."""
    ensure_table_property(spark, table, APPEND_ONLY, "true")


def _hours(interval: timedelta) -> int:
    return -(-interval // timedelta(hours=1))


def _added_up(files: DataFrame) -> Files:
    row = files.agg(F.coalesce(F.sum("number"), F.lit(0)), F.coalesce(F.sum("size"), F.lit(0))).first()
    return Files(*row) if row is not None else Files()
