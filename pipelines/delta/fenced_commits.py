"""Commits to Delta tables that a run can only make while no later run has taken over.

Delta keeps for each `txnAppId` the highest `txnVersion` that a table has taken. A commit with a lower one
fails: where it was begun before the higher one was taken, with `ConcurrentTransactionException`, else Delta
leaves it out **without a word**, so here each commit is looked for in the table's history afterwards.
What has no such option, as `RESTORE` has none, is made by a transaction of Delta's own classes.
"""

import time
from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameWriter

from pipelines.delta.commits import commit_at
from pipelines.delta.conflicts import TABLE_CHANGED, retry_conflicts
from pipelines.delta.epochs import Commit, Stamp
from pipelines.delta.io import days_condition
from pipelines.delta.table_properties import keep_versions
from pipelines.delta.transaction import Transaction, refused, stale


def number_taken(spark: SparkSession, table: str, application: str) -> int:
    """Return the highest number of an application that a Delta table has taken; -1 if it has taken none."""
    return Transaction(spark, table).number_taken(application)


def claim(spark: SparkSession, table: str, stamp: Stamp) -> int:
    """Make a table refuse the commits of all earlier epochs, by a commit without rows.

    Args:
        spark: the session.
        table: the path of a Delta table.
        stamp: what the commit carries.

    Returns:
        The version of the table that the commit made.

    Raises:
        StaleEpoch: a later epoch has claimed it.
        InfrastructureError: others, who hold no epoch, wrote to the table at each try.
    """
    return retry_conflicts(table, lambda: Transaction(spark, table).commit([], stamp))


def append_fenced(rows: DataFrame, table: str, stamp: Stamp) -> int:
    """Append rows to a Delta table, as one commit; return the version of the table that it made.

    Raises:
        StaleEpoch: a later epoch has claimed the table. Nothing was written.
    """
    return _written(_stamped(rows, stamp).mode("append"), rows.sparkSession, table, stamp)


def replace_days_fenced(rows: DataFrame, table: str, days: Sequence[date], stamp: Stamp) -> int:
    """Truncate event days and write their rows, as one atomic commit.

    Args:
        rows: rows whose `_event_date` is one of the days; Delta refuses any other.
        table: the path of a Delta table partitioned by `_event_date`.
        days: the days.
        stamp: what the commit carries.

    Returns:
        The version of the table that the commit made.

    Raises:
        StaleEpoch: a later epoch has claimed the table. Nothing was written.
        DeltaConcurrentModificationException: others, who hold no epoch, changed these days meanwhile.
    """
    return replace_fenced(rows, table, days_condition(days), stamp)


def replace_fenced(rows: DataFrame, table: str, condition: str, stamp: Stamp) -> int:
    """Delete the rows for which a condition holds and write others; as `replace_days_fenced`."""
    writer = _stamped(rows, stamp).mode("overwrite").option("replaceWhere", condition)
    return _written(writer, rows.sparkSession, table, stamp)


class Restored(NamedTuple):
    """The outcome of a restore.

    Attributes:
        version: the version of the table that the commit made.
        has_differed: whether there was anything to restore.
    """

    version: int
    has_differed: bool


def restore_fenced(
    spark: SparkSession, table: str, to: int | None, stamp: Stamp, days: Sequence[date] = ()
) -> Restored:
    """Restore a table, or some of its event days, to an earlier version, as a new commit; copy no data.

    Like Delta's `RESTORE` it adds the files of that version again, so that a `VACUUM` keeps them for those
    who read the version by its number. A table that holds nothing else gets a commit all the same,
    which claims it: from then on it is as at that version, and no earlier epoch can change it.

    Args:
        spark: the session.
        table: the path of a Delta table; with days, partitioned by `_event_date`.
        to: the version; None for a table without rows.
        stamp: what the commit carries.
        days: the days, sorted, if not the whole table is meant.

    Raises:
        StaleEpoch: a later epoch has claimed the table. Nothing was changed.
        SourceError: that version is gone, or files of it are.
        InfrastructureError: others, who hold no epoch, wrote to the table at each try.
    """
    restored = retry_conflicts(table, lambda: _restored(spark, table, to, stamp, days))
    if restored.has_differed:
        # Apart: for a conflict of this one the commit, whose number is taken now, is not made again.
        keep_versions(spark, table)
    return restored


def _restored(
    spark: SparkSession, table: str, to: int | None, stamp: Stamp, days: Sequence[date]
) -> Restored:
    transaction = Transaction(spark, table)
    added, removed = transaction.differences(to, days)
    if not added and not removed:
        return Restored(transaction.commit([], stamp), has_differed=False)
    transaction.require(added, to)
    if not days and to is not None:
        transaction.take_columns_of(to)
    gone_at = int(time.time() * 1000)
    actions = [transaction.added(file) for file in added]
    actions += [transaction.added(file).removeWithTimestamp(gone_at, True) for file in removed]
    condition = days_condition(days) if days else "true"
    return Restored(transaction.commit(actions, stamp, "Overwrite", condition), has_differed=True)


def is_as_at(spark: SparkSession, table: str, at: int | None) -> bool:
    """Return whether a table consists of the files that it had at a version; with None, of no files."""
    return not any(Transaction(spark, table).differences(at, ()))


def commits_since(spark: SparkSession, table: str, base: int) -> list[Commit]:
    """Return the commits of a table after a version."""
    newest = Transaction(spark, table).version
    return [commit_at(spark, table, at) for at in range(base + 1, newest + 1)]


def _stamped(rows: DataFrame, stamp: Stamp) -> DataFrameWriter:
    writer = rows.write.format("delta").option("userMetadata", stamp.note)
    return writer.option("txnAppId", stamp.application).option("txnVersion", str(stamp.number))


def _written(writer: DataFrameWriter, spark: SparkSession, table: str, stamp: Stamp) -> int:
    before = Transaction(spark, table).version
    with refused(table):
        retry_conflicts(table, lambda: writer.save(table), TABLE_CHANGED)
    # Delta has left it out without a word if the table knew a later number.
    versions = [commit.version for commit in commits_since(spark, table, before) if commit.note == stamp.note]
    if not versions:
        raise stale(table)
    return versions[0]
