"""What changes between the rules of two contracts, and whom each change breaks."""

import re
from collections.abc import Iterator
from typing import Final

from pipelines.contracts.change import BOTH, PRODUCERS, READERS, Change, Party, figure, place, shown
from pipelines.contracts.contract import DataContract
from pipelines.contracts.rules import DayRule, RowRule
from pipelines.schema_paths import flat

_QUOTED: Final = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)""", re.DOTALL)


def rule_changes(old: DataContract, new: DataContract) -> Iterator[Change]:
    """Every difference between the rules on records, then between those on days.

    Args:
        old: the contract as it is in use.
        new: the contract as it is meant to become.
    """
    yield from _of_row_rules(old, new)
    yield from _of_conditions(old, new)
    yield from _of_day_rules(old, new)


def _of_row_rules(old: DataContract, new: DataContract) -> Iterator[Change]:
    before = {(rule.column, rule.kind): rule for rule in old.row_rules}
    after = {(rule.column, rule.kind): rule for rule in new.row_rules}
    shared = flat(old.schema).keys() & flat(new.schema).keys()
    for column, kind in dict.fromkeys([*before, *after]):
        was, now = before.get((column, kind)), after.get((column, kind))
        if column not in shared:
            # What a rule says of a column that is new or gone is part of that change.
            continue
        if was is None and now is not None:
            yield Change(place(column), f"new rule: {kind} {shown(now)}", PRODUCERS)
        elif was is not None and now is None:
            yield Change(place(column), f"rule gone: {kind} {shown(was)}", READERS)
        elif was is not None and now is not None and was.value != now.value:
            what = f"{kind}: {shown(was)} became {shown(now)}"
            yield Change(place(column), what, _broken_by(was, now))


def _broken_by(was: RowRule, now: RowRule) -> tuple[Party, ...]:
    match now.kind:
        case "minimum" | "min_length":
            return PRODUCERS if now.value > was.value else READERS
        case "maximum" | "max_length":
            return PRODUCERS if now.value < was.value else READERS
        case "values":
            refused, allowed = set(was.value) - set(now.value), set(now.value) - set(was.value)
            return (*(PRODUCERS if refused else ()), *(READERS if allowed else ()))
        case "pattern":
            return BOTH


def _of_conditions(old: DataContract, new: DataContract) -> Iterator[Change]:
    before = {condition.name: condition.sql for condition in old.conditions}
    after = {condition.name: condition.sql for condition in new.conditions}
    for name in dict.fromkeys([*before, *after]):
        if name not in before:
            yield Change("schema.quality", f"new condition '{name}': {after[name]}", PRODUCERS)
        elif name not in after:
            yield Change("schema.quality", f"condition gone '{name}': {before[name]}", READERS)
        elif _tokens(before[name]) != _tokens(after[name]):
            what = f"condition '{name}': {before[name]} became {after[name]}"
            yield Change("schema.quality", what, BOTH)


def _tokens(sql: str) -> list[str]:
    """A condition in parts that are equal if it is but for white space; with a comment it is one part."""
    if "--" in sql or "/*" in sql:
        return [sql]
    parts = _QUOTED.split(sql)
    return [part if number % 2 else " ".join(part.split()) for number, part in enumerate(parts)]


def _of_day_rules(old: DataContract, new: DataContract) -> Iterator[Change]:
    before = {(rule.metric, rule.column): rule for rule in old.day_rules}
    after = {(rule.metric, rule.column): rule for rule in new.day_rules}
    for (metric, column), rule in before.items():
        now = after.get((metric, column))
        if now is None:
            yield Change(_day_place(rule), f"rule on days gone: {metric} {_bounds(rule)}", READERS)
        elif now != rule:
            what = f"{metric}: {_bounds(rule)} became {_bounds(now)}"
            loosened = _least(now) < _least(rule) or _most(now) > _most(rule)
            # A tighter rule breaks no record: it may keep a day from being certified.
            yield Change(_day_place(now), what, READERS if loosened else ())
    for key, rule in after.items():
        if key not in before:
            yield Change(_day_place(rule), f"new rule on days: {rule.metric} {_bounds(rule)}")


def _least(rule: DayRule) -> float:
    return float("-inf") if rule.minimum is None else rule.minimum


def _most(rule: DayRule) -> float:
    return float("inf") if rule.maximum is None else rule.maximum


def _bounds(rule: DayRule) -> str:
    if rule.minimum is not None and rule.maximum is not None:
        return f"{figure(rule.minimum)} to {figure(rule.maximum)}"
    if rule.minimum is not None:
        return f"at least {figure(rule.minimum)}"
    return "any" if rule.maximum is None else f"at most {figure(rule.maximum)}"


def _day_place(rule: DayRule) -> str:
    return f"{place(rule.column)}.quality" if rule.column else "schema.quality"
