"""The quality rules of a contract, and which of the standard's rules can be kept."""

import ctypes
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from open_data_contract_standard.model import SchemaProperty

RowRuleKind = Literal["minimum", "maximum", "pattern", "min_length", "max_length", "values"]
ROW_OPTIONS: Final[Mapping[str, RowRuleKind]] = {
    "minimum": "minimum",
    "maximum": "maximum",
    "pattern": "pattern",
    "minLength": "min_length",
    "maxLength": "max_length",
}
_KEPT: Final = ", ".join([*ROW_OPTIONS, "format"])
# The digits that a bigint surely holds, and the characters that Spark can count.
_DIGITS: Final = 18
_LONGEST_TEXT: Final = 2**31
# What Python says of patterns that no language reads.
_BROKEN: Final = ("unterminated character set", "missing ), unterminated", "unbalanced parenthesis")


@dataclass(frozen=True)
class RowRule:
    """A rule that every record obeys by itself; nulls obey all but `required`, which the schema holds."""

    column: str
    kind: RowRuleKind
    value: Any

    @property
    def name(self) -> str:
        """How reports call the rule, such as `distance minimum 0`."""
        return f"{self.column} {self.kind} {self.value}"


@dataclass(frozen=True)
class Condition:
    """What must hold of a record as a whole, in SQL over its columns; unknown (null) counts as kept."""

    name: str
    sql: str


SuiteName = Literal["rows", "days"]


@dataclass(frozen=True)
class OwnExpectation:
    """An expectation that a person wrote beside what the contract stands for.

    Attributes:
        suite: Whether it is asked of `rows`, or of the figures of `days`.
        place: Where it stands, for messages.
        config: It, in the JSON of Great Expectations.
    """

    suite: SuiteName
    place: str
    config: Mapping[str, Any]


DayMetric = Literal["rowCount", "nullValues", "duplicateValues", "freshness"]


@dataclass(frozen=True)
class DayRule:
    """A rule on all rows of one day.

    Attributes:
        metric: `rowCount`; `nullValues`, the share of nulls of `column`, in percent; `duplicateValues`, how
            many rows repeat a value of `column` (nulls are no values); or `freshness`, the hours from the
            newest event to the end of the day.
        column: The column of `nullValues` and `duplicateValues`, else None.
        minimum: The least value allowed, None for no bound.
        maximum: The greatest value allowed, None for no bound.
    """

    metric: DayMetric
    column: str | None
    minimum: float | None
    maximum: float | None


def row_rules(item: SchemaProperty, path: str) -> tuple[list[RowRule], list[str]]:
    """Return the rules of a property on single records, and the reasons why some cannot be kept."""
    options, logical = item.logicalTypeOptions or {}, item.logicalType or ""
    rules: list[RowRule] = []
    reasons: list[str] = []
    for key, value in options.items():
        kind = ROW_OPTIONS.get(key)
        if kind is None and key != "format":
            reasons.append(f"logicalTypeOptions.{key}: not supported; expected one of {_KEPT}")
        elif kind and (reason := _cannot_be_kept(kind, value, logical) or _not_held(value, item)):
            reasons.append(f"logicalTypeOptions.{key}: {reason}, got {value!r}")
        elif kind:
            rules.append(RowRule(path, kind, _as_stored(value, item)))
    if not reasons:
        reasons += _crossed(options)
    if item.enum is not None:
        values = [value.value for value in item.enum]
        unfit = [
            (reason, v)
            for v in values
            if (reason := _cannot_be_kept("values", v, logical) or _not_held(v, item))
        ]
        reasons += [f"enum: {reason}, got {value!r}" for reason, value in unfit]
        if not values:
            reasons.append("enum: expected at least one value, got none")
        if not reasons and not any(_within(value, options) for value in values):
            reasons.append(f"enum: all of its values break the logicalTypeOptions, got {values}")
        rules.append(RowRule(path, "values", tuple(_as_stored(value, item) for value in values)))
    return rules, reasons


def _within(value: Any, options: Mapping[str, Any]) -> bool:
    """Return whether a value keeps bounds that are sound; whether it keeps a pattern, only Java knows."""
    size = len(value) if isinstance(value, str) else value
    least, most = (
        options.get("minimum", options.get("minLength")),
        options.get("maximum", options.get("maxLength")),
    )
    return (least is None or size >= least) and (most is None or size <= most)


def _crossed(options: Mapping[str, Any]) -> Iterator[str]:
    for least, most in (("minimum", "maximum"), ("minLength", "maxLength")):
        if least in options and most in options and options[least] > options[most]:
            yield f"{least} {options[least]} is greater than {most} {options[most]}; swap them"


def _as_stored(value: Any, item: SchemaProperty) -> Any:
    """Return a rule's value as the column can hold it.

    0.1 in a column of 32 bits is another number than 0.1.
    """
    is_single = (item.logicalTypeOptions or {}).get("format") == "f32"
    return ctypes.c_float(value).value if is_single and isinstance(value, float) else value


def _not_held(value: Any, item: SchemaProperty) -> str | None:
    """Return why a column of a chosen width cannot hold a number; None if it can."""
    match (item.logicalTypeOptions or {}).get("format"):
        case "i32" if _is_number(value) and not -(2**31) <= value < 2**31:
            return "expected a number in the range of i32, -2147483648 to 2147483647"
        case "f32" if _is_number(value) and math.isinf(ctypes.c_float(value).value):
            return "expected a number in the range of f32"
        case _:
            return None


def _cannot_be_kept(kind: RowRuleKind, value: Any, logical_type: str) -> str | None:
    """Return why a rule would fail on the first record, or could never be kept; None if all is well."""
    match kind:
        case "minimum" | "maximum":
            fits = logical_type in ("integer", "number") and _is_number(value)
            return (
                None if fits else f"expected a number of at most {_DIGITS} digits, for an integer or a number"
            )
        case "min_length" | "max_length":
            fits = logical_type == "string" and type(value) is int and 0 <= value < _LONGEST_TEXT
            return None if fits else "expected a whole number from 0, for a property that is a string"
        case "pattern":
            return _no_pattern(value) if logical_type == "string" else "expected a property that is a string"
        case "values":
            return _no_value(value, logical_type)


def _is_number(value: Any) -> bool:
    if type(value) is int:
        return abs(value) < 10**_DIGITS
    return type(value) is float and math.isfinite(value)


def _no_pattern(value: Any) -> str | None:
    if type(value) is not str:
        return "expected a regular expression in quotes"
    if "(?P" in value or "(?(" in value:
        return "expected a regular expression in Java's syntax, without (?P and (?("
    try:
        with warnings.catch_warnings(action="error"):
            re.compile(value)
    except re.error as error:
        # Much of Java's is foreign to Python; the job asks Java before it starts.
        is_sure = error.msg.startswith(_BROKEN) and r"\Q" not in value
        return f"expected a regular expression ({error})" if is_sure else None
    except (OverflowError, RecursionError):
        return "expected a regular expression, with smaller numbers and less nesting"
    except Warning:
        return None
    return None


def _no_value(value: Any, logical_type: str) -> str | None:
    match logical_type:
        case "string":
            return None if type(value) is str else "expected text in quotes"
        case "integer":
            return None if type(value) is int and _is_number(value) else "expected a whole number"
        case "number":
            return None if _is_number(value) else "expected a number"
        case "boolean":
            return None if type(value) is bool else "expected true or false"
        case _:
            return "an enum is supported only for a string, an integer, a number or a boolean"
