"""Earlier versions of a table, as long as Delta keeps them: their rows, and the hashes of their commits."""

from collections.abc import Collection, Sequence
from datetime import date
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.delta.io import on_days, read, small_rows
from pipelines.delta.log import files_of, snapshot_at
from pipelines.spark.files import HadoopFile

_GONE: Final = {
    "DELTA_VERSION_NOT_FOUND",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
    "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION",
}
_MOST_GONE: Final = 3


def read_kept(spark: SparkSession, table: str, at: int, days: Sequence[date] = ()) -> DataFrame | None:
    """Return a table as it was at a version; None if that version is gone.

    A version is gone when Delta has cleaned its log, or `VACUUM` has removed its files.

    Args:
        spark: The session.
        table: The path of a Delta table.
        at: The version; one below 0 was never there.
        days: The event days, sorted, if only their rows are wanted.
    """
    if at < 0:
        return None
    try:
        rows = read(spark, table, at)
        if days:
            rows = rows.where(on_days(days))
        # Spark's `inputFiles` are those of the whole version, whatever the rows are restricted to.
        files = small_rows(files_of(spark, snapshot_at(spark, table, at), days).select("path"))
    except AnalysisException as error:
        if error.getCondition() in _GONE:
            return None
        raise
    # Spark itself would notice in the middle of a query, with a stack trace.
    return rows if all(HadoopFile.of_url(spark, file["path"], table).exists() for file in files) else None


def commit_hash(spark: SparkSession, table: str, at: int) -> str | None:
    """Return the SHA-256 of the file of a commit, which no other commit shares; None if the log lacks it.

    Delta writes each commit to `_delta_log/VERSION.json` with an id of its own (`txnId`), so a table that was
    restored and written to since has other files under the same versions.

    Args:
        spark: The session.
        table: The path of a Delta table.
        at: The version that the commit made.
    """
    file = commit_file(spark, table, at)
    return file.sha256() if file.exists() else None


def commit_hashes(spark: SparkSession, table: str, versions: Collection[int]) -> dict[int, str]:
    """Return what `commit_hash` says of some versions, without those that the log no longer has.

    Delta deletes the oldest commits first, so none is looked for below three that are gone. The log is not
    listed: that of bronze has a file for each micro-batch.

    Args:
        spark: The session.
        table: The path of a Delta table.
        versions: The versions that commits made, none above that of the table.
    """
    hashes, gone = dict[int, str](), 0
    for at in sorted(versions, reverse=True):
        found = commit_hash(spark, table, at)
        if found is not None:
            hashes[at], gone = found, 0
        # One of them may have been lost by accident.
        elif (gone := gone + 1) == _MOST_GONE:
            break
    return hashes


def commit_file(spark: SparkSession, table: str, at: int) -> HadoopFile:
    """Return the file of a commit; it is not there if the log no longer has it."""
    return HadoopFile(spark, f"{table}/_delta_log/{at:020d}.json")


def day_bytes(spark: SparkSession, table: str, at: int, days: Sequence[date]) -> int:
    """Return the size of the files of some event days, as a version of a table has them."""
    total = files_of(spark, snapshot_at(spark, table, at), days).agg(F.sum("size").alias("bytes"))
    return int(small_rows(total)[0]["bytes"] or 0)
