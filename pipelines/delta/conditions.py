"""SQL conditions that hold for rows of a table, as text."""

from collections.abc import Mapping, Sequence
from datetime import date

from pipelines.durations import days_in_a_row
from pipelines.sql import literal


def partition_condition(partition: Mapping[str, str]) -> str:
    """Return the SQL condition that holds for the rows of a partition."""
    return " AND ".join(f"{column} = {literal(value)}" for column, value in partition.items())


def days_condition(days: Sequence[date], column: str = "_event_date") -> str:
    """Return an SQL condition on a column that holds for some days: at least one, sorted.

    Ranges stand for days in a row, so that years of days stay a short condition.
    """
    # Delta's replaceWhere fails on BETWEEN before it has resolved the column.
    ranges = (
        f"({column} >= DATE'{first}' AND {column} <= DATE'{last}')" for first, last in days_in_a_row(days)
    )
    return " OR ".join(ranges)
