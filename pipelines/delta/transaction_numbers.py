"""The last numbers that a table has taken of applications, found without a Spark job.

Delta adds the numbers of all applications up over its whole log, by jobs for each version of a table.
A query that writes all the time has its last number in one of the newest commits. Of several commits with a
number of the same application, the newest counts. For others the numbers of a version are those of an earlier
one, changed by the commits since.

Only commits are followed that Delta itself adds up: those behind the checkpoint that it reads. So a commit of
which a checkpoint and a file say different things, as after a crash or a restored backup, is left to Delta.
So is whatever cannot be read here. A number that Delta has dropped, because
`delta.setTransactionRetentionDuration` is set, may still be known here: it is never lower than Delta's.

Delta takes a commit whose file is empty for one that did nothing, so what it had committed would be lost
without a word. Whoever looks for a number in the newest commits is told.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#transaction-identifiers
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.delta.commits import action_in, damaged_commit
from pipelines.delta.log import newest_snapshot
from pipelines.delta.time_travel import commit_hash
from pipelines.spark.files import HadoopFile

_COMMITS: Final = 5
_MOST_FOLLOWED: Final = 20
_MOST_TABLES: Final = 200
_BYTES: Final = 1_000_000
# Not a file that puts several commits together.
_COMMIT: Final = re.compile(r"\d{20}\.json")


@dataclass(frozen=True)
class _Numbers:
    """The numbers of a version of a table.

    Attributes:
        version: the version; -1 before the first one.
        commit: the `commit_hash` of the version; empty before the first one.
        taken: the last number of each application.
    """

    version: int
    commit: str
    taken: Mapping[str, int]


_NOTHING: Final = _Numbers(-1, "", {})

_known: Final[dict[str, _Numbers]] = {}
"""The numbers of the newest version of each table that was looked at, by the table's path."""


def last_number(spark: SparkSession, table: str, snapshot: Any, application: str) -> int | None:
    """Return the last number of an application that a version of a table has taken; None if there is none.

    Args:
        spark: the session.
        table: the path of the Delta table.
        snapshot: Delta's `Snapshot` of the version.
        application: the application's id (`txnAppId`).

    Raises:
        SourceError: the file of one of the newest commits is empty or cut off.
    """
    newest = number_in_newest_commits(spark, snapshot, application)
    return last_numbers(spark, table, snapshot).get(application) if newest is None else newest


def last_numbers(spark: SparkSession, table: str, snapshot: Any) -> Mapping[str, int]:
    """Return the last number of each application that a version of a table has taken.

    Args:
        spark: the session.
        table: the path of the Delta table.
        snapshot: Delta's `Snapshot` of the version.
    """
    try:
        numbers = _numbers(spark, table, snapshot)
    except (Py4JJavaError, PySparkException):
        # Of what cannot be read Delta may need nothing, and else says so itself.
        numbers = None
    return MappingProxyType(_added_up(snapshot) if numbers is None else numbers.taken)


def _numbers(spark: SparkSession, table: str, snapshot: Any) -> _Numbers | None:
    """Return the numbers of a version, and remember them; None if Delta has to add them up."""
    known, version = _known.get(table), int(snapshot.version())
    if known and known.version == version and commit_hash(spark, table, version) == known.commit:
        return known
    numbers = _followed(spark, table, snapshot, known) or _of_delta(spark, table, snapshot)
    segment = snapshot.logSegment()
    # The folder may have been replaced while its commits were read one after the other.
    if not newest_snapshot(spark, table).logSegment().equals(segment):
        return None
    commits = segment.deltas()
    # One without a byte may be repaired later; a large one would be read for its hash each time.
    if all(0 < commits.apply(at).getLen() <= _BYTES for at in range(commits.size())):
        if len(_known) >= _MOST_TABLES:
            _known.clear()
        _known[table] = numbers
    return numbers


def _followed(spark: SparkSession, table: str, snapshot: Any, known: _Numbers | None) -> _Numbers | None:
    """Return the numbers of a version by those of an earlier one, or of none, and the commits since.

    None if there is no earlier one of the same history, or a commit since that is not to be read here.
    """
    version, first = int(snapshot.version()), int(snapshot.logSegment().checkpointProvider().version()) + 1
    base = known if known and first - 1 <= known.version <= version else _NOTHING
    # In a folder that was replaced or restored from a backup, the version was made by another commit.
    if base.version >= 0 and commit_hash(spark, table, base.version) != base.commit:
        base = _NOTHING
    since = range(base.version + 1, version + 1)
    if since.start < first or not 0 < len(since) <= _MOST_FOLLOWED:
        return None
    texts = _texts(spark, snapshot, since)
    if texts is None:
        return None
    taken = dict(base.taken)
    try:
        for text in texts:
            taken |= _numbers_in(text)
    except ValueError:
        return None
    return _Numbers(version, hashlib.sha256(texts[-1].encode()).hexdigest(), taken)


def _texts(spark: SparkSession, snapshot: Any, versions: range) -> list[str] | None:
    """Return the commits of versions up to that of a snapshot; None if one is not to be read here."""
    commits = snapshot.logSegment().deltas()
    # One file may put several commits together.
    if commits.size() < len(versions):
        return None
    newest = [commits.apply(at) for at in range(commits.size() - len(versions), commits.size())]
    names = [f"{version:020d}.json" for version in versions]
    if [file.getPath().getName() for file in newest] != names or any(f.getLen() > _BYTES for f in newest):
        return None
    texts = [HadoopFile(spark, file.getPath()).text() for file in newest]
    return None if None in texts else [text for text in texts if text is not None]


def _of_delta(spark: SparkSession, table: str, snapshot: Any) -> _Numbers:
    version = int(snapshot.version())
    commit = commit_hash(spark, table, version) if version >= 0 else None
    return _Numbers(version, commit or "", _added_up(snapshot))


def _added_up(snapshot: Any) -> dict[str, int]:
    """Return the numbers as Delta adds them up, by a job."""
    transactions = snapshot.setTransactions()
    each = [transactions.apply(number) for number in range(transactions.size())]
    return {str(transaction.appId()): int(transaction.version()) for transaction in each}


def number_in_newest_commits(spark: SparkSession, snapshot: Any, application: str) -> int | None:
    """Return the last number of an application, if one of the newest commits has it.

    Args:
        spark: the session.
        snapshot: Delta's `Snapshot` of a table.
        application: the application's id (`txnAppId`).

    Returns:
        The number; None if none of the newest commits has one, or one of them cannot be looked at.

    Raises:
        SourceError: the file of one of them is empty or cut off.
    """
    commits = snapshot.logSegment().deltas()
    newest = commits.size() - 1
    for at in range(newest, max(newest - _COMMITS, -1), -1):
        file = commits.apply(at)
        if file.getLen() > _BYTES or not _COMMIT.fullmatch(file.getPath().getName()):
            return None
        text = HadoopFile(spark, file.getPath()).text()
        if text is None:
            return None
        try:
            number = number_in(text, application)
        except ValueError:
            raise damaged_commit(file.getPath()) from None
        if number is not None:
            return number
    return None


def damaged_commits(spark: SparkSession, table: str) -> list[str]:
    """Return the files of the newest commits of a table that are empty or cut off; none without a table.

    Only the files are looked at: of a damaged table Delta itself may not make a snapshot.

    Args:
        spark: the session.
        table: the path of a Delta table.
    """
    log = f"{table}/_delta_log"
    names = sorted(name for name in HadoopFile(spark, log).names() if _COMMIT.fullmatch(name))
    return [path for name in names[-_COMMITS:] if _is_damaged(HadoopFile(spark, path := f"{log}/{name}"))]


def _is_damaged(file: HadoopFile) -> bool:
    # A large one would be a download.
    text = file.text() if file.size() <= _BYTES else None
    try:
        if text is not None:
            number_in(text, "")
    except ValueError:
        return True
    return False


def number_in(commit: str, application: str) -> int | None:
    """Return the number of an application in the text of a commit; None if it has none.

    Args:
        commit: a JSON object in each line.
        application: the application's id.

    Raises:
        ValueError: the text is empty, its end is missing, or a line that was looked at is no action.
    """
    return _numbers_in(commit).get(application)


def _numbers_in(commit: str) -> dict[str, int]:
    """Return the numbers of all applications in the text of a commit; raise as `number_in` does."""
    # By line feeds alone: a text within a line may hold other ends of lines.
    lines = commit.rstrip("\n").split("\n")
    action_in(lines[-1])
    numbers = dict[str, int]()
    for line in lines:
        taken = action_in(line).get("txn") if '"txn"' in line else None
        match taken:
            case None:
                continue
            case {"appId": str() as name, "version": int() as number}:
                numbers[name] = number
            case _:
                raise ValueError("a transaction without an application or a number")
    return numbers
