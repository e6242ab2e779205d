"""How many bytes a piece of work reads and writes."""

from pathlib import Path
from typing import Any, Self

from pyspark.sql import SparkSession


class Volume:
    """Counts bytes while a block runs.

    Attributes:
        read_mb: what Spark's tasks have read from files, in megabytes; logs of Delta tables included.
        written_mb: the size of all files under the folder that are new since, in megabytes.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self.read_mb = 0.0
        self.written_mb = 0.0

    def __enter__(self) -> Self:
        self._read_before = self._bytes_read()
        self._files_before = set(self._files())
        return self

    def __exit__(self, *_: object) -> None:
        self.read_mb = (self._bytes_read() - self._read_before) / 1e6
        new = set(self._files()) - self._files_before
        self.written_mb = sum(path.stat().st_size for path in new) / 1e6

    def _files(self) -> list[Path]:
        return [path for path in self._folder.rglob("*") if path.is_file()]

    def _bytes_read(self) -> int:
        context: Any = self._spark.sparkContext._jsc
        context.sc().listenerBus().waitUntilEmpty()
        executors = context.sc().statusStore().executorList(True)
        return sum(int(executors.apply(nth).totalInputBytes()) for nth in range(executors.size()))
