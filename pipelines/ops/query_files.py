"""What the files of a streaming query's checkpoint say, without the query."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
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
        note: what we have written beside the checkpoint.
    """

    path: str
    query: str | None
    next_batch: int
    in_flight: int | None
    note: Mapping[str, str] = field(default_factory=dict)


def query_files(spark: SparkSession, path: str) -> QueryFiles:
    """Reads the files of a checkpoint, on whatever file system it is."""
    files = _Files(spark, path)
    metadata = files.text(f"{path}/metadata")
    if metadata is None:
        return QueryFiles(path, None, 0, None)
    following = max(files.numbers("commits"), default=-1) + 1
    begun = following in files.numbers("offsets")
    note = files.text(_note(path))
    return QueryFiles(
        path,
        json.loads(metadata)["id"],
        following,
        following if begun else None,
        json.loads(note) if note else {},
    )


def offsets_of(spark: SparkSession, path: str, batch: int) -> str | None:
    """The text of the file that says how far a micro-batch of a checkpoint goes; None if it is gone."""
    return _Files(spark, path).text(f"{path}/offsets/{batch}")


def planned_at(spark: SparkSession, path: str, batch: int) -> int:
    """When a micro-batch of a checkpoint was planned, in milliseconds since 1970, whoever copied its files.

    Raises:
        RuntimeError: it was not.
    """
    text = offsets_of(spark, path, batch)
    if text is None:
        raise RuntimeError(f"{path}: micro-batch {batch} was not planned")
    # After the version comes what Spark says of the micro-batch, in one line.
    return int(json.loads(text.splitlines()[1])["batchTimestampMs"])


def write_note(spark: SparkSession, path: str, note: Mapping[str, str]) -> None:
    """Writes a few words beside a checkpoint, in place of those that are there."""
    files = _Files(spark, path)
    out = files.system.create(files.path(_note(path)), True)
    try:
        out.write(bytearray(json.dumps(dict(note)), "utf-8"))
    finally:
        out.close()


def _note(path: str) -> str:
    return f"{path.rstrip('/')}.note.json"


class _Files:
    """Hadoop's view of the file system that a checkpoint is on."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._root = path
        self.system = self.path(path).getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())

    def path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def numbers(self, folder: str) -> set[int]:
        child = self.path(f"{self._root}/{folder}")
        if not self.system.exists(child):
            return set()
        names = (status.getPath().getName() for status in self.system.listStatus(child))
        return {int(name) for name in names if name.isdigit()}

    def text(self, path: str) -> str | None:
        if not self.system.exists(self.path(path)):
            return None
        stream = self.system.open(self.path(path))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()
