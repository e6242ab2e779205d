"""The Great Expectations suite that a contract stands for.

Rules on single rows and on sets of rows are asked of the rows as written; rules on a day as a whole are
asked of one row of figures for each day. So a month costs about what a day does.
"""

import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final, cast
from zoneinfo import ZoneInfo

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.contract import DataContract
from pipelines.contract_rules import DayRule, RowRule
from pipelines.decode import EVENT_DATE
from pipelines.dedup import with_key
from pipelines.quality.checks import Check
from pipelines.sinks.delta import on_days, small_rows
from pipelines.sql_text import literal, name


@contextmanager
def _main_with_a_file() -> Iterator[None]:
    """Gives the main module a file for a while.

    PySpark takes a main module without one (`python -c`, a worker of pytest) for a run of its own doctests,
    and ends the process, with exit code 0, when Great Expectations asks it for Spark Connect.
    """
    main = sys.modules["__main__"]
    if hasattr(main, "__file__"):
        yield
        return
    main.__file__ = "<command>"
    try:
        yield
    finally:
        del main.__file__


with warnings.catch_warnings(), _main_with_a_file():
    warnings.simplefilter("ignore")
    import great_expectations as gx
    import great_expectations.expectations as gxe
    from great_expectations.core import ExpectationSuite, ExpectationValidationResult
    from great_expectations.data_context.types.base import ProgressBarsConfig
    from great_expectations.expectations.expectation import Expectation
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

# It logs each metric at INFO and warns of its own internals.
logging.getLogger("great_expectations").setLevel(logging.ERROR)

Results = Sequence[ExpectationValidationResult]

_ROWS: Final = "rows"
_FRESHNESS: Final = "hours_without_events"
_HOUR_US: Final = 3_600_000_000


def rows_suite(contract: DataContract) -> ExpectationSuite:
    """What every row and the set of rows must be: required, rules, unique key."""
    expectations: list[Expectation] = [
        gxe.ExpectColumnValuesToNotBeNull(column=column) for column in contract.required
    ]
    expectations += [_row_expectation(rule) for rule in contract.row_rules]
    key = contract.key_names
    if len(key) > 1:
        expectations.append(gxe.ExpectCompoundColumnsToBeUnique(column_list=key))
    else:
        expectations.append(gxe.ExpectColumnValuesToBeUnique(column=key[0]))
    return ExpectationSuite(name=f"{contract.id}.rows", expectations=expectations)


def days_suite(contract: DataContract) -> ExpectationSuite:
    """What the figures of every day must be: `rows`, `hours_without_events`, `…_nulls`, `…_duplicates`."""
    return ExpectationSuite(
        name=f"{contract.id}.days",
        expectations=[
            gxe.ExpectColumnValuesToBeBetween(
                column=_figure(rule), min_value=rule.minimum, max_value=rule.maximum
            )
            for rule in contract.day_rules
        ],
    )


def expectation_checks(
    rows: DataFrame, contract: DataContract, days: Sequence[date], examples: int
) -> list[Check]:
    """Validates the rows of some days against the contract's suites.

    Args:
        rows: rows of the batch layer of these days, best cached.
        contract: the rules.
        days: the days that get a verdict each.
        examples: how many unexpected values to keep.
    """
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    rows_asset = context.data_sources.add_spark("rows").add_dataframe_asset("rows")
    rows_batch = rows_asset.add_batch_definition_whole_dataframe("rows")
    days_asset = context.data_sources.add_pandas("days").add_dataframe_asset("days")
    days_batch = days_asset.add_batch_definition_whole_dataframe("days")
    options = {"result_format": "SUMMARY", "partial_unexpected_count": examples}
    figures = _figures(rows, contract, days)

    def validate_rows(some: Sequence[date], suite: ExpectationSuite) -> Results:
        frame = with_key(rows, contract).where(on_days(some))
        if not figures.loc[list(some)][_ROWS].any():
            return []
        return rows_batch.get_batch({"dataframe": frame}).validate(suite, result_format=options).results

    def validate_days(some: Sequence[date], suite: ExpectationSuite) -> Results:
        frame = figures.loc[list(some)].reset_index()
        return days_batch.get_batch({"dataframe": frame}).validate(suite, result_format=options).results

    checks = list(_by_day(validate_rows, rows_suite(contract), days))
    if contract.day_rules:
        checks += _by_day(validate_days, days_suite(contract), days)
    return checks


def _by_day(
    validate: Callable[[Sequence[date], ExpectationSuite], Results],
    suite: ExpectationSuite,
    days: Sequence[date],
) -> Iterator[Check]:
    """Asks of all days at once, and again of each day alone what does not hold for all."""
    failing = ExpectationSuite(name=suite.name)
    for result in validate(days, suite):
        if result.success or len(days) == 1:
            yield from (_check(day, result) for day in days)
        else:
            failing.add_expectation_configuration(cast(ExpectationConfiguration, result.expectation_config))
    if failing.expectations:
        for day in days:
            yield from _by_day(validate, failing, [day])


def _figures(rows: DataFrame, contract: DataContract, days: Sequence[date]) -> pd.DataFrame:
    """One row for each day, also for days without rows: `rows`, `hours_without_events`, nulls in percent."""
    of_columns = [_of_column(rule, rule.column) for rule in contract.day_rules if rule.column]
    end = f"to_utc_timestamp(date_add({EVENT_DATE}, 1), {literal(contract.day_time_zone)})"
    newest = f"unix_micros(max({name(contract.event_time)}))"
    idle = F.expr(f"(unix_micros(first({end})) - {newest}) / {_HOUR_US}").alias(_FRESHNESS)
    by_day = rows.groupBy(EVENT_DATE).agg(F.count(F.lit(1)).alias(_ROWS), idle, *of_columns)
    found = pd.DataFrame(small_rows(by_day), columns=by_day.columns)
    figures = found.set_index(EVENT_DATE).reindex(list(days))
    whole_days = pd.Series({day: _hours_of(day, contract.zone) for day in days})
    figures[_FRESHNESS] = figures[_FRESHNESS].fillna(whole_days)
    figures[_ROWS] = figures[_ROWS].fillna(0)
    return figures


def _of_column(rule: DayRule, column: str) -> Column:
    if rule.metric == "duplicateValues":
        return (F.count(column) - F.count_distinct(column)).alias(_figure(rule))
    nulls = F.count_if(F.col(column).isNull())
    return (100.0 * nulls / F.count(F.lit(1))).alias(_figure(rule))


def _hours_of(day: date, zone: ZoneInfo) -> float:
    midnights = [
        datetime.combine(one, time(), zone).astimezone(UTC) for one in (day, day + timedelta(days=1))
    ]
    return (midnights[1] - midnights[0]) / timedelta(hours=1)


def _figure(rule: DayRule) -> str:
    match rule.metric:
        case "rowCount":
            return _ROWS
        case "freshness":
            return _FRESHNESS
        case "nullValues":
            return f"{rule.column}_nulls"
        case "duplicateValues":
            return f"{rule.column}_duplicates"


def _row_expectation(rule: RowRule) -> Expectation:
    match rule.kind:
        case "minimum":
            return gxe.ExpectColumnValuesToBeBetween(column=rule.column, min_value=rule.value)
        case "maximum":
            return gxe.ExpectColumnValuesToBeBetween(column=rule.column, max_value=rule.value)
        case "pattern":
            return gxe.ExpectColumnValuesToMatchRegex(column=rule.column, regex=str(rule.value))
        case "min_length":
            return gxe.ExpectColumnValueLengthsToBeBetween(column=rule.column, min_value=rule.value)
        case "max_length":
            return gxe.ExpectColumnValueLengthsToBeBetween(column=rule.column, max_value=rule.value)
        case "values":
            return gxe.ExpectColumnValuesToBeInSet(column=rule.column, value_set=list(rule.value))


def _check(day: date, result: ExpectationValidationResult) -> Check:
    config = result.expectation_config
    arguments = {k: v for k, v in (config.kwargs if config else {}).items() if k != "batch_id"}
    column = arguments.pop("column", None) or ", ".join(arguments.pop("column_list", []))
    kind = config.type if config else "expectation"
    found: dict[str, Any] = result.result
    info = result.exception_info or {}
    # Great Expectations gives one such record, or one for each metric.
    records = [entry for entry in (info, *info.values()) if isinstance(entry, dict)]
    raised = next((r["exception_message"] for r in records if r.get("exception_message")), None)
    unexpected = found.get("unexpected_count") or 0
    observed = f"{unexpected:,} of {found.get('element_count') or 0:,} values unexpected"
    return Check(
        day,
        f"{kind} {column}",
        "expectation",
        "passed" if result.success else "failed",
        f"could not be evaluated: {raised}" if raised else observed,
        ", ".join(f"{k} {v}" for k, v in arguments.items()) or kind.removeprefix("expect_").replace("_", " "),
        f"for example {found['partial_unexpected_list']}" if unexpected else "",
    )
