"""Commits to Delta tables that a run can only make while no later run has taken over.

Delta keeps for each `txnAppId` the highest `txnVersion` that a table has taken. A commit with a lower one
that was begun before the higher one was taken fails with `ConcurrentTransactionException`. One that is begun
later is refused here before it writes; a command of Delta leaves it out and does not say so. So each commit
is looked for in the table's history afterwards.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from pipelines.delta.commits import commit_at
from pipelines.delta.conditions import partition_condition
from pipelines.delta.conflicts import retry_conflicts
from pipelines.delta.epochs import Commit, Stamp, require_newer
from pipelines.delta.fencing import (
    Restored,
    claim_table,
    replace_partition,
    restore_table,
    rewrite_files,
    rows_deleted,
    write_fenced,
)
from pipelines.delta.log import delta_log, is_divided_by
from pipelines.delta.replaced_rows import ReplacedRows, RowsOfDays
from pipelines.delta.row_changes import RowChange, deletion
from pipelines.delta.table_properties import keep_versions
from pipelines.delta.transaction import Transaction

USER_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"


@dataclass(frozen=True)
class _Table:
    """A Delta table as `pipelines.delta.fencing` sees it."""

    spark: SparkSession
    path: str

    def version(self) -> int:
        """Return its newest version."""
        return self.begin().version

    def begin(self) -> Transaction:
        """Begin a transaction on the newest version."""
        return Transaction(self.spark, self.path)

    def commits_since(self, base: int) -> list[Commit]:
        """Return its commits after a version."""
        return commits_since(self.spark, self.path, base)

    def pause(self, seconds: float) -> None:
        """Wait before a commit is tried again."""
        time.sleep(seconds)


def number_taken(spark: SparkSession, table: str, application: str) -> int:
    """Return the highest number of an application that a Delta table has taken; -1 if it has taken none."""
    return Transaction(spark, table).number_taken(application)


def claim(spark: SparkSession, table: str, stamp: Stamp) -> int:
    """Make a table refuse the commits of all earlier epochs, by a commit without rows.

    Args:
        spark: The session.
        table: The path of a Delta table.
        stamp: What the commit carries.

    Returns:
        The version of the table that the commit made.

    Raises:
        StaleEpoch: A later epoch has claimed it.
        InfrastructureError: Others, who hold no epoch, wrote to the table at each try.
    """
    return claim_table(_Table(spark, table), stamp)


def commit_nothing(spark: SparkSession, table: str, note: str) -> int:
    """Make the next version of a table, with the same rows, whoever has claimed it; return the version.

    Args:
        spark: The session.
        table: The path of a Delta table.
        note: Kept in the commit, as `userMetadata`.

    Raises:
        InfrastructureError: Others wrote to the table at each try.
    """

    def commit() -> int:
        transaction = Transaction(spark, table)
        transaction.require_table()
        return transaction.commit_unfenced([], note, "Append")

    return retry_conflicts(table, commit)


def set_first_day(spark: SparkSession, table: str, key: str, day: date) -> None:
    """Let a table say from which day on it is complete, unless it names a later one.

    Args:
        spark: The session.
        table: The path of a Delta table.
        key: The property.
        day: The first complete day.

    Raises:
        InfrastructureError: Others wrote to the table at each try.
    """

    def commit() -> int:
        transaction = Transaction(spark, table)
        transaction.require_table()
        transaction.set_properties({key: day.isoformat()})
        return transaction.commit_unfenced([], None, "Append")

    retry_conflicts(table, commit)


def append_few(rows: DataFrame, table: str) -> None:
    """Append rows that the driver has to a Delta table, as one commit, whoever has claimed it.

    Raises:
        SourceError: There is no table, or it has not the columns of the rows.
        InfrastructureError: Others changed the table's columns or properties at each try.
    """

    def commit() -> int:
        transaction = Transaction(rows.sparkSession, table)
        transaction.write_few(rows)
        return transaction.commit_unfenced([], None, "Append")

    retry_conflicts(table, commit)


def append_fenced(rows: DataFrame, table: str, stamp: Stamp) -> int:
    """Append rows to a Delta table, as one commit; return the version of the table that it made.

    Raises:
        StaleEpoch: A later epoch has claimed the table. Nothing was written.
    """
    spark = rows.sparkSession

    def save() -> None:
        transaction = _begin(spark, table, stamp)
        transaction.write_few(rows)
        transaction.commit([], stamp)

    return write_fenced(_Table(spark, table), save, stamp)


def _begin(spark: SparkSession, table: str, stamp: Stamp) -> Transaction:
    """Begin to write, if the table is there and has not taken the number of the stamp or a later one."""
    transaction = Transaction(spark, table)
    transaction.require_table()
    require_newer(table, transaction.number_taken(stamp.application), stamp)
    return transaction


def replace_days_fenced(rows: DataFrame, table: str, days: Sequence[date], stamp: Stamp) -> int:
    """Truncate event days and write their rows, as one atomic commit.

    Args:
        rows: Rows whose `_event_date` is one of the days.
        table: The path of a Delta table partitioned by `_event_date`.
        days: The days, sorted; at least one.
        stamp: What the commit carries.

    Returns:
        The version of the table that the commit made.

    Raises:
        StaleEpoch: A later epoch has claimed the table. Nothing was written.
        DeltaConcurrentModificationException: Others, who hold no epoch, changed these days meanwhile.
        SourceError: The table is gone.
        ValueError: A row is of another day. Nothing was committed.
    """
    return replace_rows_fenced(rows, table, RowsOfDays(days), stamp)


def replace_rows_fenced(rows: DataFrame, table: str, replaced: ReplacedRows, stamp: Stamp) -> int:
    """Write rows in place of others, as one atomic commit; return the version of the table that it made.

    Raises:
        As `replace_days_fenced`.
    """
    spark, condition = rows.sparkSession, " AND ".join(f"({each})" for each in replaced.conditions)

    def save() -> None:
        transaction = _begin(spark, table, stamp)
        removed = transaction.removed_rows(replaced)
        if removed is None:
            _replace_where(rows, table, condition, stamp)
            return
        transaction.write(rows)
        transaction.require_written_in_place_of(replaced)
        transaction.commit(removed, stamp, "Overwrite", condition)

    return write_fenced(_Table(spark, table), save, stamp)


def replace_where_fenced(rows: DataFrame, table: str, condition: str, stamp: Stamp) -> int:
    """Write rows in place of those for which a condition holds; as `replace_days_fenced`."""
    save = partial(_replace_where, rows, table, condition, stamp)
    return write_fenced(_Table(rows.sparkSession, table), save, stamp)


def _replace_where(rows: DataFrame, table: str, condition: str, stamp: Stamp) -> None:
    writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", condition)
    writer = writer.option("txnAppId", stamp.application).option("txnVersion", str(stamp.number))
    writer.option("userMetadata", stamp.note).save(table)


def replace_partition_fenced(rows: DataFrame, table: str, partition: Mapping[str, str], stamp: Stamp) -> None:
    """Write rows in place of a partition, as one commit, with one job at most.

    Args:
        rows: Rows of the partition.
        table: The path of a Delta table; only runs with stamps of the same application write the partition.
        partition: The values of all partition columns.
        stamp: What the commit carries.

    Raises:
        StaleEpoch: A later epoch has claimed the table. Nothing was written.
        InfrastructureError: Others changed columns or properties of the table at each try.
        One of `CONFLICTS`: Others, who hold no epoch, changed the partition meanwhile.
    """
    spark = rows.sparkSession
    # The version that was read last will do for a table that only runs write, and costs no request.
    if not is_divided_by(delta_log(spark, table).unsafeVolatileSnapshot(), [*partition]):
        replace_where_fenced(rows, table, partition_condition(partition), stamp)
        return

    def write(transaction: Transaction) -> tuple[()]:
        transaction.write_few(rows)
        return ()

    replace_partition(_Table(spark, table), partition, write, stamp)


def delete_rows_fenced(
    spark: SparkSession,
    table: str,
    condition: str,
    properties: Mapping[str, str],
    stamps: Callable[[str], Stamp],
) -> int:
    """Delete rows of a Delta table, by a commit of properties and one of the deletion; return its version.

    Args:
        spark: The session.
        table: The path of a Delta table.
        condition: Which rows, in SQL; there is one at least.
        properties: What the table says of itself from before the first row goes.
        stamps: Gives the stamps of the run.

    Raises:
        StaleEpoch: A later epoch has claimed the table. No row was deleted.
        InfrastructureError: Others, who hold no epoch, wrote to the table at each try.
    """

    def delete(stamp: Stamp) -> None:
        def begin() -> Transaction:
            return _begin(spark, table, stamp)

        rewrite_files(_Table(spark, table), begin, deletion(condition), lambda at: at.commit([], stamp))

    return rows_deleted(_Table(spark, table), delete, properties, stamps)


def rewrite_rows(spark: SparkSession, table: str, change: RowChange, note: str | None = None) -> None:
    """Change or delete rows of a Delta table by one commit, without a stamp; no commit if no row matches.

    Args:
        spark: The session.
        table: The path of the table.
        change: Which rows, and how.
        note: Kept in the commit, as `userMetadata`.

    Raises:
        SourceError: There is no table.
        InfrastructureError: Others rewrote the same files at each try.
    """

    def begin() -> Transaction:
        transaction = Transaction(spark, table)
        transaction.require_table()
        return transaction

    at_newest = _Table(spark, table)
    rewrite_files(at_newest, begin, change, lambda at: at.commit_unfenced([], note), is_needed=False)


def restore_fenced(
    spark: SparkSession, table: str, to: int | None, stamp: Stamp, days: Sequence[date] = ()
) -> Restored:
    """Restore a table, or some of its event days, to an earlier version, as a new commit; copy no data.

    Like Delta's `RESTORE` it adds the files of that version again, so that a `VACUUM` keeps them for those
    who read the version by its number. A table that holds nothing else gets a commit all the same,
    which claims it: from then on it is as at that version, and no earlier epoch can change it.

    Args:
        spark: The session.
        table: The path of a Delta table; with days, partitioned by `_event_date`.
        to: The version; None for a table without rows.
        stamp: What the commit carries.
        days: The days, sorted, if not the whole table is meant.

    Raises:
        StaleEpoch: A later epoch has claimed the table. Nothing was changed.
        SourceError: That version is gone, or files of it are.
        InfrastructureError: Others, who hold no epoch, wrote to the table at each try.
    """
    outcome = restore_table(_Table(spark, table), to, stamp, days)
    if outcome.has_differed:
        # Apart: for a conflict of this one the commit, whose number is taken now, is not made again.
        keep_versions(spark, table)
    return outcome


def is_as_at(spark: SparkSession, table: str, at: int | None) -> bool:
    """Return whether a table consists of the files that it had at a version; with None, of no files."""
    return not any(Transaction(spark, table).differences(at, ()))


def commits_since(spark: SparkSession, table: str, base: int) -> list[Commit]:
    """Return the commits of a table after a version."""
    newest = Transaction(spark, table).version
    return [commit_at(spark, table, at) for at in range(base + 1, newest + 1)]
