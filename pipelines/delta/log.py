"""Delta's own view of a table's log, by its classes."""

import json
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

_MAPPING: Final = "delta.columnMapping.mode"


def delta_log(spark: SparkSession, path: str) -> Any:
    """Return Delta's `DeltaLog` of the table at a path."""
    jvm: Any = spark.sparkContext._jvm
    session: Any = spark._jsparkSession
    return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session, path)


def snapshot_at(spark: SparkSession, path: str, version: int) -> Any:
    """Return Delta's `Snapshot` of a version of a table."""
    jvm: Any = spark.sparkContext._jvm
    none = jvm.scala.Option.empty()
    return delta_log(spark, path).getSnapshotAt(version, none, none, False)


def newest_snapshot(spark: SparkSession, path: str) -> Any:
    """Return Delta's `Snapshot` of a table as it is now; its version is -1 where there is no table."""
    jvm: Any = spark.sparkContext._jvm
    none = jvm.scala.Option.empty()
    # Py4J knows no default arguments; these are Delta's.
    return delta_log(spark, path).update(False, none, none)


def scala_seq(spark: SparkSession, items: Iterable[Any]) -> Any:
    """Return objects of the JVM as a sequence of Scala."""
    jvm: Any = spark.sparkContext._jvm
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(_java_list(spark, items)).toSeq()


def _java_list(spark: SparkSession, items: Iterable[Any]) -> Any:
    jvm: Any = spark.sparkContext._jvm
    listed = jvm.java.util.ArrayList()
    for item in items:
        listed.add(item)
    return listed


def is_divided_by(snapshot: Any, columns: Sequence[str]) -> bool:
    """Return whether the files of a version are divided by columns that the log calls by these names.

    Args:
        snapshot: Delta's `Snapshot` of the version.
        columns: The names.
    """
    metadata = json.loads(snapshot.metadata().json())["metaData"]
    is_mapped = metadata.get("configuration", {}).get(_MAPPING, "none") != "none"
    return not is_mapped and metadata["partitionColumns"] == [*columns]


def rows_of_files(spark: SparkSession, table: str, snapshot: Any, files: Iterable[Any]) -> DataFrame:
    """Return the rows of some files of a version of a table.

    Args:
        spark: The session.
        table: The path of the table.
        snapshot: Delta's `Snapshot` of the version.
        files: Delta's `AddFile` of each file.
    """
    jvm: Any = spark.sparkContext._jvm
    log, listed, session = delta_log(spark, table), _java_list(spark, files), spark._jsparkSession
    return DataFrame(jvm.oncelake.files.ListedFiles.read(session, log, snapshot, listed), spark)


def files_of(spark: SparkSession, snapshot: Any, days: Sequence[date] = ()) -> DataFrame:
    """Return the files of a version of a table, as Delta's protocol writes them in `add` actions.

    Args:
        spark: The session.
        snapshot: Delta's `Snapshot` of the version.
        days: The event days, if only their files are wanted.
    """
    files = DataFrame(snapshot.allFiles().toDF(), spark)
    named = [day.isoformat() for day in days]
    return files.where(F.col("partitionValues")["_event_date"].isin(named)) if named else files
