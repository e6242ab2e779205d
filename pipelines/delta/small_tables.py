"""Tables of few files, read without the jobs by which Delta lists files.

For each version of a table that Delta has not seen, it replays the whole log, in two jobs. In a nightly run
most reads find a new version, so these jobs cost more than the queries. Here the files of a
version are those of an earlier one, changed by the commits since, which are small files of JSON
([decision](../../docs/decisions/0063-files-of-small-tables-are-followed-in-the-log.md)).
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pipelines.delta.commits import action_in
from pipelines.delta.io import read
from pipelines.delta.log import delta_log, newest_snapshot, scala_seq
from pipelines.delta.time_travel import commit_file, commit_hash

_MOST_FILES: Final = 500
# Of a list Delta skips no file by its statistics.
_MOST_BYTES: Final = 64 * 1024 * 1024
_MOST_COMMITS: Final = 50
_MOST_TABLES: Final = 200
# With deletion vectors a path may stand for several states of a file. What is not known is taken for that.
_READER_FEATURES: Final = {"timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck"}
# A path that has other spellings: absolute, or with characters that are encoded.
_AMBIGUOUS: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:|.*%")


@dataclass(frozen=True)
class _File:
    """A file of a table.

    Attributes:
        action: Delta's `AddFile`.
        size: its bytes.
    """

    action: Any
    size: int


@dataclass(frozen=True)
class _Listing:
    """The files of a version of a table.

    Attributes:
        version: the version; -1 before the first one.
        commit: the `commit_hash` of the version; empty before the first one.
        files: the files by path.
    """

    version: int
    commit: str
    files: Mapping[str, _File]

    @property
    def is_small(self) -> bool:
        """Whether there is little to read."""
        return len(self.files) <= _MOST_FILES and sum(f.size for f in self.files.values()) <= _MOST_BYTES


_NOTHING: Final = _Listing(-1, "", {})

_listings: Final[dict[tuple[str, str], _Listing]] = {}
"""The last listing of each table, by the application of Spark and the path."""


def read_small(spark: SparkSession, table: str, at: int | None = None) -> DataFrame:
    """Return a Delta table as a frame, as `pipelines.delta.io.read` does, sooner if it is small.

    Args:
        spark: the session.
        table: the path of a Delta table.
        at: the version, if not the newest.
    """
    snapshot = newest_snapshot(spark, table)
    files = None if at not in {None, int(snapshot.version())} else listed_files(spark, table, snapshot)
    if files is None:
        return read(spark, table, at)
    jvm: Any = spark.sparkContext._jvm
    log, none = delta_log(spark, table), jvm.scala.Option.empty()
    return DataFrame(log.createDataFrame(snapshot, scala_seq(spark, files), False, none), spark)


def listed_files(spark: SparkSession, table: str, snapshot: Any) -> list[Any] | None:
    """Return the files of a version of a table; None if Delta has to list them.

    Args:
        spark: the session.
        table: the path of the Delta table.
        snapshot: Delta's `Snapshot` of the version.

    Returns:
        Delta's `AddFile` of each.
    """
    key = (str(spark.sparkContext.applicationId), table)
    known = _listings.get(key)
    try:
        listing = _listing(spark, table, snapshot, known)
    except (Py4JJavaError, PySparkException):
        # Of what cannot be read Delta may need nothing, and else says so itself.
        listing = None
    if listing is None:
        return None
    if listing is not known:
        if len(_listings) >= _MOST_TABLES:
            _listings.clear()
        # Also if it is large, so that this is known next time.
        _listings[key] = listing
    return [file.action for file in listing.files.values()] if listing.is_small else None


def _listing(spark: SparkSession, table: str, snapshot: Any, known: _Listing | None) -> _Listing | None:
    """Return the files of a version, by what is known of an earlier one if that helps."""
    version = int(snapshot.version())
    if version < 0 or _is_large(snapshot) or not _reader_features(snapshot) <= _READER_FEATURES:
        return None
    listing = _followed(spark, table, known, version) or _first(spark, table, snapshot)
    if listing is None or listing is known:
        return listing
    # The folder may have been replaced while its commits were read one after the other.
    segment = newest_snapshot(spark, table).logSegment()
    return listing if segment.equals(snapshot.logSegment()) else None


def _reader_features(snapshot: Any) -> set[str]:
    protocol = json.loads(snapshot.protocol().json())["protocol"]
    mapped = {"columnMapping"} if protocol["minReaderVersion"] == 2 else set()
    return {*protocol.get("readerFeatures", ()), *mapped}


def _first(spark: SparkSession, table: str, snapshot: Any) -> _Listing | None:
    """Return the files of a version without an earlier listing; None if these are many."""
    version, segment = int(snapshot.version()), snapshot.logSegment()
    if int(segment.checkpointProvider().version()) < 0 and (
        listing := _followed(spark, table, _NOTHING, version)
    ):
        return listing
    deltas = segment.deltas()
    if any(deltas.apply(number).getLen() == 0 for number in range(deltas.size())):
        # Delta takes a commit without a byte for an empty one, until somebody repairs it.
        return None
    commit = commit_hash(spark, table, version)
    files = snapshot.allFiles().limit(_MOST_FILES + 1).collectAsList()
    if not commit or any(_AMBIGUOUS.match(file.path()) for file in files):
        return None
    return _Listing(version, commit, {str(file.path()): _File(file, int(file.size())) for file in files})


def _is_large(snapshot: Any) -> bool:
    """Return whether Delta's checksum says so; it may be of another commit, and then just costs time."""
    found = snapshot.checksumOpt()
    if not found.isDefined():
        return False
    checksum = found.get()
    return bool(checksum.numFiles() > _MOST_FILES or checksum.tableSizeBytes() > _MOST_BYTES)


def _followed(spark: SparkSession, table: str, base: _Listing | None, version: int) -> _Listing | None:
    """Return the files of a version by those of an earlier one and the commits since.

    None if there is no earlier listing of the same history, or a commit since that cannot be followed.

    Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#action-reconciliation
    """
    if base is None or not 0 <= version - base.version <= _MOST_COMMITS:
        return None
    # In a folder that was replaced or restored from a backup, the version was made by another commit.
    if base.version >= 0 and commit_hash(spark, table, base.version) != base.commit:
        return None
    if version == base.version:
        return base
    if len(base.files) > _MOST_FILES:
        return None
    files, commit = dict(base.files), base.commit
    for at in range(base.version + 1, version + 1):
        text = commit_file(spark, table, at).text() or ""
        try:
            _apply(spark, text, files)
        except (ValueError, KeyError, TypeError):
            return None
        commit = hashlib.sha256(text.encode()).hexdigest()
    return _Listing(version, commit, files)


def _apply(spark: SparkSession, text: str, files: dict[str, _File]) -> None:
    """Change files by the actions of a commit.

    Raises:
        ValueError: the commit is damaged, or what it says of a file cannot be followed.
        KeyError, TypeError: it removes a file that is not there, or a part of it is none.
    """
    jvm: Any = spark.sparkContext._jvm
    if not text:
        raise ValueError("no action")
    # Each becomes an object of the JVM.
    if text.count('{"add":') > _MOST_FILES:
        raise ValueError("more files than a small table has")
    actions = [(action_in(line), line) for line in text.split("\n") if line]
    for action, _ in actions:
        if "remove" in action:
            del files[action["remove"]["path"]]
    for action, line in actions:
        if "add" in action:
            path = str(action["add"]["path"])
            if _AMBIGUOUS.match(path):
                raise ValueError("a path of several spellings")
            added = jvm.org.apache.spark.sql.delta.actions.Action.fromJson(line)
            files[path] = _File(added, int(action["add"]["size"]))
