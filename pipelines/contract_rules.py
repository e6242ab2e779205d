"""The quality rules of a contract, and which of the standard's rules can be kept."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

RowRuleKind = Literal["minimum", "maximum", "pattern", "min_length", "max_length", "values"]
ROW_OPTIONS: Final[Mapping[str, RowRuleKind]] = {
    "minimum": "minimum",
    "maximum": "maximum",
    "pattern": "pattern",
    "minLength": "min_length",
    "maxLength": "max_length",
}


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
class DayRule:
    """A rule on all rows of one day.

    Attributes:
        metric: `rowCount`, or `nullValues`: the share of nulls of `column`, in percent.
        column: the column of `nullValues`; None for `rowCount`.
        minimum: the least value allowed, None for no bound.
        maximum: the greatest value allowed, None for no bound.
    """

    metric: Literal["rowCount", "nullValues"]
    column: str | None
    minimum: float | None
    maximum: float | None


def cannot_be_kept(kind: RowRuleKind, value: Any, logical_type: str) -> str | None:
    """Why a rule would fail on the first record; None if it would not."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind in ("minimum", "maximum"):
        fits = is_number and logical_type in ("integer", "number")
        return None if fits else "expected a number, for an integer or a number"
    if logical_type != "string":
        return "expected a property that is a string"
    if kind != "pattern":
        return None if is_number else "expected a number"
    try:
        re.compile(str(value))
    except re.error as error:
        return f"expected a regular expression ({error})"
    return None
