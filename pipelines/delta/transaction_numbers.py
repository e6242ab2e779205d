"""The last numbers that a table has taken of applications, found without a Spark job.

Delta adds the numbers of all applications up over its whole log, by jobs for each version of a table.
A query that writes all the time has its last number in one of the newest commits. Of several commits with a
number of the same application, the newest counts. For others the log is followed. A number that
Delta has dropped, because `delta.setTransactionRetentionDuration` is set, may still be known here: it is
never lower than Delta's.

Delta takes a commit whose file is empty for one that did nothing, so what it had committed would be lost
without a word. Whoever looks for a number in the newest commits is told.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#transaction-identifiers
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pipelines.delta.commits import action_in
from pipelines.delta.log_follower import MOST_BYTES, LogFollower
from pipelines.spark.failures import damaged_commit, damaged_log_in
from pipelines.spark.files import HadoopFile

_COMMITS: Final = 5
# Not a file that puts several commits together.
_COMMIT: Final = re.compile(r"\d{20}\.json")


def last_number(spark: SparkSession, table: str, snapshot: Any, application: str) -> int | None:
    """Return the last number of an application that a version of a table has taken; None if there is none.

    Args:
        spark: The session.
        table: The path of the Delta table.
        snapshot: Delta's `Snapshot` of the version.
        application: The application's id (`txnAppId`).

    Raises:
        SourceError: The file of one of the newest commits is empty or cut off.
    """
    newest = number_in_newest_commits(spark, snapshot, application)
    return last_numbers(spark, table, snapshot).get(application) if newest is None else newest


def last_numbers(spark: SparkSession, table: str, snapshot: Any) -> Mapping[str, int]:
    """Return the last number of each application that a version of a table has taken.

    Args:
        spark: The session.
        table: The path of the Delta table.
        snapshot: Delta's `Snapshot` of the version.
    """
    numbers = _followed_numbers.sum_at(spark, table, snapshot)
    return MappingProxyType(dict(_of_delta(snapshot) if numbers is None else numbers))


def _of_delta(snapshot: Any) -> dict[str, int]:
    """Return the numbers as Delta adds them up, by a job."""
    transactions = snapshot.setTransactions()
    each = [transactions.apply(number) for number in range(transactions.size())]
    return {str(transaction.appId()): int(transaction.version()) for transaction in each}


def _with_commit(_: SparkSession, numbers: Mapping[str, int], commit: str) -> Mapping[str, int]:
    return {**numbers, **_numbers_in(commit)}


_followed_numbers: Final = LogFollower[Mapping[str, int]]({}, _with_commit, _of_delta)


def number_in_newest_commits(spark: SparkSession, snapshot: Any, application: str) -> int | None:
    """Return the last number of an application, if one of the newest commits has it.

    Args:
        spark: The session.
        snapshot: Delta's `Snapshot` of a table.
        application: The application's id (`txnAppId`).

    Returns:
        The number; None if none of the newest commits has one, or one of them cannot be looked at.

    Raises:
        SourceError: The file of one of them is empty or cut off.
    """
    commits = snapshot.logSegment().deltas()
    newest = commits.size() - 1
    for at in range(newest, max(newest - _COMMITS, -1), -1):
        file = commits.apply(at)
        if file.getLen() > MOST_BYTES or not _COMMIT.fullmatch(file.getPath().getName()):
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


def damaged_commits(spark: SparkSession, table: str, newest: int = _COMMITS) -> list[str]:
    """Return the files of the newest commits of a table that are empty or cut off; none without a table.

    Only the files are looked at: of a damaged table Delta itself may not make a snapshot.

    Args:
        spark: The session.
        table: The path of a Delta table.
        newest: How many commits are looked at.
    """
    log = f"{table}/_delta_log"
    names = sorted(name for name in HadoopFile(spark, log).names() if _COMMIT.fullmatch(name))
    return [path for name in names[-newest:] if _is_damaged(HadoopFile(spark, path := f"{log}/{name}"))]


def _is_damaged(file: HadoopFile) -> bool:
    try:
        # A large one would be a download.
        text = file.text() if file.size() <= MOST_BYTES else None
        if text is not None:
            number_in(text, "")
    except ValueError:
        return True
    except Py4JJavaError as error:
        if damaged_log_in(error) is None:
            raise
        return True
    return False


def number_in(commit: str, application: str) -> int | None:
    """Return the number of an application in the text of a commit; None if it has none.

    Args:
        commit: A JSON object in each line.
        application: The application's id.

    Raises:
        ValueError: The text is empty, its end is missing, or a line that was looked at is no action.
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
