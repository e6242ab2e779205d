"""Read and write Delta tables: small results, event days."""

from collections.abc import Sequence
from datetime import date
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.delta.conditions import days_condition


def by_day_and_key(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return rows as `replace_days_fenced` needs them: few files for each day, each sorted by the dedup key.

    A reader who asks for one key of one day then skips most of a file by Parquet's own indexes.

    Args:
        rows: Rows with `_event_date`.
        key: The paths of the columns that are the key.
    """
    return rows.hint("rebalance", "_event_date").sortWithinPartitions("_event_date", *key)


def replace_rows(rows: DataFrame, table: str, condition: str) -> None:
    """Delete the rows for which a condition holds and write others, as one atomic commit.

    Args:
        rows: Rows for which the condition holds; Delta refuses any other.
        table: The path of a Delta table.
        condition: The condition, in SQL.
    """
    rows.write.format("delta").mode("overwrite").option("replaceWhere", condition).save(table)


def append(rows: DataFrame, table: str) -> None:
    """Append rows to a Delta table, as one commit."""
    rows.write.format("delta").mode("append").save(table)


def read(spark: SparkSession, table: str, at: int | None = None) -> DataFrame:
    """Return a Delta table as a frame, at its newest or an earlier version."""
    reader = spark.read.format("delta")
    if at is not None:
        reader = reader.option("versionAsOf", at)
    return reader.load(table)


def small_rows(aggregated: DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a small, aggregated frame."""
    return list(aggregated.toArrow().to_pylist())


def on_days(days: Sequence[date]) -> Column:
    """Return whether a row's `_event_date` is one of the given, sorted days."""
    return F.expr(days_condition(days))
