"""Earlier versions of a table, which do not live for ever."""

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.errors import InfrastructureError
from pipelines.sinks.delta import on_days, read

_GONE: Final = {
    "DELTA_VERSION_NOT_FOUND",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
    "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION",
}
_NEWEST: Final = 100


def read_kept(spark: SparkSession, table: str, at: int, days: Sequence[date] = ()) -> DataFrame | None:
    """A table as it was at a version; None if that version is gone.

    A version is gone when Delta has cleaned its log, or `VACUUM` has removed its files.

    Args:
        spark: the session.
        table: the path of a Delta table.
        at: the version.
        days: the event days, sorted, if only their rows are wanted.
    """
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
    """The SHA-256 of the file of a commit, which no other commit shares; None if the log has not got it.

    Delta writes each commit to `_delta_log/VERSION.json` with an id of its own (`txnId`), so a table that was
    put back and went on from there has other files under the same versions.

    Args:
        spark: the session.
        table: the path of a Delta table.
        at: the version that the commit made.
    """
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{table}/_delta_log/{at:020d}.json")
    system = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    if not system.exists(path):
        return None
    stream = system.open(path)
    try:
        return str(jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex(stream))
    finally:
        stream.close()


def version_by_note(spark: SparkSession, table: str, note: str) -> int:
    """The version of a table whose commit carries a note, which no other commit carries.

    Args:
        spark: the session.
        table: the path of a Delta table.
        note: the `userMetadata` of a commit that was made just now.

    Raises:
        InfrastructureError: it is not among the newest commits.
    """
    newest = DeltaTable.forPath(spark, table).history(_NEWEST)
    row = newest.where(F.col("userMetadata") == note).select("version").first()
    if row is None:
        raise InfrastructureError(
            f"{table}: the commit '{note}' is not among the newest {_NEWEST}: others write to the table all"
            " the time; start again"
        )
    return int(row[0])


def bytes_of(rows: DataFrame) -> int:
    """The size of the files that a frame of one table is read from."""
    spark = rows.sparkSession
    return sum(system.getFileStatus(path).getLen() for system, path in _places(spark, rows.inputFiles()))


def _places(spark: SparkSession, files: Sequence[str]) -> Iterator[tuple[Any, Any]]:
    """Hadoop's file system and path of each file."""
    jvm: Any = spark.sparkContext._jvm
    for file in files:
        path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file))
        yield path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), path
