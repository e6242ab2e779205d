"""How a commit that carries a stamp is made, tried again, and looked for: the protocol, without Spark.

The table is behind `FencedTable` and `FencedTransaction`. Jobs use Delta (`pipelines.delta.fenced_commits`);
`simulation` uses a model of Delta's log. So what is simulated is what runs.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from pipelines.delta.conditions import days_condition, partition_condition
from pipelines.delta.conflicts import TABLE_CHANGED, raising_stale_epoch, retry_conflicts
from pipelines.delta.epochs import Commit, StaleEpoch, Stamp, require_newer, stale_epoch_error
from pipelines.delta.replaced_rows import File
from pipelines.fault_points import Point, reach

DELETION: Final = "delete"
"""What the commit does that removes old rows, as its stamp says."""


class FencedTransaction(Protocol):
    """A transaction on the newest version of a table."""

    def number_taken(self, application: str) -> int:
        """Return the last number taken of an application; the commit conflicts with a further one."""

    def partition_files(self, partition: Mapping[str, str]) -> list[File]:
        """Return the files of a partition; the commit conflicts with what removes one of them."""

    def differences(self, at: int | None, days: Sequence[date]) -> tuple[list[File], list[File]]:
        """Return files that only a version has, and those that only the table has now."""

    def require(self, files: Sequence[File], at: int | None) -> None:
        """Make sure that files of a version are there."""

    def added(self, file: File) -> Any:
        """Return the action by which a file becomes one of the table."""

    def removed(self, file: File) -> Any:
        """Return the action by which a file is no longer one of the table."""

    def take_columns_of(self, at: int) -> None:
        """Give the table the columns and properties back that it had at a version."""

    def rewrite(self, change: Any) -> frozenset[str]:
        """Write the files anew that have rows to change; return the paths of those that they replace."""

    def replace_files(self, paths: Collection[str], other: Any) -> bool:
        """Take what another transaction has written in place of files, and remove these, by the commit."""

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties of the table; its first days never become earlier ones."""

    def commit(
        self, actions: Sequence[Any], stamp: Stamp, mode: str = "Append", condition: str | None = None
    ) -> int:
        """Commit actions and the stamp; return the version that this made."""


Writing = TypeVar("Writing", bound=FencedTransaction)


class FencedTable(Protocol):
    """A table whose commits carry stamps."""

    @property
    def path(self) -> str:
        """Its path, for messages."""

    def version(self) -> int:
        """Return its newest version."""

    def begin(self) -> FencedTransaction:
        """Begin a transaction on the newest version."""

    def commits_since(self, base: int) -> list[Commit]:
        """Return its commits after a version."""

    def pause(self, seconds: float) -> None:
        """Wait before a commit is tried again."""


class Restored(NamedTuple):
    """The outcome of a restore.

    Attributes:
        version: The version of the table that the commit made.
        has_differed: Whether there was anything to restore.
    """

    version: int
    has_differed: bool


def claim_table(table: FencedTable, stamp: Stamp) -> int:
    """Make a table refuse the commits of all earlier epochs; see `pipelines.delta.fenced_commits.claim`."""
    return retry_conflicts(table.path, lambda: table.begin().commit([], stamp), pause=table.pause)


def rows_deleted(
    table: FencedTable,
    delete: Callable[[Stamp], None],
    properties: Mapping[str, str],
    stamps: Callable[[str], Stamp],
) -> int:
    """Delete rows, after the table says so of itself; return the version that the deletion made.

    Args:
        table: The table.
        delete: Makes the commit, which carries a stamp, by `rewrite_files`.
        properties: What the table says of itself from before the first row goes.
        stamps: Gives the stamps of the run.

    Raises:
        StaleEpoch: A later epoch has claimed the table. No row was deleted.
    """
    stamp = stamps("retention")

    def set_properties() -> int:
        transaction = table.begin()
        transaction.set_properties(properties)
        return transaction.commit([], stamp)

    retry_conflicts(table.path, set_properties, pause=table.pause)
    deleting = stamps(DELETION)
    return write_fenced(table, partial(delete, deleting), deleting)


class _FilesChanged(Exception):
    """Others have rewritten the files of the rows that were to be changed."""


def rewrite_files(
    table: FencedTable,
    begin: Callable[[], Writing],
    change: Any,
    commit: Callable[[Writing], object],
    *,
    is_needed: bool = True,
) -> None:
    """Write rows anew by one transaction, and commit them by others that last a moment.

    To a table without partitions Delta commits nothing but appends if others have appended since the
    transaction began. It takes long to find and to write rows, and a stream appends every few seconds.

    Args:
        table: The table.
        begin: Begins a transaction on the newest version.
        change: Which rows, and how.
        commit: Makes the commit.
        is_needed: Whether there has to be a commit, also if there are no such rows.

    Raises:
        InfrastructureError: Others committed first, or rewrote the same files, at each try.
    """

    def rewrite() -> None:
        work = begin()
        paths = work.rewrite(change)

        def take_their_place() -> None:
            transaction = begin()
            if not transaction.replace_files(paths, work):
                raise _FilesChanged
            commit(transaction)

        if paths or is_needed:
            retry_conflicts(table.path, take_their_place, pause=table.pause)

    # What was written stays until VACUUM: a commit that has failed may have been made all the same.
    retry_conflicts(table.path, rewrite, (_FilesChanged,), table.pause)


def write_fenced(table: FencedTable, save: Callable[[], None], stamp: Stamp) -> int:
    """Make a commit that carries a stamp, and look for it; return the version that it made.

    Args:
        table: The table.
        save: Makes the commit. A command of Delta writes nothing, and does not say so, if the table knows the
            number of the stamp or a later one.
        stamp: What the commit carries.

    Raises:
        StaleEpoch: A later epoch has claimed the table. Nothing was written.
    """
    before, overtaken = table.version(), None
    try:
        with raising_stale_epoch(table.path):
            retry_conflicts(table.path, save, TABLE_CHANGED, table.pause)
    except StaleEpoch as error:
        # A store that lost its answer refuses the same commit when it is sent again.
        overtaken = error
    # Delta has left it out without a word if the table knew a later number.
    versions = [commit.version for commit in table.commits_since(before) if commit.note == stamp.note]
    if not versions:
        raise overtaken or stale_epoch_error(table.path)
    return versions[0]


def replace_partition(
    table: FencedTable,
    partition: Mapping[str, str],
    write: Callable[[Any], Sequence[Any]],
    stamp: Stamp,
) -> None:
    """Replace a partition by one commit. Only runs whose stamps have the same application may write it.

    The commit conflicts with a further number of that application. A row that somebody deletes meanwhile,
    without a number, is not written again. A commit that failed may have been made all the same, so its files
    stay until `VACUUM`.

    Args:
        table: The table.
        partition: The values of all partition columns.
        write: Writes the rows by a transaction; returns the actions that add them, if it does not keep them.
        stamp: What the commit carries.

    Raises:
        StaleEpoch: The table has taken the number of the stamp, or a later one. Nothing was replaced.
        InfrastructureError: Others changed columns or properties of the table at each try.
        One of `CONFLICTS`: Others, who hold no epoch, changed the partition meanwhile.
    """

    def replace() -> None:
        transaction = table.begin()
        require_newer(table.path, transaction.number_taken(stamp.application), stamp)
        removed = [transaction.removed(file) for file in transaction.partition_files(partition)]
        actions = [*removed, *write(transaction)]
        reach(Point.PARTITION_WRITTEN)
        transaction.commit(actions, stamp, "Overwrite", partition_condition(partition))

    retry_conflicts(table.path, replace, TABLE_CHANGED, table.pause)


def restore_table(table: FencedTable, to: int | None, stamp: Stamp, days: Sequence[date] = ()) -> Restored:
    """Restore a table, or some of its event days; see `pipelines.delta.fenced_commits.restore_fenced`."""
    return retry_conflicts(table.path, lambda: _restore(table.begin(), to, stamp, days), pause=table.pause)


def _restore(transaction: FencedTransaction, to: int | None, stamp: Stamp, days: Sequence[date]) -> Restored:
    added, removed = transaction.differences(to, days)
    if not added and not removed:
        return Restored(transaction.commit([], stamp), has_differed=False)
    transaction.require(added, to)
    if not days and to is not None:
        transaction.take_columns_of(to)
    actions = [transaction.added(file) for file in added]
    actions += [transaction.removed(file) for file in removed]
    condition = days_condition(days) if days else "true"
    return Restored(transaction.commit(actions, stamp, "Overwrite", condition), has_differed=True)
