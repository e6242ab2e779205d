"""Delta's own view of a table's log, by its classes: no plan is made and no job is run to ask it."""

from typing import Any

from pyspark.sql import SparkSession


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
    log = delta_log(spark, path)
    # Scala's default arguments are methods of their own.
    return log.update(*(getattr(log, f"update$default${number}")() for number in (1, 2, 3)))
