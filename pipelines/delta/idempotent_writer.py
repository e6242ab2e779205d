"""Appends micro-batches to a Delta table, each exactly once, and counts the rows that the table took."""

import json
import logging
import uuid
from dataclasses import dataclass
from typing import Final

from delta.exceptions import MetadataChangedException
from pyspark.sql import DataFrame, SparkSession
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from pipelines.delta.fenced_commits import commits_since
from pipelines.delta.io import query_of
from pipelines.delta.table_state import last_batch, recent_commits
from pipelines.delta.transaction import Transaction
from pipelines.errors import SourceError
from pipelines.fault_points import Point, reach

_LOOK_BACK: Final = 200

_log = logging.getLogger(__name__)


@dataclass
class OnceWriter:
    """What a query has appended to one table since it was started here.

    With each commit Delta keeps the query's id, which lives as long as its checkpoint, and the number of the
    micro-batch. Delta's own sink passes over every micro-batch whose number is not greater than the last one
    in the table, whatever is in it; here that is right only of the one that an earlier try may have written.

    Attributes:
        table: the path of the table.
        begun: the micro-batch that an earlier try, of this run or of one before, may have written.
        rows: rows of the micro-batches before the last one.
        last: the last micro-batch, and how many rows the table took of it.
    """

    table: str
    begun: int | None
    rows: int = 0
    last: tuple[int, int] | None = None

    def append(self, rows: DataFrame, batch: int, count: int, **notes: int | None) -> bool:
        """Append a micro-batch, unless an earlier try has done so; one without rows is a commit, too.

        Args:
            rows: a frame derived from the micro-batch that `each_batch` gave.
            batch: the number of the micro-batch.
            count: how many rows the frame has.
            notes: noted in the commit, see `pipelines.delta.table_state.StreamCommit`.

        Returns:
            Whether it was this try.

        Raises:
            SourceError: another query has written this micro-batch, or one after it, under the same id.
        """
        spark, query = rows.sparkSession, query_of(rows.sparkSession)
        last = last_batch(spark, self.table, query)
        if last is None or last < batch:
            reach(Point.BATCH_LOOKED_FOR)
            self.begun = batch
            noted: dict[str, str | int | None] = {"query": query, "batch": batch, **notes}
            noted["try"] = str(uuid.uuid4())
            before = Transaction(spark, self.table).version
            _append_once(rows, self.table, noted)
            # Delta has left it out without a word if another run has committed its number since the look.
            since = commits_since(spark, self.table, before)
            if all(commit.note != json.dumps(noted) for commit in since):
                raise self._another_run(last_batch(spark, self.table, query), query, batch)
            self._count(batch, count)
            return True
        if last > batch or self.begun != batch:
            raise self._another_run(last, query, batch)
        self._count(batch, _committed_rows(spark, self.table, query, batch))
        return False

    def rows_before(self, batch: int) -> int:
        """Return how many rows the table took of the micro-batches before one."""
        return self.rows + (self.last[1] if self.last and self.last[0] < batch else 0)

    def _another_run(self, last: int | None, query: str, batch: int) -> SourceError:
        return SourceError(
            f"{self.table}: found micro-batch {last} of query {query} in it, expected {batch - 1} or less:"
            " another run writes with a copy of this checkpoint. Nothing of this micro-batch was written."
            " Stop the other run, then start again"
        )

    def _count(self, batch: int, rows: int) -> None:
        if self.last and self.last[0] != batch:
            self.rows += self.last[1]
        self.last = batch, rows


# Where a property of the table was changed meanwhile, the rows are written again.
@retry(retry=retry_if_exception_type(MetadataChangedException), stop=stop_after_attempt(6), reraise=True)
def _append_once(rows: DataFrame, table: str, noted: dict[str, str | int | None]) -> None:
    writer = rows.write.format("delta").mode("append").option("userMetadata", json.dumps(noted))
    writer.option("txnAppId", noted["query"]).option("txnVersion", str(noted["batch"])).save(table)


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
