"""Tables of few files, read without the jobs by which Delta lists files.

For each version of a table that Delta has not seen, it replays the whole log, in two jobs. Of the tables
below `ops/` most reads find a new version, so these jobs cost more than the queries. Here the files of a
version are those of an earlier one, changed by the commits since, which are small files of JSON
([decision](../../docs/decisions/0063-files-of-small-tables-are-followed-in-the-log.md)).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from pipelines.delta.commits import action_in
from pipelines.delta.io import read
from pipelines.delta.log import delta_log, newest_snapshot
from pipelines.delta.time_travel import commit_file

_MOST_FILES: Final = 500
_MOST_COMMITS: Final = 50
_MOST_TABLES: Final = 200


@dataclass(frozen=True)
class _Listing:
    """The files of a version of a table.

    Attributes:
        version: the version; -1 before the first one.
        commit: the hash of the commit that made it, which no other commit shares; empty before the first one.
        files: Delta's `AddFile` of each file, by its path as the log has it.
    """

    version: int
    commit: str
    files: Mapping[str, Any]


_NOTHING: Final = _Listing(-1, "", {})

_listings: Final[dict[tuple[str, str], _Listing]] = {}
"""The last listing of each table, by the application of Spark and the path."""


def read_small(spark: SparkSession, table: str, at: int | None = None) -> DataFrame:
    """Return a Delta table as a frame, as `pipelines.delta.io.read` does, sooner if it has few files.

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
    return DataFrame(log.createDataFrame(snapshot, _scala(spark, files), False, none), spark)


def listed_files(spark: SparkSession, table: str, snapshot: Any) -> list[Any] | None:
    """Return the files of a version of a table; None if only Delta can list them.

    Args:
        spark: the session.
        table: the path of the Delta table.
        snapshot: Delta's `Snapshot` of the version.

    Returns:
        Delta's `AddFile` of each.
    """
    # With them a path may stand for several states of a file, and Delta reads none of them from a list.
    if int(snapshot.version()) < 0 or '"deletionVectors"' in snapshot.protocol().json():
        return None
    key = (str(spark.sparkContext.applicationId), table)
    listing = _followed(spark, table, _listings.get(key), int(snapshot.version()))
    listing = listing or _first(spark, table, snapshot)
    if listing is None:
        return None
    if len(_listings) >= _MOST_TABLES:
        _listings.clear()
    _listings[key] = listing
    return list(listing.files.values())


def _first(spark: SparkSession, table: str, snapshot: Any) -> _Listing | None:
    """Return the files of a version without an earlier listing; None if these are many."""
    version = int(snapshot.version())
    if int(snapshot.logSegment().checkpointProvider().version()) < 0 and (
        listing := _followed(spark, table, _NOTHING, version)
    ):
        return listing
    # A checksum may be of another commit with this number. It costs time then, and nothing else.
    checksum = snapshot.checksumOpt()
    if checksum.isDefined() and checksum.get().numFiles() > _MOST_FILES:
        return None
    commit = _hash(commit_file(spark, table, version).text())
    files = snapshot.allFiles().limit(_MOST_FILES + 1).collectAsList()
    # The folder may be replaced at any moment.
    if files.size() > _MOST_FILES or not commit or commit != _hash(commit_file(spark, table, version).text()):
        return None
    return _Listing(version, commit, {str(file.path()): file for file in files})


def _followed(spark: SparkSession, table: str, base: _Listing | None, version: int) -> _Listing | None:
    """Return the files of a version by those of an earlier one and the commits since.

    None if there is no earlier listing of the same history, or a commit since that cannot be followed.

    Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#action-reconciliation
    """
    if base is None or not 0 <= version - base.version <= _MOST_COMMITS:
        return None
    # In a folder that was replaced or restored from a backup, the version was made by another commit.
    if base.version >= 0 and _hash(commit_file(spark, table, base.version).text()) != base.commit:
        return None
    jvm: Any = spark.sparkContext._jvm
    files, commit = dict(base.files), base.commit
    for at in range(base.version + 1, version + 1):
        text = commit_file(spark, table, at).text()
        if not text:
            return None
        commit = _hash(text)
        lines = [line for line in text.split("\n") if line]
        try:
            actions = [(action_in(line), line) for line in lines]
            for removed in (action["remove"] for action, _ in actions if "remove" in action):
                del files[removed["path"]]
            for added, line in ((action["add"], line) for action, line in actions if "add" in action):
                files[added["path"]] = jvm.org.apache.spark.sql.delta.actions.Action.fromJson(line)
        except (ValueError, KeyError):
            return None
    return _Listing(version, commit, files) if len(files) <= _MOST_FILES else None


def _hash(text: str | None) -> str:
    return hashlib.sha256(text.encode()).hexdigest() if text else ""


def _scala(spark: SparkSession, files: list[Any]) -> Any:
    """Return Delta's files as a sequence of Scala."""
    jvm: Any = spark.sparkContext._jvm
    listed = jvm.java.util.ArrayList()
    for file in files:
        listed.add(file)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(listed).toSeq()
