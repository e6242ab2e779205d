"""Files and folders on whatever file system they are, by Hadoop's client."""

import uuid
from functools import lru_cache
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from pipelines.errors import InfrastructureError


@lru_cache(maxsize=1)
def _configuration(context: SparkContext) -> Any:
    """Return Hadoop's `Configuration` of an application."""
    return context._jsc.hadoopConfiguration()


class HadoopFile:
    """A file or a folder; it need not be there.

    Attributes:
        path: Hadoop's path of it.
    """

    def __init__(self, spark: SparkSession, path: Any) -> None:
        """Name it.

        Args:
            spark: The session, which knows the file systems.
            path: Its path as text, or Hadoop's own.
        """
        jvm: Any = spark.sparkContext._jvm
        self._spark = spark
        self._jvm = jvm
        self.path = jvm.org.apache.hadoop.fs.Path(path) if isinstance(path, str) else path
        self._system = self.path.getFileSystem(_configuration(spark.sparkContext))

    @classmethod
    def of_url(cls, spark: SparkSession, url: str, table: str | None = None) -> "HadoopFile":
        """Name a file by a URL, as Spark and Delta's log write it.

        Args:
            spark: The session.
            url: The URL; characters that a URL may not have are escaped in it.
            table: The path of the table that it is relative to, if it is relative.
        """
        jvm: Any = spark.sparkContext._jvm
        new_path = jvm.org.apache.hadoop.fs.Path
        path = new_path(jvm.java.net.URI(url))
        return cls(spark, path if table is None else new_path(new_path(table), path))

    @property
    def url(self) -> str:
        """Its path with the file system that it is in, as catalogs write it."""
        return str(self._system.makeQualified(self.path).toString())

    def exists(self) -> bool:
        """Return whether it is there."""
        return bool(self._system.exists(self.path))

    def size(self) -> int:
        """Return its bytes."""
        return int(self._system.getFileStatus(self.path).getLen())

    def modified_ms(self) -> int:
        """Return when it was written, in milliseconds since 1970."""
        return int(self._system.getFileStatus(self.path).getModificationTime())

    def names(self) -> set[str]:
        """Return the names of what is in a folder; none if there is no such folder."""
        if not self.exists():
            return set()
        return {str(status.getPath().getName()) for status in self._system.listStatus(self.path)}

    def old_files(self, before_ms: int, most: int) -> list[str] | None:
        """Return the files below the folder of a table, but for its log, that were changed before a time.

        Args:
            before_ms: The time, in milliseconds since 1970.
            most: How many files and folders may be there.

        Returns:
            Their paths, relative to the folder; None if there are more, or some cannot be listed.
        """
        found = self._jvm.oncelake.files.OldFiles.below(self._system, self.path, before_ms, most)
        return None if found is None else [str(path) for path in found]

    def text(self) -> str | None:
        """Return what is in the file, as UTF-8; None if it is not there."""
        if not self.exists():
            return None
        stream = self._system.open(self.path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def sha256(self) -> str:
        """Return the SHA-256 of what is in the file, in hex."""
        stream = self._system.open(self.path)
        try:
            return str(self._jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex(stream))
        finally:
            stream.close()

    def copy(self, to: "HadoopFile") -> None:
        """Copy its bytes to where a file is whole, or is not there, at any moment.

        A file that is there already is left as it is.

        Args:
            to: The copy.

        Raises:
            InfrastructureError: The file system does not give the copy its name.
        """
        if to.exists():
            return
        unfinished = HadoopFile(self._spark, to.path.suffix(f".{uuid.uuid4().hex}.copy"))
        self._jvm.org.apache.hadoop.fs.FileUtil.copy(
            *(self._system, self.path, unfinished._system, unfinished.path),
            *(False, True, _configuration(self._spark.sparkContext)),
        )
        if not unfinished.rename(to.path.toString()):
            unfinished.delete()
            # Another run may have copied it meanwhile.
            if not to.exists():
                raise InfrastructureError(
                    f"{to.path.toString()}: a copy of {self.path.toString()} could not be given this name;"
                    " check the store, and that this user may write there"
                )

    def rename(self, path: str) -> bool:
        """Give it another path; return whether the file system did."""
        return bool(self._system.rename(self.path, self._jvm.org.apache.hadoop.fs.Path(path)))

    def delete_folder(self) -> None:
        """Delete the folder with all that is in it, or the file."""
        self._system.delete(self.path, True)

    def delete(self) -> None:
        """Delete the file."""
        self._system.delete(self.path, False)
