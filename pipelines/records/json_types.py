"""JSON as Spark reads it -> the types of a contract, at any depth, as SQL text.

Spark's own reading of timestamps takes "10:30" for today and 1357 for seconds: both would decode to
another instant than was meant. So text is read first and converted strictly.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipelines.schema_paths import optional
from pipelines.sql import literal, name

# The end of the text, in Java and in Python alike: before a last line break there is a `$` as well.
_END: Final = r"(?![\s\S])"
TIMESTAMP: Final = (
    rf"^\d{{4}}-\d{{2}}-\d{{2}}[T ]\d{{2}}:\d{{2}}(:\d{{2}}(\.\d{{1,9}})?)?(Z|[+-]\d{{2}}:?\d{{2}})?{_END}"
)
DATE: Final = rf"^\d{{4}}-\d{{2}}-\d{{2}}{_END}"


@dataclass(frozen=True)
class Flaw:
    """What can be wrong with the type of a value.

    Attributes:
        condition: SQL that is true for a wrong value.
        path: where the value is: fields with dots, `[]` for the elements of an array, `{}` for the values
            of a map.
        reason: what is wrong.
        found: SQL for the value, where it is a single one.
    """

    condition: str
    path: str
    reason: Literal["wrong_type", "missing_field"]
    found: str | None = None


def wire_type(kind: DataType) -> DataType:
    """Return the type by which Spark reads the JSON of a contract's type."""
    match kind:
        case TimestampType() | DateType():
            return StringType()
        case StructType():
            return StructType([StructField(f.name, wire_type(f.dataType)) for f in kind])
        case ArrayType():
            return ArrayType(wire_type(kind.elementType))
        case MapType():
            return MapType(kind.keyType, wire_type(kind.valueType))
        case _:
            return kind


def typed(wire: str, kind: DataType, depth: int = 0) -> str:
    """Return SQL for a value of the contract's type; where text is no such value, it is null.

    Args:
        wire: SQL for the value as it was read.
        kind: the contract's type.
        depth: how many collections the value lies in.
    """
    item = f"_x{depth}"
    match kind:
        case TimestampType():
            text = f"CASE WHEN {wire} RLIKE {literal(TIMESTAMP)} THEN try_cast({wire} AS TIMESTAMP) END"
        case DateType():
            text = f"CASE WHEN {wire} RLIKE {literal(DATE)} THEN try_cast({wire} AS DATE) END"
        case _ if wire_type(kind) == optional(kind):
            text = wire
        case StructType():
            values = (
                f"{literal(f.name)}, {typed(f'{wire}.{name(f.name)}', f.dataType, depth)}" for f in kind
            )
            text = f"CASE WHEN {wire} IS NOT NULL THEN named_struct({', '.join(values)}) END"
        case ArrayType():
            text = f"transform({wire}, {item} -> {typed(item, kind.elementType, depth + 1)})"
        case MapType():
            changed = typed(item, kind.valueType, depth + 1)
            text = f"transform_values({wire}, (_k{depth}, {item}) -> {changed})"
        case _:
            raise TypeError(f"no contract has columns of type {kind}")
    return text


def flaws(wire: str, value: str, kind: DataType, path: str, depth: int = 0) -> Iterator[Flaw]:
    """Yield what can be wrong with a value that Spark could read.

    Args:
        wire: SQL for the value as it was read.
        value: SQL for it in the contract's type.
        kind: the contract's type; its nested fields say which are required.
        path: where it is.
        depth: how many collections it lies in.
    """
    match kind:
        case TimestampType() | DateType():
            yield Flaw(f"{wire} IS NOT NULL AND {value} IS NULL", path, "wrong_type", wire)
        case FloatType() | DoubleType():
            # A number too large for its type is read as infinite.
            yield Flaw(f"abs({wire}) = CAST('Infinity' AS DOUBLE)", path, "wrong_type", wire)
        case StructType():
            for field in kind:
                part, inner = name(field.name), f"{path}.{field.name}"
                yield from flaws(f"{wire}.{part}", f"{value}.{part}", field.dataType, inner, depth)
                if not field.nullable:
                    absent = f"{wire} IS NOT NULL AND {wire}.{part} IS NULL"
                    yield Flaw(absent, inner, "missing_field")
        case ArrayType():
            yield from _flaws_of_items(wire, kind.elementType, kind.containsNull, f"{path}[]", depth)
        case MapType():
            values = f"map_values({wire})"
            # JSON may have a key twice; a map may not.
            doubled = f"size({wire}) != size(array_distinct(map_keys({wire})))"
            yield Flaw(doubled, path, "wrong_type")
            yield from _flaws_of_items(values, kind.valueType, kind.valueContainsNull, f"{path}{{}}", depth)


def _flaws_of_items(items: str, kind: DataType, nullable: bool, path: str, depth: int) -> Iterator[Flaw]:
    item = f"_x{depth}"
    for flaw in flaws(item, typed(item, kind, depth + 1), kind, path, depth + 1):
        yield replace(flaw, condition=f"exists({items}, {item} -> {flaw.condition})", found=None)
    if not nullable:
        yield Flaw(f"exists({items}, {item} -> {item} IS NULL)", path, "missing_field")
