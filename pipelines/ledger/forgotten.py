"""Records of bronze that were emptied for good: no key, no value, no headers, only their place in Kafka.

An emptied record keeps its coordinates, so that offsets stay without a gap, its times, and its event time,
so that the audit still knows how far the speed layer's watermark had come. It is marked in a column that
ingest never fills: no producer can send a record that looks like one.
"""

from datetime import date
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.delta.commits import commits_between
from pipelines.delta.io import small_rows
from pipelines.delta.record_tables import FORGOTTEN, ensure_forgettable
from pipelines.delta.row_changes import deletion_of, update_from
from pipelines.delta.small_tables import most_records, read_small
from pipelines.delta.table_properties import FORGETTING, set_table_properties, table_property
from pipelines.delta.tables import version
from pipelines.delta.upkeep import change_rows
from pipelines.errors import SourceError
from pipelines.records.decode import RECORD_ID
from pipelines.spark.pipeline import Pipeline
from pipelines.sql import name

_NOTE: Final = "forget"
EVENT_TIME: Final = "event_time"
_MOST_BESIDE: Final = 1_000_000


def is_emptied(bronze: DataFrame) -> str:
    """Return an SQL condition on the rows of bronze, or of a frame made of it by `decode`: never null."""
    return f"{FORGOTTEN} IS NOT NULL" if FORGOTTEN in bronze.columns else "false"


def with_event_time(decoded: DataFrame, column: str) -> DataFrame:
    """Return a frame made of bronze by `decode`, in which emptied records have the event time that they had.

    Args:
        decoded: The frame.
        column: The column of the event time.
    """
    if FORGOTTEN not in decoded.columns:
        return decoded
    had = f"CASE WHEN {is_emptied(decoded)} THEN {FORGOTTEN}.{EVENT_TIME} ELSE {name(column)} END"
    return decoded.withColumn(column, F.expr(had))


def not_emptied(bronze: DataFrame) -> DataFrame:
    """Return the records of bronze that were not emptied."""
    return bronze.where(f"NOT ({is_emptied(bronze)})")


def emptied_of(bronze: DataFrame) -> DataFrame:
    """Return the records of bronze that were emptied; of its files those without one are not read."""
    return bronze.where(f"{FORGOTTEN}.at IS NOT NULL" if FORGOTTEN in bronze.columns else "false")


def bronze_record_counts(pipeline: Pipeline, at: int) -> tuple[int, int]:
    """Count the records of bronze at a version, and those of them that were emptied, without its index."""
    bronze = read_small(pipeline.spark, pipeline.table("bronze"), at)
    if most_records(pipeline.spark, pipeline.table("bronze")) is None:
        # Delta counts a large table by statistics, and skips files without an emptied record.
        return bronze.count(), emptied_of(bronze).count()
    emptied = F.count_if(F.expr(is_emptied(bronze)))
    (row,) = small_rows(bronze.agg(F.count(F.lit(1)).alias("records"), emptied.alias("emptied")))
    return row["records"], row["emptied"]


def forgotten_mark(event_time: str) -> str:
    """Return what marks an emptied record, in SQL.

    Args:
        event_time: The event time that it had, in SQL.
    """
    return f"named_struct('at', current_timestamp(), 'event_time', {event_time})"


def forgotten_by(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the last run that has emptied records of bronze; nothing if none ever did."""
    run_id = table_property(pipeline.spark, pipeline.table("bronze"), FORGETTING)
    return () if run_id is None else (run_id,)


def empty(spark: SparkSession, table: str, records: DataFrame, run_id: str) -> None:
    """Empty records of bronze, as one commit.

    Before and after that, a property of the table says that a run does so: the index of bronze is then not
    built from the commits before and after, but from all of bronze.

    Args:
        spark: The session.
        table: The path of bronze.
        records: Their coordinates, `_ingested_at`, and `event_time`, null where they have none.
        run_id: The run.
    """
    ensure_forgettable(spark, table)
    emptied = {
        "key": "NULL",
        "value": "NULL",
        "headers": "NULL",
        FORGOTTEN: forgotten_mark(f"o.{EVENT_TIME}"),
    }
    change = update_from(_beside(records), RECORD_ID, "true", emptied)
    change_rows(spark, table, change, _commit_properties(spark, table, run_id))
    # Where this run stood still, another may have made an index of what was there before the change.
    set_table_properties(spark, table, _commit_properties(spark, table, run_id))


def _commit_properties(spark: SparkSession, table: str, run_id: str) -> dict[str, str]:
    return {FORGETTING: f"{run_id} after version {version(spark, table)}"}


def delete_records(spark: SparkSession, table: str, records: DataFrame, run_id: str) -> None:
    """Delete the rows of a table that stand for records, as one commit that `forgetting_commits` finds.

    They are named by their place. Delta keeps the condition of a DELETE in its log, so one on the columns
    would leave the key there.

    Args:
        spark: The session.
        table: The path of the quarantine or the speed layer.
        records: Their coordinates and `_ingested_at`.
        run_id: The run.
    """
    change = deletion_of(_beside(records), RECORD_ID)
    change_rows(spark, table, change, {}, note=f"{_NOTE} {run_id}")


def forgetting_commits(
    spark: SparkSession, table: str, after: int, until: int
) -> dict[int, tuple[date, ...] | None]:
    """Return the versions of the speed layer, after one and until another, that `delete_records` made.

    Returns:
        Of each version the event days of which it has removed files; None if it does not say.

    Raises:
        SourceError: Another commit among these has rewritten rows or changed them, so nobody knows which.
    """
    removed_days = {}
    for commit in commits_between(spark, table, after, until):
        if (commit.note or "").startswith(f"{_NOTE} "):
            removed_days[commit.version] = commit.removed_days
        elif commit.adds and commit.removes:
            raise SourceError(
                f"{table}: version {commit.version} ({commit.operation}) has changed or deleted rows that may"
                " have been published, and no command of Oncelake made it, so it is unknown what has to be"
                " retracted."
                " Publish again from the beginning: docs/publishing.md, 'When versions are gone'"
            )
    return removed_days


def _beside(records: DataFrame) -> DataFrame:
    """Return records as a broadcast, if they are few enough for the driver.

    Rows that are written again then stay in files with their micro-batch: a join does not shuffle them.
    """
    return F.broadcast(records) if records.count() <= _MOST_BESIDE else records
