"""What the log of a table says in all, followed from version to version without a Spark job.

For each version of a table that Delta has not seen, it adds up the whole log, by jobs. Here what a
version says is what an earlier one said, changed by the commits since, which are small files of JSON
([decision](../../docs/decisions/0063-files-of-small-tables-are-followed-in-the-log.md)).

Only commits are followed that Delta itself adds up: those behind the checkpoint that it reads. So a commit of
which a checkpoint and a file say different things, as after a crash or a restored backup, is left to Delta.
So is whatever cannot be read here.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#action-reconciliation
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.delta.log import newest_snapshot
from pipelines.delta.time_travel import commit_file, commit_hash
from pipelines.spark.files import HadoopFile

MOST_BYTES: Final = 1_000_000
"""Commits above this are left to Delta."""
_MOST_COMMITS: Final = 20
_MOST_TABLES: Final = 200
# A job that began with a version of a table reads it again, while others write to the table.
_MOST_VERSIONS: Final = 4

Sum = TypeVar("Sum")


@dataclass(frozen=True)
class _Known(Generic[Sum]):
    """What is known of a version.

    Attributes:
        version: The version; -1 before the first one.
        commit: The `commit_hash` of the version; empty before the first one.
        sum: What the commits up to it say in all.
    """

    version: int
    commit: str
    sum: Sum


class LogFollower(Generic[Sum]):
    """Adds the logs of tables up, and remembers for each table what it came to.

    Args:
        nothing: What no commit says.
        add: Returns what a sum comes to with the text of a further commit. Raises ValueError, KeyError or
            TypeError if the commit cannot be followed.
        add_up: Returns what Delta's `Snapshot` says in all, which may take jobs; None if that cannot be told.
    """

    def __init__(
        self,
        nothing: Sum,
        add: Callable[[SparkSession, Sum, str], Sum],
        add_up: Callable[[Any], Sum | None],
    ) -> None:
        self._nothing = _Known(-1, "", nothing)
        self._add, self._add_up = add, add_up
        # The newest last.
        self._known = dict[tuple[str, str], tuple[_Known[Sum], ...]]()

    def sum_at(self, spark: SparkSession, table: str, snapshot: Any) -> Sum | None:
        """Return what the log of a table says up to a version; None if only Delta can tell.

        Args:
            spark: The session.
            table: The path of the Delta table.
            snapshot: Delta's `Snapshot` of the version.
        """
        earlier = self._known.get(_key(spark, table), ())
        try:
            base = next((known for known in reversed(earlier) if known.version <= snapshot.version()), None)
            found = self._look(spark, table, snapshot, base)
            is_new = found is not None and found is not base
            may_be_remembered = is_new and _may_be_remembered(spark, table, snapshot)
        except (Py4JJavaError, PySparkException):
            # Of what cannot be read Delta may need nothing, and else says so itself.
            return None
        if found is None:
            return None
        if may_be_remembered:
            if len(self._known) >= _MOST_TABLES:
                self._known.clear()
            # Later ones are of a folder that was put back since.
            before = [known for known in earlier if known.version < found.version]
            self._known[_key(spark, table)] = (*before, found)[-_MOST_VERSIONS:]
        return found.sum

    def remembered(self, spark: SparkSession, table: str, version: int) -> Sum | None:
        """Return what `sum_at` said of a version; None if it was not asked for it lately.

        Args:
            spark: The session.
            table: The path of the Delta table.
            version: The version, which may no longer be the newest.
        """
        of_table = self._known.get(_key(spark, table), ())
        known = next((known for known in of_table if known.version == version), None)
        if known is None:
            return None
        try:
            # In a folder that was replaced another commit made the version.
            return known.sum if commit_hash(spark, table, version) == known.commit else None
        except (Py4JJavaError, PySparkException):
            return None

    def _look(
        self, spark: SparkSession, table: str, snapshot: Any, known: _Known[Sum] | None
    ) -> _Known[Sum] | None:
        version = int(snapshot.version())
        # In a folder that was replaced or restored from a backup, another commit made the version.
        if known and commit_hash(spark, table, known.version) != known.commit:
            known = None
        if known and known.version == version:
            return known
        found = self._followed(spark, snapshot, known or self._nothing) or self._of_delta(
            spark, table, snapshot
        )
        # The folder may have been replaced while its commits were read one after the other.
        segment = newest_snapshot(spark, table).logSegment()
        return found if segment.equals(snapshot.logSegment()) else None

    def _followed(self, spark: SparkSession, snapshot: Any, base: _Known[Sum]) -> _Known[Sum] | None:
        """Return what a version says by an earlier one and the commits since; None if one is unread."""
        version = int(snapshot.version())
        texts = _texts(spark, snapshot, range(base.version + 1, version + 1))
        if not texts:
            return None
        total = base.sum
        try:
            for text in texts:
                total = self._add(spark, total, text)
        except (ValueError, KeyError, TypeError):
            return None
        return _Known(version, hashlib.sha256(texts[-1].encode()).hexdigest(), total)

    def _of_delta(self, spark: SparkSession, table: str, snapshot: Any) -> _Known[Sum] | None:
        version = int(snapshot.version())
        total = self._add_up(snapshot)
        # No file has an empty hash, so what is known of a commit without a file is not used again.
        commit = commit_hash(spark, table, version) if version >= 0 else None
        return None if total is None else _Known(version, commit or "", total)


def _key(spark: SparkSession, table: str) -> tuple[str, str]:
    """Return the key of what is known; it may refer to objects of the JVM that it was made in."""
    return _application(spark.sparkContext), table


@lru_cache(maxsize=1)
def _application(context: SparkContext) -> str:
    return str(context.applicationId)


def _texts(spark: SparkSession, snapshot: Any, versions: range) -> list[str] | None:
    """Return the commits of versions up to that of a snapshot; None if one is not to be read here."""
    segment = snapshot.logSegment()
    commits, first = segment.deltas(), int(segment.checkpointProvider().version()) + 1
    # One file may put several commits together.
    if versions.start < first or not 0 < len(versions) <= min(_MOST_COMMITS, int(commits.size())):
        return None
    newest = [commits.apply(at) for at in range(commits.size() - len(versions), commits.size())]
    names = [f"{version:020d}.json" for version in versions]
    if [file.getPath().getName() for file in newest] != names or any(f.getLen() > MOST_BYTES for f in newest):
        return None
    texts = [HadoopFile(spark, file.getPath()).text() for file in newest]
    # Delta takes a commit without a byte for an empty one, until somebody repairs it.
    return [text for text in texts if text] if all(texts) else None


def _may_be_remembered(spark: SparkSession, table: str, snapshot: Any) -> bool:
    """Return whether no commit may be repaired later, and that of the version is not too large for a hash."""
    commits = snapshot.logSegment().deltas()
    if commits.isEmpty():
        # It has a checkpoint of its own.
        file = commit_file(spark, table, int(snapshot.version()))
        return file.exists() and file.size() <= MOST_BYTES
    jvm: Any = spark.sparkContext._jvm
    # One call, as a stream asks at each micro-batch: there may be a hundred commits.
    are_whole = bool(jvm.oncelake.files.ListedFiles.haveBytes(commits))
    return are_whole and int(commits.last().getLen()) <= MOST_BYTES
