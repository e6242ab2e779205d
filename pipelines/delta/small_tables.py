"""Tables of few files, read without the jobs by which Delta lists files.

For each version of a table that Delta has not seen, it replays the whole log, in two jobs. In a nightly run
most reads find a new version, so these jobs cost more than the queries. Here the log is followed.
"""

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
from pipelines.delta.log import newest_snapshot, rows_of_files, snapshot_at
from pipelines.delta.log_follower import LogFollower
from pipelines.spark.files import HadoopFile

_MOST_FILES: Final = 500
# Versions since the last VACUUM may have other files each.
_MOST_STORED: Final = 4 * _MOST_FILES
_ONE_TASK_FILES: Final = 8
_ONE_TASK_BYTES: Final = 4 * 1024 * 1024
MOST_BYTES: Final = 64 * 1024 * 1024
"""Of a small table, at most: of a list Delta skips no file by its statistics."""
# A record takes more, compressed with others.
_LEAST_BYTES: Final = 20
# With deletion vectors a path may stand for several states of a file. What is not known is taken for that.
_READER_FEATURES: Final = {"timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck"}
# A path that has other spellings: absolute, or with characters that are encoded.
_AMBIGUOUS: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:|.*%")


@dataclass(frozen=True)
class _File:
    """A file of a table.

    Attributes:
        action: Delta's `AddFile`.
        size: Its bytes.
    """

    action: Any
    size: int


_Files = Mapping[str, _File]
"""The files of a version of a table, by path."""


def read_small(spark: SparkSession, table: str, at: int | None = None) -> DataFrame:
    """Return a Delta table as a frame, as `pipelines.delta.io.read` does, sooner if it is small.

    Args:
        spark: The session.
        table: The path of a Delta table.
        at: The version, if not the newest.
    """
    return _read(spark, table, at, MOST_BYTES)


def _read_remembered(spark: SparkSession, table: str, at: int, most_bytes: int | None) -> DataFrame:
    """Return an earlier version, by the files that this process has listed of it, if it has."""
    files = _followed_files.remembered(spark, table, at)
    if files is None or _is_above_limit(files, most_bytes):
        return read(spark, table, at)
    return _rows(spark, table, snapshot_at(spark, table, at), files)


def read_few_files(spark: SparkSession, table: str, at: int | None = None) -> DataFrame:
    """Return a Delta table as a frame, sooner if it has few files, of whatever size.

    For queries that skip most of a file by Parquet's own statistics: each file is opened, also where Delta
    would skip it by what its log says of it.

    Args:
        spark: The session.
        table: The path of a Delta table.
        at: The version, if not the newest.
    """
    return _read(spark, table, at, None)


def _read(spark: SparkSession, table: str, at: int | None, most_bytes: int | None) -> DataFrame:
    snapshot = newest_snapshot(spark, table)
    if at is not None and at != int(snapshot.version()):
        return _read_remembered(spark, table, at, most_bytes)
    files = _listed(spark, table, snapshot, most_bytes)
    return read(spark, table, at) if files is None else _rows(spark, table, snapshot, files)


def _rows(spark: SparkSession, table: str, snapshot: Any, files: _Files) -> DataFrame:
    rows = rows_of_files(spark, table, snapshot, [file.action for file in files.values()])
    # For so few bytes a shuffle costs more than parallel reading saves.
    is_for_one_task = (
        len(files) <= _ONE_TASK_FILES and sum(file.size for file in files.values()) <= _ONE_TASK_BYTES
    )
    return rows.coalesce(1) if is_for_one_task else rows


def _is_above_limit(files: _Files, most_bytes: int | None) -> bool:
    if len(files) > _MOST_FILES:
        return True
    return most_bytes is not None and sum(file.size for file in files.values()) > most_bytes


def listed_files(spark: SparkSession, table: str, snapshot: Any) -> list[Any] | None:
    """Return the files of a version of a table; None if Delta has to list them.

    Args:
        spark: The session.
        table: The path of the Delta table.
        snapshot: Delta's `Snapshot` of the version.

    Returns:
        Delta's `AddFile` of each.
    """
    files = _listed(spark, table, snapshot, MOST_BYTES)
    return None if files is None else [file.action for file in files.values()]


def has_removable_files(spark: SparkSession, table: str, before_ms: int) -> bool:
    """Return whether `VACUUM` may find a file that it removes.

    Args:
        spark: The session.
        table: The path of the Delta table.
        before_ms: Files changed before this time count, in milliseconds since 1970.

    Returns:
        False if all files of a small table are younger, or of its newest version.
    """
    files = _listed(spark, table, newest_snapshot(spark, table), MOST_BYTES)
    # Another table is left to Delta, which lists it by jobs.
    old = None if files is None else HadoopFile(spark, table).old_files(before_ms, _MOST_STORED)
    return files is None or old is None or not files.keys() >= set(old)


def most_records(spark: SparkSession, table: str) -> int | None:
    """Return how many records a table of events has at most, by its files; None if it is not small."""
    files = _listed(spark, table, newest_snapshot(spark, table), MOST_BYTES)
    return None if files is None else sum(file.size for file in files.values()) // _LEAST_BYTES


def _listed(spark: SparkSession, table: str, snapshot: Any, most_bytes: int | None) -> _Files | None:
    try:
        is_large = _is_large(snapshot, most_bytes)
        is_followed = int(snapshot.version()) >= 0 and not is_large and _is_plain(snapshot)
    except (Py4JJavaError, PySparkException):
        # Of what cannot be read Delta may need nothing, and else says so itself.
        return None
    files = _followed_files.sum_at(spark, table, snapshot) if is_followed else None
    return None if files is None or _is_above_limit(files, most_bytes) else files


def _is_plain(snapshot: Any) -> bool:
    """Return whether a path stands for one state of a file, as far as the features of the table tell."""
    protocol = json.loads(snapshot.protocol().json())["protocol"]
    mapped = {"columnMapping"} if protocol["minReaderVersion"] == 2 else set()
    return {*protocol.get("readerFeatures", ()), *mapped} <= _READER_FEATURES


def _is_large(snapshot: Any, most_bytes: int | None) -> bool:
    """Return whether Delta's checksum says so; it may be of another commit, and then just costs time."""
    found = snapshot.checksumOpt()
    if not found.isDefined():
        return False
    checksum = found.get()
    has_many_bytes = most_bytes is not None and checksum.tableSizeBytes() > most_bytes
    return bool(checksum.numFiles() > _MOST_FILES or has_many_bytes)


def _of_delta(snapshot: Any) -> _Files | None:
    """Return the files of a version as Delta lists them, one more than a small table has at most."""
    files = snapshot.allFiles().limit(_MOST_FILES + 1).collectAsList()
    if any(_AMBIGUOUS.match(file.path()) for file in files):
        return None
    return {str(file.path()): _File(file, int(file.size())) for file in files}


def _with_commit(spark: SparkSession, files: _Files, commit: str) -> _Files:
    """Return files as the actions of a commit change them.

    Raises:
        ValueError: The commit is damaged, or what it says of a file cannot be followed.
        KeyError, TypeError: It removes a file that is not there, or a part of it is none.
    """
    jvm: Any = spark.sparkContext._jvm
    # Each becomes an object of the JVM.
    if len(files) > _MOST_FILES or commit.count('{"add":') > _MOST_FILES:
        raise ValueError("more files than a small table has")
    changed = dict(files)
    actions = [(action_in(line), line) for line in commit.split("\n") if line]
    for action, _ in actions:
        if "remove" in action:
            del changed[action["remove"]["path"]]
    for action, line in actions:
        if "add" in action:
            path = str(action["add"]["path"])
            if _AMBIGUOUS.match(path):
                raise ValueError("a path of several spellings")
            added = jvm.org.apache.spark.sql.delta.actions.Action.fromJson(line)
            changed[path] = _File(added, int(action["add"]["size"]))
    return changed


_followed_files: Final = LogFollower[_Files]({}, _with_commit, _of_delta)
