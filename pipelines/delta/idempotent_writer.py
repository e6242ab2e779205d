"""Appends micro-batches to a Delta table, each exactly once, and counts the rows that the table took."""

import json
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from pipelines.delta.conflicts import TABLE_CHANGED, retry_conflicts
from pipelines.delta.epochs import StaleEpoch, Stamp
from pipelines.delta.fenced_commits import commits_since
from pipelines.delta.reset_fence import ResetFence
from pipelines.delta.table_state import last_batch, recent_commits
from pipelines.delta.transaction import Transaction
from pipelines.errors import SourceError
from pipelines.fault_points import Point, reach
from pipelines.spark.streams import query_of
from pipelines.spark.write_parts import part_of_writing

_LOOK_BACK: Final = 200

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DraftedRows:
    """Rows that are written and not committed.

    Attributes:
        transaction: Has written them.
        rows: How many they are.
    """

    transaction: Transaction
    rows: int


class BatchRows(NamedTuple):
    """How many rows the table took of a micro-batch."""

    batch: int
    rows: int


@dataclass
class IdempotentWriter:
    """What a query has appended to one table since it was started here.

    With each commit Delta keeps the query's id, which lives as long as its checkpoint, and the number of the
    micro-batch. Delta's own sink passes over every micro-batch whose number is not greater than the last one
    in the table, whatever is in it; here that is right only of the one that an earlier try may have written.

    Attributes:
        table: The path of the table.
        begun: The micro-batch that an earlier try, of this run or of one before, may have written.
        rows: Rows of the micro-batches before the last one.
        last: The last micro-batch and its rows.
        fence: Keeps out a run that was replaced by a reset of its checkpoint; None if a reset replaces the
            table as well.
        table_id: The id of the table when this run wrote to it first; None before that.
        has_few: Whether the driver has the rows, as a rule; it then writes them itself.
        before_commit: Raises if what was read may not become a part of the table.
    """

    table: str
    begun: int | None
    rows: int = 0
    last: BatchRows | None = None
    fence: ResetFence | None = None
    table_id: str | None = None
    has_few: bool = False
    before_commit: Callable[[], None] | None = None

    def append(self, rows: DataFrame, batch: int, count: int, **notes: int | None) -> bool:
        """Append a micro-batch, unless an earlier try has done so; one without rows is a commit, too.

        Args:
            rows: A frame derived from the micro-batch that `each_batch` gave.
            batch: The number of the micro-batch.
            count: How many rows the frame has.
            notes: Noted in the commit, see `pipelines.delta.table_state.StreamCommit`.

        Returns:
            Whether it was this try.

        Raises:
            SourceError: Another query has written this micro-batch, or one after it, under the same id.
        """
        if self.has(rows.sparkSession, batch):
            return False

        def write() -> None:
            self.commit(replace(self.draft(rows), rows=count), batch, **notes)

        retry_conflicts(self.table, write, TABLE_CHANGED, self.pause)
        return True

    def has(self, spark: SparkSession, batch: int) -> bool:
        """Return whether an earlier try has written a micro-batch; its rows then count as written.

        Raises:
            SourceError: Another query has written it, or one after it, under the same id.
        """
        query = self.query(spark)
        last = self.last_batch(spark, query)
        if last is None or last < batch:
            reach(Point.BATCH_LOOKED_FOR)
            self.begun = batch
            return False
        if last > batch or self.begun != batch:
            raise self._another_run(last, query, batch)
        self._count(batch, self.committed_rows(spark, query, batch))
        return True

    def draft(self, rows: DataFrame) -> DraftedRows:
        """Write the rows of a micro-batch to files that no reader sees before `commit`."""
        transaction = Transaction(rows.sparkSession, self.table)
        self._require_same_table(transaction)
        if self.has_few:
            transaction.write_few(rows, with_statistics=True)
        else:
            transaction.write(rows)
        return DraftedRows(transaction, transaction.written_rows())

    def _require_same_table(self, transaction: Transaction) -> None:
        found = transaction.table_id()
        self.table_id = self.table_id or found
        if found != self.table_id:
            raise SourceError(
                f"{self.table}: another table is in its place since this run began: found table id {found},"
                f" expected {self.table_id}. Its checkpoint was reset, or the table was restored from a copy."
                " Nothing of this micro-batch was written. Leave the run that follows the reset at work, and"
                " see to it that this one is not started again. See"
                " docs/runbook.md, 'A table and its checkpoint do not match'"
            )

    def commit(self, draft: DraftedRows, batch: int, **notes: int | None) -> None:
        """Make what was drafted a part of the table.

        Args:
            draft: The rows of the micro-batch, of which `has` was asked before they were written.
            batch: The number of the micro-batch.
            notes: As in `append`.

        Raises:
            SourceError: Another query has written this micro-batch, or one after it, under the same id; or
                this run was replaced by another, see `fence`.
        """
        transaction = draft.transaction
        query = self.query(transaction.spark)
        noted = json.dumps({"query": query, "batch": batch, **notes, "try": str(uuid.uuid4())})
        if self.before_commit:
            self.before_commit()
        try:
            with part_of_writing("commit"):
                if self.fence:
                    self.fence.guard(transaction)
                version = transaction.commit((), Stamp(query, batch, noted))
                if self.fence:
                    self.fence.passed = version
        except StaleEpoch:
            # A store that lost its answer refuses the same commit when it is sent again.
            if not self.has_committed(transaction, noted):
                if self.fence:
                    self.fence.guard(Transaction(transaction.spark, self.table))
                last = self.last_batch(transaction.spark, query)
                raise self._another_run(last, query, batch) from None
        self._count(batch, draft.rows)

    def has_committed(self, transaction: Transaction, note: str) -> bool:
        """Return whether there is a commit with a note, since a transaction began."""
        since = commits_since(transaction.spark, self.table, transaction.version)
        return any(commit.note == note for commit in since)

    def query(self, spark: SparkSession) -> str:
        """Return the id of the query whose micro-batch is written."""
        return query_of(spark)

    def last_batch(self, spark: SparkSession, query: str) -> int | None:
        """Return the number of the last micro-batch of a query in the table; None if there is none."""
        return last_batch(spark, self.table, query)

    def committed_rows(self, spark: SparkSession, query: str, batch: int) -> int:
        """Return how many rows the commit of a micro-batch has; 0 if it is not among the newest."""
        return _committed_rows(spark, self.table, query, batch)

    def pause(self, seconds: float) -> None:
        """Wait before a commit is tried again."""
        time.sleep(seconds)

    def rows_before(self, batch: int) -> int:
        """Return how many rows the table took of the micro-batches before one."""
        return self.rows + (self.last.rows if self.last and self.last.batch < batch else 0)

    def _another_run(self, last: int | None, query: str, batch: int) -> SourceError:
        return SourceError(
            f"{self.table}: found micro-batch {last} of query {query} in it, expected {batch - 1} or less:"
            " another run writes with this checkpoint, or a copy of it. Nothing of this micro-batch was"
            " written. Stop the other run, then start again"
        )

    def _count(self, batch: int, rows: int) -> None:
        if self.last and self.last.batch != batch:
            self.rows += self.last.rows
        self.last = BatchRows(batch, rows)


def _committed_rows(spark: SparkSession, table: str, query: str, batch: int) -> int:
    for commit in recent_commits(spark, table, _LOOK_BACK):
        if (commit.query, commit.batch) == (query, batch):
            return commit.rows
    _log.warning(
        "%s: micro-batch %d was written by an earlier run; its number of rows is not in the newest %d"
        " commits, so these rows are not counted",
        table,
        batch,
        _LOOK_BACK,
    )
    return 0
