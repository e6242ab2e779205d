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
from typing import Final

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

from pipelines.contracts.change import BOTH, PRODUCERS, READERS, Change, Party, figure, place, shown
from pipelines.contracts.contract import DataContract
from pipelines.contracts.custom_properties import Policy
from pipelines.contracts.rule_diff import rule_changes
from pipelines.schema_paths import MAP_KEY, flat, holder, holders

_STATE: Final[tuple[Party, ...]] = ("readers", "state")


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
            f"'{old.value_format}' became '{new.value_format}': values are read in another way, those that"
            " bronze holds already too, so days of before cannot be rebuilt"
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
    told: dict[str, tuple[str, str]] = {}
    for path in sorted({*shared, *(path for path in keys if holder(path) in shared)}):
        before, after = old.treatment(path) or "nothing", new.treatment(path) or "nothing"
        told[path] = (before, after)
        if before == after or told.get(holder(path)) == (before, after):
            # What lies within is told of with that which holds it.
            continue
        hides_more = before == "nothing" or after == "drop"
        what = f"personal: {before} became {after}"
        yield Change(f"{place(path)}.customProperties", what, () if hides_more else READERS)


def _words(policy: Policy) -> str:
    return f"{policy.winner} {policy.sequence}" if policy.sequence else policy.winner


def _percent(limit: float | None) -> str:
    return "no limit" if limit is None else f"{figure(limit)} %"


def _of_columns(old: DataContract, new: DataContract) -> Iterator[Change]:
    before, after = flat(old.schema), flat(new.schema)
    for path, field in before.items():
        if path in after:
            yield from _of_column(field, after[path], in_key=path in new.key)
        elif holder(path) in after or not holder(path):
            yield Change(place(path), "removed: later rows have no value", READERS)
    for path, field in after.items():
        if path in before or (holder(path) and holder(path) not in before):
            # What a part that is new holds is part of that change.
            continue
        what = f"added, {'optional' if field.nullable else 'required'}, {kind_name(field.dataType)}"
        if demands := _demands(new, after, path):
            what = f"{what}, with rules ({'; '.join(demands)}), which records may break that send it already"
        if not field.nullable:
            what = f"{what}: records without it are refused"
        yield Change(place(path), what, PRODUCERS if demands or not field.nullable else ())


def _demands(contract: DataContract, parts: dict[str, StructField], path: str) -> list[str]:
    """What a part asks for beyond its type, and what lies in it."""
    rules = [rule for rule in contract.row_rules if rule.column == path or path in holders(rule.column)]
    required = [name for name, part in parts.items() if path in holders(name) and not part.nullable]
    return [
        *(f"{rule.column.removeprefix(path)} {rule.kind} {shown(rule)}".strip() for rule in rules),
        *(f"{name.removeprefix(path)} required" for name in required),
    ]


def _of_column(old: StructField, new: StructField, *, in_key: bool) -> Iterator[Change]:
    here = place(old.name)
    if old.dataType != new.dataType:
        what = f"{kind_name(old.dataType)} became {kind_name(new.dataType)}"
        if widens(old.dataType, new.dataType):
            yield Change(here, f"{what}: a wider type", ("state",) if in_key else ())
        elif widens(new.dataType, old.dataType):
            yield Change(here, f"{what}: a narrower type", BOTH if _rounds(old, new) else PRODUCERS)
        else:
            # A string takes any value of JSON.
            breaks = READERS if isinstance(new.dataType, StringType) else BOTH
            yield Change(here, f"{what}: another type", (*breaks, "state") if in_key else breaks)
    if old.nullable and not new.nullable:
        yield Change(here, "optional became required: records without it are refused", PRODUCERS)
    if new.nullable and not old.nullable:
        yield Change(here, "required became optional: readers may find nulls", READERS)


def _rounds(old: StructField, new: StructField) -> bool:
    """Whether later rows have fewer decimal places."""
    match old.dataType, new.dataType:
        case DecimalType() as before, DecimalType() as after:
            return after.scale < before.scale
        case _:
            return False


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
