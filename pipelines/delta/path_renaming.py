"""Moves tables and checkpoints aside, on whatever file system they are."""

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

from pipelines.errors import InfrastructureError
from pipelines.spark.files import HadoopFile


def timestamp_suffix() -> str:
    """Return what is added to the names of things that are moved aside now."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


def move_aside(spark: SparkSession, path: str, suffix: str) -> str | None:
    """Rename a folder or a file; nothing is copied where the file system can rename.

    Args:
        spark: The session.
        path: What is moved.
        suffix: Added to its name.

    Returns:
        Its new path; None if there was nothing.

    Raises:
        InfrastructureError: The file system refuses.
    """
    source = HadoopFile(spark, path)
    if not source.exists():
        return None
    name, dot, extension = path.rpartition("/")[2].partition(".note.json")
    target = f"{path.rpartition('/')[0]}/{name}-{suffix}{dot}{extension}"
    if not source.rename(target):
        raise InfrastructureError(
            f"{path}: the file system did not rename it to {target}; check the permissions of this user"
        )
    # Delta remembers tables by their path.
    jvm: Any = spark.sparkContext._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(spark._jsparkSession, source.path)
    return target
