"""Figures of each day, computed for all days in one aggregation.

`rows`, `hours_without_events` (from the newest event to the end of the day), and of a column its name with
`_nulls` (in percent), `_duplicates` (rows that repeat a value), `_distinct`, `_mean`, `_min` or `_max`.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, NumericType

from pipelines.contracts.contract import DataContract
from pipelines.delta.io import small_rows
from pipelines.records.decode import EVENT_DATE
from pipelines.schema_paths import flat, holders
from pipelines.sql import literal, name

ROWS: Final = "rows"
FRESHNESS: Final = "hours_without_events"
Figures = dict[str, int | float | None]

_HOUR_US: Final = 3_600_000_000
_OF_ANY: Final = {
    "nulls": "100.0D * count_if({0} IS NULL) / count(1)",
    "duplicates": "count({0}) - count(DISTINCT {0})",
    "distinct": "count(DISTINCT {0})",
}
_OF_NUMBERS: Final = {
    "mean": "avg(CAST({0} AS DOUBLE))",
    "min": "CAST(min({0}) AS DOUBLE)",
    "max": "CAST(max({0}) AS DOUBLE)",
}


def metrics_by_day(
    rows: DataFrame, contract: DataContract, days: Sequence[date], names: Iterable[str]
) -> dict[date, Figures]:
    """Return the figures of each day, also of days without rows.

    Args:
        rows: Rows of the batch layer.
        contract: Names the event time and its zone.
        days: The days.
        names: Which figures, beside `rows` and `hours_without_events`.

    Returns:
        By day the figures by name. A day without rows has 0 rows, all its hours without events, and of
        columns nothing.
    """
    column_figures = [figure for figure in dict.fromkeys(names) if figure not in (ROWS, FRESHNESS)]
    end = f"to_utc_timestamp(date_add({EVENT_DATE}, 1), {literal(contract.day_time_zone)})"
    newest = f"unix_micros(max({name(contract.event_time)}))"
    by_day = rows.groupBy(EVENT_DATE).agg(
        F.expr(f"count(1) AS {name(ROWS)}"),
        F.expr(f"(unix_micros(first({end})) - {newest}) / {_HOUR_US} AS {name(FRESHNESS)}"),
        *(F.expr(_sql(figure)).alias(figure) for figure in column_figures),
    )
    figures_by_day = {row.pop(EVENT_DATE): row for row in small_rows(by_day)}
    return {
        day: figures_by_day.get(
            day, {ROWS: 0, FRESHNESS: _hours_of(day, contract.zone), **dict.fromkeys(column_figures)}
        )
        for day in days
    }


def unknown_figure(figure: str, contract: DataContract) -> str | None:
    """Return why there is no such figure; None if there is one."""
    if figure in (ROWS, FRESHNESS):
        return None
    column, _, kind = figure.rpartition("_")
    field = flat(contract.schema).get(column)
    if field is None or kind not in {**_OF_ANY, **_OF_NUMBERS}:
        kinds = ", ".join(f"COLUMN_{suffix}" for suffix in (*_OF_ANY, *_OF_NUMBERS))
        return f"expected {ROWS}, {FRESHNESS}, or one of {kinds} of a column of the contract"
    if kind in ("duplicates", "distinct") and _holds_map(column, contract):
        return f"Spark does not compare maps, and {column} is one or holds one"
    if kind in _OF_NUMBERS and not isinstance(field.dataType, NumericType):
        return f"_{kind} needs a column of numbers, and {column} is not one"
    if kind in _OF_NUMBERS and contract.treatment(column):
        return f"{column} has personal data, and its _{kind} would show values"
    return None


def _holds_map(column: str, contract: DataContract) -> bool:
    return any(
        isinstance(part.dataType, MapType) and column in (path, *holders(path))
        for path, part in flat(contract.schema).items()
    )


def is_percentage(figure: str) -> bool:
    """Return whether a figure is a percentage."""
    return figure.endswith("_nulls")


def _sql(figure: str) -> str:
    column, _, kind = figure.rpartition("_")
    return {**_OF_ANY, **_OF_NUMBERS}[kind].format(name(column))


def _hours_of(day: date, zone: ZoneInfo) -> float:
    midnights = [
        datetime.combine(one, time(), zone).astimezone(UTC) for one in (day, day + timedelta(days=1))
    ]
    return (midnights[1] - midnights[0]) / timedelta(hours=1)
