"""Appends records to bronze between two micro-batches of ingest, while ingest is at work.

What is late, and what an audit compares, is told by the order of ingestion: no micro-batch in bronze has an
earlier `_ingested_at` than those that were committed before it. Ingest gives that of the moment at which a
micro-batch was planned, long before its commit. So records that are appended beside it get the one that
follows the newest in bronze, by a microsecond, and are committed only if ingest has committed nothing since.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
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


@dataclass
class BackfillWriter:
    """Appends to one bronze table, under one epoch.

    Attributes:
        pipeline: The pipeline.
        newest: no record was ingested later, but for those of micro-batches that came since.
        whole_from: what the table says of the first day that retention has left whole.
    """

    pipeline: Pipeline
    newest: datetime
    whole_from: str | None

    def append(self, records: DataFrame, stamp: Stamp) -> int:
        """Append records as one commit; return how many.

        Args:
            records: the columns of bronze without `_ingested_at`. They may be written several times.
            stamp: what the commit carries.

        Raises:
            StaleEpoch: a later run has taken over. Nothing was written.
            InfrastructureError: ingest has committed during each attempt, or retention has removed records.
        """
        for _ in range(_ATTEMPTS):
            transaction = Transaction(self.pipeline.spark, self._table)
            ingested_at = self._follow(transaction)
            self._require_same_retention()
            rows = transaction.write(records.withColumn("_ingested_at", F.lit(ingested_at)))
            reach(Point.CHUNK_DRAFTED)
            if self._commit(transaction, stamp):
                self.newest = ingested_at
                return rows
        found = self.pipeline.config.backfill.chunk_offsets
        raise InfrastructureError(
            f"{self._table}: ingest_stream committed to it during each of {_ATTEMPTS} attempts to append a"
            f" chunk. Lower backfill.chunk_offsets (found {found:,}), or raise ingest.trigger_interval, and"
            " start again: what was written stays"
        )

    @property
    def _table(self) -> str:
        return self.pipeline.table("bronze")

    def _follow(self, transaction: Transaction) -> datetime:
        """Return an ingestion that follows all in the table; ingest's next commit is then a conflict."""
        query = query_files(self.pipeline.spark, self.pipeline.checkpoint("ingest")).query
        batch = transaction.number_taken(query) if query else -1
        plan = plan_of(self.pipeline, batch) if batch >= 0 else None
        return (max(self.newest, plan.at) if plan else self.newest) + _NEXT

    def _commit(self, transaction: Transaction, stamp: Stamp) -> bool:
        """Commit what was written; return False, and delete it, if the table has changed meanwhile."""
        try:
            transaction.commit((), stamp)
        except StaleEpoch:
            transaction.discard()
            # It is said of each number that another has taken; that of ingest is no later epoch.
            if number_taken(self.pipeline.spark, self._table, stamp.application) >= stamp.number:
                raise
            return False
        except TABLE_CHANGED:
            transaction.discard()
            return False
        return True

    def _require_same_retention(self) -> None:
        """Make sure that retention has not begun to remove what this would bring back."""
        if table_property(self.pipeline.spark, self._table, WHOLE_FROM) != self.whole_from:
            raise InfrastructureError(
                f"{self._table}: maintain has removed old records from it since this run began; start again:"
                " what was written stays"
            )


def backfill_writer(pipeline: Pipeline) -> BackfillWriter:
    """Return a writer for bronze as it is; what came before the last micro-batch of ingest is not read."""
    spark, table = pipeline.spark, pipeline.table("bronze")
    query = query_files(spark, pipeline.checkpoint("ingest")).query
    batch = Transaction(spark, table).number_taken(query) if query else -1
    plan = plan_of(pipeline, batch) if batch >= 0 else None
    rows = read(spark, table)
    if plan:
        rows = rows.where(F.col("_ingested_at") >= F.lit(plan.at))
    (found,) = small_rows(rows.agg(F.max("_ingested_at").alias("newest")))
    newest = max(plan.at if plan else ALWAYS, found["newest"] or ALWAYS)
    return BackfillWriter(pipeline, newest, table_property(spark, table, WHOLE_FROM))
