"""In which order a new query reads what bronze holds, and which records it gets before older ones.

Delta gives the rows that a table has when a query begins file by file, in the order in which the files were
written. Compaction puts records of many ingestions into one file, and writes it after files of later ones.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pipelines.delta.io import read, small_rows
from pipelines.delta.tables import shape, small_frame
from pipelines.records.watermark import HELD_BACK

_FILE: Final = "_file"
_UNTIL: Final = "_until"


def files_before_older(spark: SparkSession, table: str, at: int) -> DataFrame | None:
    """The files of bronze with records that a new query gets before records of an earlier ingestion.

    Args:
        spark: the session.
        table: the path of bronze.
        at: the version that the query begins with.

    Returns:
        `_file string, _until timestamp`: the name of a file, and the first ingestion of which records come in
        files after it; None if bronze is read in the order of ingestion. One row for each file that
        compaction has mixed so: of 128 MB, or the last one.
    """
    rows = read(spark, table, at)
    path, written = F.col("_metadata.file_path"), F.col("_metadata.file_modification_time")
    moments = rows.select(path.alias("_path"), written.alias("_written"), "_ingested_at")
    files = moments.groupBy("_path", "_written").agg(
        F.min("_ingested_at").alias("_first"), F.max("_ingested_at").alias("_last")
    )
    afterwards = Window.orderBy("_written", "_path").rowsBetween(1, Window.unboundedFollowing)
    mixed = files.withColumn(_UNTIL, F.min("_first").over(afterwards)).where(f"_last > {_UNTIL}")
    found = small_rows(mixed.select(_name(F.col("_path")).alias(_FILE), _UNTIL))
    return small_frame(spark, found, shape(f"{_FILE} string, {_UNTIL} timestamp")) if found else None


def hold_back(bronze: DataFrame, files: DataFrame) -> DataFrame:
    """A stream of bronze, with whether a record comes before one of an earlier ingestion.

    Such a record may not move the watermark, which would make the older ones late that are still to come.

    Args:
        bronze: the stream, as read.
        files: what `files_before_older` found.

    Returns:
        The same rows, with a boolean column `_held_back`.
    """
    # Spark has no `_metadata` for a stream of a Delta table.
    named = bronze.withColumn(_FILE, _name(F.input_file_name()))
    joined = named.join(F.broadcast(files), _FILE, "left")
    held = F.coalesce(F.col("_ingested_at") > F.col(_UNTIL), F.lit(False))
    return joined.withColumn(HELD_BACK, held).drop(_FILE, _UNTIL)


def _name(path: Column) -> Column:
    return F.regexp_extract(path, "[^/]+$", 0)
