"""The Great Expectations suites that a contract stands for, in Great Expectations' own JSON.

There are two for each pipeline: `rows` is asked of the rows as written, `days` of one row of figures for
each day. Great Expectations itself is not needed here, as it takes seconds to import.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pipelines.contracts.contract import DataContract
from pipelines.contracts.rules import DayRule, OwnExpectation, RowRule, SuiteName
from pipelines.errors import ConfigError
from pipelines.expectations.day_metrics import FRESHNESS, ROWS, is_percentage, unknown_figure
from pipelines.records.decode import EVENT_DATE, ORIGIN

Json = dict[str, Any]

SUITES: Final[tuple[SuiteName, ...]] = ("rows", "days")
COLUMN_ARGUMENTS: Final = ("column", "column_A", "column_B", "column_list")
# A figure has one value for each day, so bounds of these are bounds of it.
_BOUNDS_OF_VALUES: Final = tuple(
    f"expect_column_{name}_to_be_between" for name in ("values", "min", "max", "mean", "median", "sum")
)


def generated(contract: DataContract) -> dict[SuiteName, list[Json]]:
    """Return what the contract asks: of every row and the set of rows, and of the figures of every day.

    Patterns and conditions are left out. Great Expectations would look for a pattern on the stack of a task,
    which one long text can use up, and that ends the executor. The decoder looks for them safely, and the
    check `rows_are_the_winners` compares each row with what it decodes.
    """
    return {
        "rows": [
            *(_expectation("expect_column_values_to_not_be_null", column=c) for c in contract.required),
            *(expectation for rule in contract.row_rules for expectation in _of_row_rule(rule)),
            _unique(contract.key_names),
        ],
        "days": [
            _expectation(
                "expect_column_values_to_be_between",
                column=figure_of(rule),
                min_value=rule.minimum,
                max_value=rule.maximum,
            )
            for rule in contract.day_rules
        ],
    }


def suites_of(contract: DataContract) -> dict[SuiteName, list[Json]]:
    """Return what the audit asks: what the contract stands for, then what people wrote beside it."""
    own: dict[SuiteName, list[Json]] = {
        name: [dict(item.config) for item in contract.expectations if item.suite == name] for name in SUITES
    }
    return {name: expectations + own[name] for name, expectations in generated(contract).items()}


def columns_named(expectation: Json) -> list[str]:
    """Return the columns that an expectation names."""
    columns: list[str] = []
    for argument in COLUMN_ARGUMENTS:
        named = expectation.get("kwargs", {}).get(argument, [])
        columns += [named] if isinstance(named, str) else named
    return columns


def refuse_unknown_columns(own: OwnExpectation, contract: DataContract) -> None:
    """See to it that an expectation asks of columns that there are, and of figures what they can be.

    Raises:
        ConfigError: It names a column that the contract does not have, or a figure that there is not; or it
            bounds a percentage by what is none.
    """
    columns = {*contract.columns, *contract.key_names, EVENT_DATE, *ORIGIN}
    for column in columns_named(dict(own.config)):
        reason = None
        if own.suite == "days":
            reason = unknown_figure(column, contract) or _no_percentage(column, own.config)
        elif column.partition(".")[0] not in columns:
            reason = f"expected a column of the contract: {', '.join(contract.columns)}"
        if reason:
            raise ConfigError(f"{own.place}: column {column}: {reason}")


def _no_percentage(figure: str, config: Mapping[str, Any]) -> str | None:
    """Return why a bound of a figure is no percentage; None if it is one, or need not be."""
    if not is_percentage(figure) or config["type"] not in _BOUNDS_OF_VALUES:
        return None
    for name in ("min_value", "max_value"):
        bound = config.get("kwargs", {}).get(name)
        if isinstance(bound, int | float) and not 0 <= bound <= 100:
            return f"{name}: expected a percentage, from 0 to 100, got {bound}"
    return None


def figure_of(rule: DayRule) -> str:
    """Return the figure that a rule on days speaks of."""
    match rule.metric:
        case "rowCount":
            return ROWS
        case "freshness":
            return FRESHNESS
        case "nullValues":
            return f"{rule.column}_nulls"
        case "duplicateValues":
            return f"{rule.column}_duplicates"


def _of_row_rule(rule: RowRule) -> Iterator[Json]:
    lengths, column = "expect_column_value_lengths_to_be_between", rule.column
    match rule.kind:
        case "minimum":
            yield _expectation("expect_column_values_to_be_between", column=column, min_value=rule.value)
        case "maximum":
            yield _expectation("expect_column_values_to_be_between", column=column, max_value=rule.value)
        case "min_length":
            yield _expectation(lengths, column=column, min_value=rule.value)
        case "max_length":
            yield _expectation(lengths, column=column, max_value=rule.value)
        case "values":
            in_set = "expect_column_values_to_be_in_set"
            yield _expectation(in_set, column=column, value_set=list(rule.value))
        case "pattern":
            # See `generated`.
            pass


def _unique(key: list[str]) -> Json:
    if len(key) > 1:
        return _expectation("expect_compound_columns_to_be_unique", column_list=key)
    return _expectation("expect_column_values_to_be_unique", column=key[0])


def _expectation(kind: str, **arguments: Any) -> Json:
    kwargs = {name: value for name, value in arguments.items() if value is not None}
    return {"type": kind, "kwargs": kwargs, "severity": "critical"}
