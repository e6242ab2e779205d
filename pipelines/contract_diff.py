"""What changes between two versions of a contract, and whom each change breaks.

A contract is a demand on producers and a promise to readers of the tables. A change breaks

- **producers**, if a record that kept the old contract may break the new one: it goes to quarantine;
- **readers**, if a table may hold what the old contract excluded, or lacks what it promised;
- the **state** of the pipeline, if what is remembered of earlier records (deduplication, days) was made
  under another rule: streams must not go on from their checkpoints, see docs/runbook.md.

All else is compatible: every record that kept the old contract keeps the new one, and readers find what
they were promised.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StructField,
    StructType,
)

from pipelines.contract import DataContract
from pipelines.contract_custom import Policy
from pipelines.contract_rules import DayRule, RowRule
from pipelines.schema_paths import flat, holder

Party = Literal["producers", "readers", "state"]

_PRODUCERS: Final[tuple[Party, ...]] = ("producers",)
_READERS: Final[tuple[Party, ...]] = ("readers",)
_BOTH: Final[tuple[Party, ...]] = ("producers", "readers")
_STATE: Final[tuple[Party, ...]] = ("readers", "state")


@dataclass(frozen=True)
class Change:
    """One difference between two contracts.

    Attributes:
        place: what changed, such as `schema.properties.origin`.
        what: how, in words, with the old and the new value.
        breaks: whom it breaks; nobody if it is compatible.
    """

    place: str
    what: str
    breaks: tuple[Party, ...] = ()

    @property
    def is_breaking(self) -> bool:
        """Whether it breaks anybody."""
        return bool(self.breaks)


def changes(old: DataContract, new: DataContract) -> list[Change]:
    """Every difference that matters to records, tables or days, in the order of the contract.

    Args:
        old: the contract as it is in use.
        new: the contract as it is meant to become.
    """
    return [
        *_of_whole(old, new),
        *_of_personal(old, new),
        *_of_columns(old, new),
        *_of_row_rules(old, new),
        *_of_conditions(old, new),
        *_of_day_rules(old, new),
    ]


def _of_whole(old: DataContract, new: DataContract) -> Iterator[Change]:
    if old.id != new.id:
        yield Change("id", f"'{old.id}' became '{new.id}': another contract", _STATE)
    if set(old.key) != set(new.key):
        what = f"the dedup key ({', '.join(old.key)}) became ({', '.join(new.key)})"
        yield Change("schema.properties", what, _STATE)
    elif old.key != new.key:
        yield Change(
            "schema.properties", f"the dedup key is in another order: {', '.join(new.key)}", ("state",)
        )
    if old.event_time != new.event_time:
        what = f"'{old.event_time}' became '{new.event_time}'"
        yield Change("schema.customProperties.eventTime", what, _STATE)
    if old.day_time_zone != new.day_time_zone:
        what = f"'{old.day_time_zone}' became '{new.day_time_zone}': days begin at other times"
        yield Change("schema.customProperties.dayTimeZone", what, _STATE)
    if old.policy != new.policy:
        what = f"{_words(old.policy)} became {_words(new.policy)}: other copies win"
        yield Change("schema.customProperties.dedupPolicy", what, _READERS)
    if old.value_format != new.value_format:
        what = f"'{old.value_format}' became '{new.value_format}': values are read in another way"
        yield Change("schema.customProperties.valueFormat", what, _PRODUCERS)
    if old.max_conflicts != new.max_conflicts:
        what = f"{_percent(old.max_conflicts)} became {_percent(new.max_conflicts)}"
        looser = old.max_conflicts is not None and (
            new.max_conflicts is None or new.max_conflicts > old.max_conflicts
        )
        yield Change("schema.customProperties.maxConflictsPercent", what, _READERS if looser else ())


def _of_personal(old: DataContract, new: DataContract) -> Iterator[Change]:
    for name in sorted(old.personal.keys() | new.personal.keys()):
        before, after = old.personal.get(name), new.personal.get(name)
        if before != after:
            what = f"personal: {before or 'nothing'} became {after or 'nothing'}"
            hides_more = before is None or after == "drop"
            yield Change(f"{_place(name)}.customProperties", what, () if hides_more else _READERS)


def _words(policy: Policy) -> str:
    return f"{policy.winner} {policy.sequence}" if policy.sequence else policy.winner


def _percent(limit: float | None) -> str:
    return "no limit" if limit is None else f"{limit:g} %"


def _of_columns(old: DataContract, new: DataContract) -> Iterator[Change]:
    before, after = flat(old.schema), flat(new.schema)
    for path, field in before.items():
        if path in after:
            yield from _of_column(field, after[path], in_key=path in new.key)
        elif holder(path) in after or not holder(path):
            yield Change(_place(path), "removed: later rows have no value", _READERS)
    for path, field in after.items():
        if path in before or (holder(path) and holder(path) not in before):
            # What a part that is new holds is part of that change.
            continue
        what = f"added, {'optional' if field.nullable else 'required'}, {kind_name(field.dataType)}"
        if field.nullable:
            yield Change(_place(path), what)
        else:
            yield Change(_place(path), f"{what}: records without it are refused", _PRODUCERS)


def _of_column(old: StructField, new: StructField, *, in_key: bool) -> Iterator[Change]:
    place = _place(old.name)
    if old.dataType != new.dataType:
        what = f"{kind_name(old.dataType)} became {kind_name(new.dataType)}"
        if widens(old.dataType, new.dataType):
            yield Change(place, f"{what}: a wider type", ("state",) if in_key else ())
        elif widens(new.dataType, old.dataType):
            yield Change(place, f"{what}: a narrower type", _PRODUCERS)
        else:
            yield Change(place, f"{what}: another type", _BOTH)
    if old.nullable and not new.nullable:
        yield Change(place, "optional became required: records without it are refused", _PRODUCERS)
    if new.nullable and not old.nullable:
        yield Change(place, "required became optional: readers may find nulls", _READERS)


def kind_name(kind: DataType) -> str:
    """A type in a word; what holds others without them, since those are told of by themselves."""
    has_parts = isinstance(kind, StructType | ArrayType | MapType)
    return kind.typeName() if has_parts else kind.simpleString()


def widens(old: DataType, new: DataType) -> bool:
    """Whether every value of the old type is one of the new, and Delta can widen the column.

    Source: Delta Lake's type widening, https://docs.delta.io/latest/delta-type-widening.html
    """
    match old, new:
        case IntegerType(), LongType() | DoubleType():
            return True
        case FloatType(), DoubleType():
            return True
        case DecimalType(), DecimalType():
            more = new.precision - old.precision
            return new.scale >= old.scale and more >= new.scale - old.scale
        case IntegerType(), DecimalType():
            return new.precision - new.scale >= 10
        case LongType(), DecimalType():
            return new.precision - new.scale >= 20
        case _:
            return False


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
            yield Change(_place(column), f"new rule: {kind} {_shown(now)}", _PRODUCERS)
        elif was is not None and now is None:
            yield Change(_place(column), f"rule gone: {kind} {_shown(was)}", _READERS)
        elif was is not None and now is not None and was.value != now.value:
            what = f"{kind}: {_shown(was)} became {_shown(now)}"
            yield Change(_place(column), what, _broken_by(was, now))


def _broken_by(was: RowRule, now: RowRule) -> tuple[Party, ...]:
    match now.kind:
        case "minimum" | "min_length":
            return _PRODUCERS if now.value > was.value else _READERS
        case "maximum" | "max_length":
            return _PRODUCERS if now.value < was.value else _READERS
        case "values":
            refused, allowed = set(was.value) - set(now.value), set(now.value) - set(was.value)
            return (*(_PRODUCERS if refused else ()), *(_READERS if allowed else ()))
        case "pattern":
            return _BOTH


def _of_conditions(old: DataContract, new: DataContract) -> Iterator[Change]:
    before = {condition.name: condition.sql for condition in old.conditions}
    after = {condition.name: condition.sql for condition in new.conditions}
    for name in dict.fromkeys([*before, *after]):
        if name not in before:
            yield Change("schema.quality", f"new condition '{name}': {after[name]}", _PRODUCERS)
        elif name not in after:
            yield Change("schema.quality", f"condition gone '{name}': {before[name]}", _READERS)
        elif before[name] != after[name]:
            what = f"condition '{name}': {before[name]} became {after[name]}"
            yield Change("schema.quality", what, _BOTH)


def _of_day_rules(old: DataContract, new: DataContract) -> Iterator[Change]:
    before = {(rule.metric, rule.column): rule for rule in old.day_rules}
    after = {(rule.metric, rule.column): rule for rule in new.day_rules}
    for (metric, column), rule in before.items():
        now = after.get((metric, column))
        if now is None:
            yield Change(_day_place(rule), f"rule on days gone: {metric} {_bounds(rule)}", _READERS)
        elif now != rule:
            what = f"{metric}: {_bounds(rule)} became {_bounds(now)}"
            loosened = _least(now) < _least(rule) or _most(now) > _most(rule)
            # A tighter rule breaks no record: it may keep a day from being certified.
            yield Change(_day_place(now), what, _READERS if loosened else ())
    for key, rule in after.items():
        if key not in before:
            yield Change(_day_place(rule), f"new rule on days: {rule.metric} {_bounds(rule)}")


def _least(rule: DayRule) -> float:
    return float("-inf") if rule.minimum is None else rule.minimum


def _most(rule: DayRule) -> float:
    return float("inf") if rule.maximum is None else rule.maximum


def _bounds(rule: DayRule) -> str:
    if rule.minimum is not None and rule.maximum is not None:
        return f"{rule.minimum:g} to {rule.maximum:g}"
    return f"at least {rule.minimum:g}" if rule.minimum is not None else f"at most {rule.maximum:g}"


def _shown(rule: RowRule) -> str:
    return ", ".join(map(repr, rule.value)) if rule.kind == "values" else repr(rule.value)


def _place(column: str) -> str:
    return f"schema.properties.{column}"


def _day_place(rule: DayRule) -> str:
    return f"{_place(rule.column)}.quality" if rule.column else "schema.quality"
