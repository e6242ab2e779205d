"""Rows of a table that a commit changes or deletes where they are.

Delta's own DELETE and MERGE look for the rows, write them and commit as one transaction, which conflicts with
all that others append to a table without partitions meanwhile. A stream appends every few seconds, so beside
it they would never come through on a large table.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

FILE: Final = "_oncelake_file"
"""A column that `RowChange.find` lets through: the file of the row."""
_IS_CHOSEN: Final = "_oncelake_is_chosen"


@dataclass(frozen=True)
class RowChange:
    """Which rows a commit changes, and how.

    Attributes:
        find: Returns, of rows of the table, those that change, with all their columns and `FILE`.
        changed: Returns rows of the table as they are afterwards; those that do not change stay as they are.
        deletes: Whether the rows that are found are deleted; otherwise there are as many as before.
    """

    find: Callable[[DataFrame], DataFrame]
    changed: Callable[[DataFrame], DataFrame]
    deletes: bool


def deletion(condition: str) -> RowChange:
    """Return the deletion of the rows for which a condition holds, in SQL."""
    return RowChange(
        lambda rows: rows.where(condition),
        lambda rows: rows.where(f"NOT coalesce({condition}, false)"),
        deletes=True,
    )


def update(condition: str, changes: Mapping[str, str]) -> RowChange:
    """Return the change of columns of the rows for which a condition holds.

    Args:
        condition: Which rows, in SQL.
        changes: What columns are then, likewise.
    """
    is_chosen = F.expr(condition)

    def changed(rows: DataFrame) -> DataFrame:
        _require_columns(rows, changes)
        now = {
            name: F.when(is_chosen, F.expr(value)).otherwise(rows[name]) for name, value in changes.items()
        }
        # Not by `withColumns`, of which one would see what another has changed already.
        return rows.select(*(now.get(name, rows[name]).alias(name) for name in rows.columns))

    return RowChange(lambda rows: rows.where(is_chosen), changed, deletes=False)


def deletion_of(others: DataFrame, key: Sequence[str]) -> RowChange:
    """Return the deletion of the rows that have the key of others.

    Args:
        others: Has the columns of the key.
        key: Columns of the table that are never null.
    """
    keys = others.select(*key)
    return RowChange(
        lambda rows: rows.join(keys, [*key], "left_semi"),
        lambda rows: rows.join(keys, [*key], "left_anti"),
        deletes=True,
    )


def update_from(
    others: DataFrame, key: Sequence[str], condition: str, changes: Mapping[str, Column | str]
) -> RowChange:
    """Return the change of columns of the rows that have the key of others.

    Args:
        others: Has the columns of the key, at most one row of each.
        key: Columns of the table that are never null.
        condition: Which of these rows, in SQL; may name `t`, the row, and `o`, the other one.
        changes: What columns are then, likewise; text is SQL.
    """
    beside = others.withColumn(_IS_CHOSEN, F.lit(True)).alias("o")
    is_chosen = " AND ".join([*(f"t.{column} = o.{column}" for column in key), f"({condition})"])

    def find(rows: DataFrame) -> DataFrame:
        return rows.alias("t").join(beside, F.expr(is_chosen), "left_semi")

    def changed(rows: DataFrame) -> DataFrame:
        _require_columns(rows, changes)
        joined = rows.alias("t").join(beside, F.expr(is_chosen), "left")
        columns = (_after(column, changes.get(column)) for column in rows.columns)
        return joined.select(*columns)

    return RowChange(find, changed, deletes=False)


def _require_columns(rows: DataFrame, changes: Mapping[str, object]) -> None:
    if unknown := changes.keys() - {*rows.columns}:
        raise ValueError(f"found no column {', '.join(sorted(unknown))}")


def _after(column: str, change: Column | str | None) -> Column:
    before = F.col(f"t.`{column}`")
    if change is None:
        return before
    now = F.expr(change) if isinstance(change, str) else change
    return F.when(F.col(f"o.{_IS_CHOSEN}"), now).otherwise(before).alias(column)
