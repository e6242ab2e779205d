"""The `quality` of a contract's object and properties: rules on days, and conditions on whole records.

Of the standard's rules these are kept: `type: library` with the metric `rowCount` of the object or
`nullValues` or `duplicateValues` of a property; `type: custom` with `engine: oncelake` of the object, whose
`implementation` is a condition in SQL; and `slaProperties` with the property `freshness`. All others are
refused.
"""

import math
import re
from collections.abc import Iterator
from typing import Final, cast

from open_data_contract_standard.model import (
    DataQuality,
    OpenDataContractStandard,
    SchemaObject,
    SchemaProperty,
    ServiceLevelAgreementProperty,
)

from pipelines.contracts.confinement import EXPECTED, beyond_the_record
from pipelines.contracts.rules import Condition, DayMetric, DayRule
from pipelines.contracts.types import Refuse, nested

# A text in SQL, or what begins like one and is none: a name in backticks, a comment.
_PART: Final = re.compile(
    r"`[^`]*`|--(?:\\\n|[^\r\n])*+|/\*.*?(?:\*/|\Z)"
    r"|(?P<raw>\b[rR])?(?P<text>'(?:[^'\\]|\\.)*+(?:'|\\?\Z)|\"(?:[^\"\\]|\\.)*+(?:\"|\\?\Z))",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
# Of others Spark drops the backslash. That \b is a backspace for it surprises as much.
_KEPT: Final = set("0123456789'\"nrtZuU\\%_")


def lost_backslashes(sql: str) -> str | None:
    r"""Return the first text of a condition in which a backslash is lost: in SQL `'\d'` is `d`.

    Args:
        sql: The condition.

    Returns:
        The text as it stands there, with its quotes; None if there is none.
    """
    for part in _PART.finditer(sql):
        text = part["text"]
        if text and not part["raw"] and any(sign not in _KEPT for sign in _ESCAPE.findall(text)):
            return text
    return None


def doubled(text: str) -> str:
    """Return a text with every backslash twice."""
    return text.replace("\\", "\\\\")


_BOUNDS: Final = ("mustBeBetween", "mustBeGreaterOrEqualTo", "mustBeLessOrEqualTo")
_HOURS: Final = {
    **dict.fromkeys(("d", "day", "days"), 24.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 1.0),
    **dict.fromkeys(("min", "minute", "minutes"), 1 / 60),
}
_UNITS_OF_OBJECT: Final[dict[str, tuple[str | None, ...]]] = {"rowCount": ("rows", None)}
_UNITS_OF_PROPERTY: Final[dict[str, tuple[str | None, ...]]] = {
    "nullValues": ("percent",),
    "duplicateValues": ("rows", None),
}
_LONGEST_NAME: Final = 100
_SEVERITIES: Final = (None, "critical", "error")
_NOT_OF_LIBRARY: Final = ("arguments", "query", "engine", "implementation")
# Beyond any count, and what no float holds lies beyond it.
_LARGEST: Final = 10**18
_SHOWN: Final = 60


def conditions(item: SchemaObject, refuse: Refuse) -> Iterator[Condition]:
    """Yield the conditions that every record must keep."""
    names: set[str] = set()
    for quality in filter(_is_condition, item.quality or []):
        place, text = "schema.quality", quality.implementation
        _refuse_severity(place, quality, refuse)
        if quality.engine != "oncelake":
            refuse(place, f"custom: expected `engine: oncelake`, got {quality.engine!r}")
        elif not quality.name or len(quality.name) > _LONGEST_NAME or quality.name in names:
            refuse(place, f"custom: expected a `name` of its own, for reports, got {quality.name!r}")
        elif not isinstance(text, str) or not text.strip():
            refuse(
                place,
                f"custom: {quality.name}: expected a condition in SQL as `implementation`, got {text!r}",
            )
        elif outside := beyond_the_record(text):
            refuse(place, f"custom: {quality.name}: expected {EXPECTED}, got {text!r}, which has {outside}")
        elif lost := lost_backslashes(text):
            refuse(
                place,
                f"custom: {quality.name}: SQL drops a backslash of the text {lost}; expected two backslashes,"
                f" or r in front of the text: {doubled(lost)} or r{lost}",
            )
        elif others := [name for name in _limits(quality) if getattr(quality, name) is not None]:
            problem = "not supported for a condition; remove it"
            refuse(place, f"custom: {quality.name}: {', '.join(others)}: {problem}")
        else:
            names.add(quality.name)
            yield Condition(quality.name, text.strip())


def day_rules(
    document: OpenDataContractStandard, item: SchemaObject, event_time: str, refuse: Refuse
) -> tuple[DayRule, ...]:
    """Return the rules on the rows of a day.

    Args:
        document: The contract, for its `slaProperties`.
        item: Its one object.
        event_time: The column that says when an event happened.
        refuse: Takes the place and the reason of each refusal.
    """
    rules = [_day_rule(None, q, refuse) for q in item.quality or [] if not _is_condition(q)]
    for path, part, _ in nested(item.properties or []):
        of_part = [_day_rule(path, quality, refuse) for quality in part.quality or []]
        if _holds_map(part) and any(rule and rule.metric == "duplicateValues" for rule in of_part):
            refuse(
                f"schema.properties.{path}.quality",
                "duplicateValues: supported only where no map is, as Spark does not compare maps; remove it",
            )
        rules += of_part
    ages = {None, item.name, event_time, f"{item.name}.{event_time}"}
    for level in document.slaProperties or []:
        if level.property == "freshness":
            element = level.element or document.slaDefaultElement
            if element not in ages:
                refuse(
                    "slaProperties.freshness",
                    f"element: supported only for the event time, {item.name}.{event_time}, got {element!r}",
                )
            rules.append(_freshness(level, refuse))
    valid_rules = tuple(rule for rule in rules if rule)
    if len({(rule.metric, rule.column) for rule in valid_rules}) < len(valid_rules):
        refuse("quality", "found a metric twice for the same column; join the two rules")
    return valid_rules


def _holds_map(part: SchemaProperty) -> bool:
    """Return whether a property is a map, or one is in it."""
    return any(item.logicalType == "map" for _, item, _ in nested([part]))


def _refuse_severity(place: str, quality: DataQuality, refuse: Refuse) -> None:
    if quality.severity not in _SEVERITIES:
        refuse(
            place,
            f"severity: expected none, or {' or '.join(filter(None, _SEVERITIES))}, got {quality.severity!r}:"
            " a rule that is broken is an error. To be warned only, write an expectation:"
            " docs/data-quality.md",
        )


def _is_condition(quality: DataQuality) -> bool:
    return quality.type == "custom"


def _freshness(level: ServiceLevelAgreementProperty, refuse: Refuse) -> DayRule | None:
    hours = _HOURS.get(level.unit or "")
    is_number = isinstance(level.value, int | float) and not isinstance(level.value, bool)
    if hours is None or not is_number or not 0 < float(str(level.value)) < math.inf:
        refuse(
            "slaProperties.freshness",
            f"expected a value above 0 with a unit ({', '.join(_HOURS)}), got {level.value!r} {level.unit!r}",
        )
        return None
    return DayRule("freshness", None, None, float(str(level.value)) * hours)


def _day_rule(column: str | None, quality: DataQuality, refuse: Refuse) -> DayRule | None:
    place = f"schema.{'properties.' + column + '.' if column else ''}quality"
    _refuse_severity(place, quality, refuse)
    metric_name = quality.metric or quality.rule
    units = _UNITS_OF_OBJECT if column is None else _UNITS_OF_PROPERTY
    if quality.type not in ("library", None):
        refuse(place, f"expected `type: library`, or `custom` of the object, got {quality.type!r}")
        return None
    if metric_name not in units:
        refuse(
            place,
            "expected metric rowCount of the object, or nullValues or duplicateValues of a property,"
            f" got {metric_name!r}",
        )
        return None
    metric = cast(DayMetric, metric_name)
    if quality.unit not in units[metric]:
        refuse(place, f"{metric}: expected `unit: {units[metric][0]}`, got {quality.unit!r}")
        return None
    others = [*(name for name in _limits(quality) if name not in _BOUNDS), *_NOT_OF_LIBRARY]
    if unkept := [name for name in others if getattr(quality, name) is not None]:
        refuse(place, f"{metric}: {', '.join(unkept)} is not supported; expected {', '.join(_BOUNDS)}")
    minimum, maximum = quality.mustBeGreaterOrEqualTo, quality.mustBeLessOrEqualTo
    if quality.mustBeBetween:
        if minimum is not None or maximum is not None:
            refuse(place, f"{metric}: expected mustBeBetween or single bounds, got both")
        minimum, maximum = quality.mustBeBetween
    if reason := _unfit(metric, minimum, maximum):
        refuse(place, f"{metric}: {reason}")
        return None
    return DayRule(metric, column, minimum, maximum)


def _unfit(metric: DayMetric, minimum: float | None, maximum: float | None) -> str | None:
    """Return what is wrong with the bounds of a rule; None if a day can keep them."""
    bounds = [bound for bound in (minimum, maximum) if bound is not None]
    got = str(bounds)[:_SHOWN]
    if not bounds:
        return "expected mustBeBetween, mustBeGreaterOrEqualTo or mustBeLessOrEqualTo"
    # A comparison with what is no number is never true.
    if not all(abs(bound) < _LARGEST for bound in bounds) or bounds != sorted(bounds):
        return f"expected finite bounds, the lower one first, got {got}"
    if metric == "nullValues":
        is_share = bounds[0] >= 0 and bounds[-1] <= 100
        return None if is_share else f"expected a percentage, from 0 to 100, got {got}"
    if maximum is not None and maximum < 0:
        return f"no day can keep it: a count is never below 0; got {got}"
    if minimum is not None and maximum is not None and math.ceil(minimum) > maximum:
        return f"no day can keep it: a count is a whole number; got {got}"
    return None


def _limits(quality: DataQuality) -> list[str]:
    return [name for name in type(quality).model_fields if name.startswith("must")]
