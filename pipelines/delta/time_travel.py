"""Earlier versions of a table, as long as Delta keeps them: their rows, and the hashes of their commits."""

from collections.abc import Collection, Iterator, Sequence
from datetime import date
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from pipelines.delta.io import on_days, read

_GONE: Final = {
    "DELTA_VERSION_NOT_FOUND",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
    "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION",
}


def read_kept(spark: SparkSession, table: str, at: int, days: Sequence[date] = ()) -> DataFrame | None:
    """Return a table as it was at a version; None if that version is gone.

    A version is gone when Delta has cleaned its log, or `VACUUM` has removed its files.

    Args:
        spark: the session.
        table: the path of a Delta table.
        at: the version; one below 0 was never there.
        days: the event days, sorted, if only their rows are wanted.
    """
    if at < 0:
        return None
    try:
        rows = read(spark, table, at)
        if days:
            rows = rows.where(on_days(days))
        files = rows.inputFiles()
    except AnalysisException as error:
        if error.getCondition() in _GONE:
            return None
        raise
    # Spark itself would notice in the middle of a query, with a stack trace.
    return rows if all(system.exists(path) for system, path in _places(spark, files)) else None


def commit_hash(spark: SparkSession, table: str, at: int) -> str | None:
    """Return the SHA-256 of the file of a commit, which no other commit shares; None if the log lacks it.

    Delta writes each commit to `_delta_log/VERSION.json` with an id of its own (`txnId`), so a table that was
    restored and written to since has other files under the same versions.

    Args:
        spark: the session.
        table: the path of a Delta table.
        at: the version that the commit made.
    """
    status = commit_file(spark, table, at)
    return None if status is None else _hash(spark, status.getPath())


def commit_hashes(spark: SparkSession, table: str, versions: Collection[int]) -> dict[int, str]:
    """Return what `commit_hash` says of some versions, without those that the log lacks.

    The folder of the log is listed once, whatever the number of versions.
    """
    jvm: Any = spark.sparkContext._jvm
    log = jvm.org.apache.hadoop.fs.Path(f"{table}/_delta_log")
    system = log.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    log_files = {status.getPath().getName(): status.getPath() for status in system.listStatus(log)}
    paths = {version: log_files.get(f"{version:020d}.json") for version in versions}
    return {version: _hash(spark, path) for version, path in paths.items() if path is not None}


def _hash(spark: SparkSession, path: Any) -> str:
    jvm: Any = spark.sparkContext._jvm
    stream = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).open(path)
    try:
        return str(jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex(stream))
    finally:
        stream.close()


def commit_file(spark: SparkSession, table: str, at: int) -> Any | None:
    """Return Hadoop's status of the file of a commit; None if the log no longer has it."""
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{table}/_delta_log/{at:020d}.json")
    system = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    return system.getFileStatus(path) if system.exists(path) else None


def bytes_of(rows: DataFrame) -> int:
    """Return the size of the files that a frame of one table is read from."""
    spark = rows.sparkSession
    return sum(system.getFileStatus(path).getLen() for system, path in _places(spark, rows.inputFiles()))


def _places(spark: SparkSession, files: Sequence[str]) -> Iterator[tuple[Any, Any]]:
    """Yield Hadoop's file system and path of each file."""
    jvm: Any = spark.sparkContext._jvm
    for file in files:
        path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file))
        yield path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), path
