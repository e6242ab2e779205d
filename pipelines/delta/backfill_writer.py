"""Appends records to bronze between two micro-batches of ingest, while ingest is at work.

What is late, and what an audit compares, is told by the order of ingestion: no micro-batch in bronze has an
earlier `_ingested_at` than those that were committed before it. Ingest gives that of the moment at which a
micro-batch was planned, long before its commit. So records that are appended beside it are written to files
first, as of a moment. They are committed when all micro-batches that were planned before that moment are, and
written once more if one that was planned later is.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.delta.conflicts import TABLE_CHANGED
from pipelines.delta.epochs import Stamp
from pipelines.delta.fenced_commits import number_taken
from pipelines.delta.io import read, small_rows
from pipelines.delta.table_properties import WHOLE_FROM, table_property
from pipelines.delta.transaction import StaleEpoch, Transaction
from pipelines.errors import InfrastructureError
from pipelines.fault_points import Point, reach
from pipelines.records.watermark import ALWAYS
from pipelines.spark.checkpoints import query_files
from pipelines.spark.ingest_plans import plan_of
from pipelines.spark.pipeline import Pipeline

_ATTEMPTS: Final = 20
_NEXT: Final = timedelta(microseconds=1)
_LOOK_EVERY_S: Final = 0.2
# A micro-batch that is not committed by then may be one of an ingest that has died.
_WAIT_S: Final = 60.0


@dataclass(frozen=True)
class _Ingest:
    """Where ingest is.

    Attributes:
        committed: when its last micro-batch in bronze was planned.
        planned: when the next one was; None if it is not planned yet.
    """

    committed: datetime = ALWAYS
    planned: datetime | None = None


@dataclass
class BackfillWriter:
    """Appends to one bronze table, under one epoch.

    Attributes:
        pipeline: The pipeline.
        newest: no record was ingested later, but for those of micro-batches that came since.
        whole_from: what the table said, before it was looked at what it lacks, of the first day that
            retention has left whole.
        require: makes sure, before a commit, that this may still write; raises if not.
        stands_still: whether a planned micro-batch of ingest does not come.
    """

    pipeline: Pipeline
    newest: datetime
    whole_from: str | None
    require: Callable[[], None]
    stands_still: bool = False

    def append(self, records: DataFrame, stamp: Stamp) -> int:
        """Append records as one commit; return how many.

        Args:
            records: the columns of bronze without `_ingested_at`. They may be written several times.
            stamp: what the commit carries.

        Raises:
            StaleEpoch: a later run has taken over. Nothing was written.
            InfrastructureError: ingest was faster at each attempt, or retention has removed records, or
                another run has taken over.
        """
        for _ in range(_ATTEMPTS):
            draft = Transaction(self.pipeline.spark, self._table)
            at = self._next(draft)
            rows = draft.write(records.withColumn("_ingested_at", F.lit(at)))
            reach(Point.CHUNK_DRAFTED)
            if self._commit(draft, at, stamp):
                self.newest = at
                return rows
            draft.discard()
        found = self.pipeline.config.backfill.chunk_offsets
        raise InfrastructureError(
            f"{self._table}: ingest_stream planned and committed a micro-batch during each of {_ATTEMPTS}"
            f" attempts to append a chunk. Lower backfill.chunk_offsets (found {found:,}), or raise"
            " ingest.trigger_interval, and start again: what was written stays"
        )

    @property
    def _table(self) -> str:
        return self.pipeline.table("bronze")

    def _next(self, transaction: Transaction) -> datetime:
        """Return an ingestion that follows all in the table.

        It lies before a planned micro-batch only if that one does not come.
        """
        following = max(self.newest, _ingest(self.pipeline, transaction).committed) + _NEXT
        return following if self.stands_still else max(following, datetime.now(UTC))

    def _commit(self, draft: Transaction, at: datetime, stamp: Stamp) -> bool:
        """Commit what was written in its turn; return False, with nothing committed, if that has passed."""
        until = time.monotonic() + _WAIT_S
        while True:
            self.require()
            transaction = Transaction(self.pipeline.spark, self._table)
            self._require_same_retention()
            # A commit of ingest is a conflict from here on.
            ingest = _ingest(self.pipeline, transaction)
            if ingest.committed >= at or not transaction.adopt(draft):
                return False
            if ingest.planned is not None and ingest.planned < at:
                if time.monotonic() > until:
                    self.stands_still = True
                    return False
                time.sleep(_LOOK_EVERY_S)
                continue
            try:
                transaction.commit((), stamp)
            except StaleEpoch:
                # It is said of each number that another has taken; that of ingest is no later epoch.
                taken = number_taken(self.pipeline.spark, self._table, stamp.application)
                if taken > stamp.number:
                    raise
                if taken < stamp.number:
                    continue
            except TABLE_CHANGED:
                return False
            return True

    def _require_same_retention(self) -> None:
        """Make sure that retention has not begun to remove what this would bring back."""
        if table_property(self.pipeline.spark, self._table, WHOLE_FROM) != self.whole_from:
            raise InfrastructureError(
                f"{self._table}: maintain has removed old records from it since this run began; start again:"
                " what was written stays"
            )


def backfill_writer(
    pipeline: Pipeline, whole_from: str | None, require: Callable[[], None]
) -> BackfillWriter:
    """Return a writer for bronze as it is; what came before the last micro-batch of ingest is not read.

    Args:
        pipeline: The pipeline.
        whole_from: see `BackfillWriter`.
        require: see `BackfillWriter`.
    """
    spark, table = pipeline.spark, pipeline.table("bronze")
    committed = _ingest(pipeline, Transaction(spark, table)).committed
    rows = read(spark, table).where(F.col("_ingested_at") >= F.lit(committed))
    (found,) = small_rows(rows.agg(F.max("_ingested_at").alias("newest")))
    newest = max(committed, found["newest"] or ALWAYS)
    return BackfillWriter(pipeline, newest, whole_from, require)


def _ingest(pipeline: Pipeline, transaction: Transaction) -> _Ingest:
    """Return where ingest is; its next commit is then a conflict for the transaction."""
    query = query_files(pipeline.spark, pipeline.checkpoint("ingest")).query
    if query is None:
        return _Ingest()
    batch = transaction.number_taken(query)
    committed, planned = (plan_of(pipeline, number) for number in (batch, batch + 1))
    return _Ingest(committed.at if committed else ALWAYS, planned.at if planned else None)
