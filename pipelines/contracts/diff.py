"""What changes between two versions of a contract, and whom each change breaks.

A contract is a demand on producers and a promise to readers of the tables. A change breaks

- **producers**, if a record that kept the old contract may break the new one: it goes to quarantine;
- **readers**, if a table may hold what the old contract excluded, or lacks what it promised;
- the **state** of the pipeline, if what is remembered of earlier records (deduplication, days) was made
  under another rule: streams must not go on from their checkpoints, see docs/runbook.md.

All else is compatible: every record that kept the old contract keeps the new one, and readers find what
they were promised. One exception cannot be seen in contracts: a column that is added may have been in records
all along, with another type. The description of the change says so.
"""

import re
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
    StringType,
    StructField,
    StructType,
)

from pipelines.contracts.contract import DataContract
from pipelines.contracts.custom_properties import Policy
from pipelines.contracts.rules import DayRule, RowRule
from pipelines.message_texts import number_text
from pipelines.schema_paths import MAP_KEY, flat, holder, holders

Party = Literal["producers", "readers", "state"]

PRODUCERS: Final[tuple[Party, ...]] = ("producers",)
READERS: Final[tuple[Party, ...]] = ("readers",)
BOTH: Final[tuple[Party, ...]] = ("producers", "readers")


@dataclass(frozen=True)
class Change:
    """One difference between two contracts.

    Attributes:
        place: What changed, such as `schema.properties.origin`.
        what: How, in words, with the old and the new value.
        breaks: Whom it breaks; nobody if it is compatible.
    """

    place: str
    what: str
    breaks: tuple[Party, ...] = ()

    @property
    def is_breaking(self) -> bool:
        """Whether it breaks anybody."""
        return bool(self.breaks)


def change_location(column: str) -> str:
    """Return where the contract speaks of a column."""
    return f"schema.properties.{column}"


def rule_value(rule: RowRule) -> str:
    """Return the value of a rule, in words."""
    return ", ".join(map(repr, rule.value)) if rule.kind == "values" else repr(rule.value)


_QUOTED: Final = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)""", re.DOTALL)


def rule_changes(old: DataContract, new: DataContract) -> Iterator[Change]:
    """Yield every difference between the rules on records, then between those on days.

    Args:
        old: The contract as it is in use.
        new: The contract as it is meant to become.
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
            yield Change(change_location(column), f"new rule: {kind} {rule_value(now)}", PRODUCERS)
        elif was is not None and now is None:
            yield Change(change_location(column), f"rule removed: {kind} {rule_value(was)}", READERS)
        elif was is not None and now is not None and was.value != now.value:
            what = f"{kind}: {rule_value(was)} became {rule_value(now)}"
            yield Change(change_location(column), what, _broken_by(was, now))


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
            yield Change("schema.quality", f"condition removed '{name}': {before[name]}", READERS)
        elif _tokens(before[name]) != _tokens(after[name]):
            what = f"condition '{name}': {before[name]} became {after[name]}"
            yield Change("schema.quality", what, BOTH)


def _tokens(sql: str) -> list[str]:
    """Return a condition in parts that are equal if it is but for white space.

    With a comment it is one part.
    """
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
            yield Change(_day_place(rule), f"rule on days removed: {metric} {_bounds(rule)}", READERS)
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
        return f"{number_text(rule.minimum)} to {number_text(rule.maximum)}"
    if rule.minimum is not None:
        return f"at least {number_text(rule.minimum)}"
    return "any" if rule.maximum is None else f"at most {number_text(rule.maximum)}"


def _day_place(rule: DayRule) -> str:
    return f"{change_location(rule.column)}.quality" if rule.column else "schema.quality"


_STATE: Final[tuple[Party, ...]] = ("readers", "state")


def contract_changes(old: DataContract, new: DataContract) -> list[Change]:
    """Return every difference that matters to records, tables or days, in the order of the contract.

    Args:
        old: The contract as it is in use.
        new: The contract as it is meant to become.
    """
    return [
        *_of_whole(old, new),
        *_of_personal(old, new),
        *_of_columns(old, new),
        *rule_changes(old, new),
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
        yield Change("schema.customProperties.dedupPolicy", what, READERS)
    if old.value_format != new.value_format:
        what = (
            f"'{old.value_format}' became '{new.value_format}': values are read in another way, also those"
            " that bronze holds already, so earlier days cannot be rebuilt"
        )
        yield Change("schema.customProperties.valueFormat", what, ("producers", "readers", "state"))
    if old.max_conflicts != new.max_conflicts:
        what = f"{_percent(old.max_conflicts)} became {_percent(new.max_conflicts)}"
        looser = old.max_conflicts is not None and (
            new.max_conflicts is None or new.max_conflicts > old.max_conflicts
        )
        yield Change("schema.customProperties.maxConflictsPercent", what, READERS if looser else ())


def _of_personal(old: DataContract, new: DataContract) -> Iterator[Change]:
    shared = flat(old.schema).keys() & flat(new.schema).keys()
    keys = {path for path in (*old.personal, *new.personal) if path.endswith(MAP_KEY)}
    treatments: dict[str, tuple[str, str]] = {}
    for path in sorted({*shared, *(path for path in keys if holder(path) in shared)}):
        before, after = old.treatment(path) or "nothing", new.treatment(path) or "nothing"
        treatments[path] = (before, after)
        if before == after or treatments.get(holder(path)) == (before, after):
            # What is nested is reported with what holds it.
            continue
        hides_more = before == "nothing" or after == "drop"
        what = f"personal: {before} became {after}"
        yield Change(f"{change_location(path)}.customProperties", what, () if hides_more else READERS)


def _words(policy: Policy) -> str:
    return f"{policy.winner} {policy.sequence}" if policy.sequence else policy.winner


def _percent(limit: float | None) -> str:
    return "no limit" if limit is None else f"{number_text(limit)} %"


def _of_columns(old: DataContract, new: DataContract) -> Iterator[Change]:
    before, after = flat(old.schema), flat(new.schema)
    for path, field in before.items():
        if path in after:
            yield from _of_column(field, after[path], in_key=path in new.key)
        elif holder(path) in after or not holder(path):
            yield Change(change_location(path), "removed: later rows have no value", READERS)
    for path, field in after.items():
        if path in before or (holder(path) and holder(path) not in before):
            # What a part that is new holds is part of that change.
            continue
        what = f"added, {'optional' if field.nullable else 'required'}, {kind_name(field.dataType)}"
        if demands := _demands(new, after, path):
            what = f"{what}, with rules ({'; '.join(demands)}); records that have it already may break them"
        if not field.nullable:
            what = f"{what}: records without it are refused"
        elif not isinstance(field.dataType, StringType):
            what = f"{what}; records that have it already with another type are refused"
        yield Change(change_location(path), what, PRODUCERS if demands or not field.nullable else ())


def _demands(contract: DataContract, parts: dict[str, StructField], path: str) -> list[str]:
    """Return what a part asks for beyond its type, and what lies in it."""
    rules = [rule for rule in contract.row_rules if rule.column == path or path in holders(rule.column)]
    required = [name for name, part in parts.items() if path in holders(name) and not part.nullable]
    return [
        *(f"{rule.column.removeprefix(path)} {rule.kind} {rule_value(rule)}".strip() for rule in rules),
        *(f"{name.removeprefix(path)} required" for name in required),
    ]


def _of_column(old: StructField, new: StructField, *, in_key: bool) -> Iterator[Change]:
    location = change_location(old.name)
    if old.dataType != new.dataType:
        what = f"{kind_name(old.dataType)} became {kind_name(new.dataType)}"
        if widens(old.dataType, new.dataType):
            yield Change(location, f"{what}: a wider type", ("state",) if in_key else ())
        elif widens(new.dataType, old.dataType):
            yield Change(location, f"{what}: a narrower type", BOTH if _rounds(old, new) else PRODUCERS)
        else:
            # A string takes any value of JSON.
            breaks = READERS if isinstance(new.dataType, StringType) else BOTH
            yield Change(location, f"{what}: another type", (*breaks, "state") if in_key else breaks)
    if old.nullable and not new.nullable:
        yield Change(location, "optional became required: records without it are refused", PRODUCERS)
    if new.nullable and not old.nullable:
        yield Change(location, "required became optional: readers may find nulls", READERS)


def _rounds(old: StructField, new: StructField) -> bool:
    """Return whether later rows have fewer decimal places."""
    match old.dataType, new.dataType:
        case DecimalType() as before, DecimalType() as after:
            return after.scale < before.scale
        case _:
            return False


def kind_name(kind: DataType) -> str:
    """Return a type in a word; a nesting type without what it holds, which is reported by itself."""
    has_parts = isinstance(kind, StructType | ArrayType | MapType)
    return kind.typeName() if has_parts else kind.simpleString()


def widens(old: DataType, new: DataType) -> bool:
    """Return whether every value of the old type is one of the new, and Delta can widen the column.

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
