"""Earlier versions of a table, which do not live for ever."""

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from pipelines.sinks.delta import on_days, read

_GONE: Final = {
    "DELTA_VERSION_NOT_FOUND",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
    "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION",
}


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
