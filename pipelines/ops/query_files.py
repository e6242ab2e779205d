"""What the files of a streaming query's checkpoint say, without the query."""

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession


@dataclass(frozen=True)
class QueryFiles:
    """Where a query stands.

    Attributes:
        path: of its checkpoint.
        query: its id, which lives as long as the checkpoint; None if there is none.
        next_batch: the number of the first micro-batch that is not recorded as done.
        in_flight: that number, if the micro-batch was begun.
    """

    path: str
    query: str | None
    next_batch: int
    in_flight: int | None


def query_files(spark: SparkSession, path: str) -> QueryFiles:
    """Reads the files of a checkpoint, on whatever file system it is."""
    jvm: Any = spark.sparkContext._jvm
    folder = jvm.org.apache.hadoop.fs.Path(path)
    system = folder.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())

    def numbers(name: str) -> set[int]:
        child = jvm.org.apache.hadoop.fs.Path(folder, name)
        if not system.exists(child):
            return set()
        names = (status.getPath().getName() for status in system.listStatus(child))
        return {int(name) for name in names if name.isdigit()}

    metadata = jvm.org.apache.hadoop.fs.Path(folder, "metadata")
    if not system.exists(metadata):
        return QueryFiles(path, None, 0, None)
    stream = system.open(metadata)
    try:
        query = json.loads(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))["id"]
    finally:
        stream.close()
    following = max(numbers("commits"), default=-1) + 1
    begun = following in numbers("offsets")
    return QueryFiles(path, query, following, following if begun else None)
