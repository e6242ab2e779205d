"""The parts of a schema at any depth, each by its path.

In a path, dots lead into objects, `[]` into the elements of an array, `{}` into the values of a map and
`{key}` into its keys.
"""

from collections.abc import Iterator
from typing import Final

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from pipelines.sql import name

MAP_KEY: Final = "{key}"


def optional(kind: DataType) -> DataType:
    """Return a type whose nested parts may all be absent, as tables keep it.

    Decoding holds what is required.
    """
    match kind:
        case StructType():
            return StructType([StructField(f.name, optional(f.dataType)) for f in kind])
        case ArrayType():
            return ArrayType(optional(kind.elementType))
        case MapType():
            return MapType(kind.keyType, optional(kind.valueType))
        case _:
            return kind


def flat(schema: StructType) -> dict[str, StructField]:
    """Return every part of a schema by its path, each after the one that it lies in.

    A part that holds others stands with an empty type of its kind; only parts without parts have a whole one.
    """
    return {part.name: part for part in _parts(schema, "")}


def _parts(schema: StructType, prefix: str) -> Iterator[StructField]:
    for field in schema:
        yield from _part(f"{prefix}{field.name}", field.dataType, nullable=field.nullable)


def _part(path: str, kind: DataType, *, nullable: bool) -> Iterator[StructField]:
    yield StructField(path, _hollow(kind), nullable)
    match kind:
        case StructType():
            yield from _parts(kind, f"{path}.")
        case ArrayType():
            yield from _part(f"{path}[]", kind.elementType, nullable=kind.containsNull)
        case MapType():
            yield from _part(f"{path}{{}}", kind.valueType, nullable=kind.valueContainsNull)


def _hollow(kind: DataType) -> DataType:
    empty = StructType([])
    match kind:
        case StructType():
            return empty
        case ArrayType():
            return ArrayType(empty)
        case MapType():
            return MapType(kind.keyType, empty)
        case _:
            return kind


def holder(path: str) -> str:
    """Return the path of what a part lies in; empty for a column."""
    for end in ("[]", "{}", MAP_KEY):
        if path.endswith(end):
            return path.removesuffix(end)
    return path.rpartition(".")[0]


def holders(path: str) -> list[str]:
    """Return the paths of all that a part lies in, the outermost first."""
    above = holder(path)
    return [*holders(above), above] if above else []


def delta_name(path: str) -> str:
    """Return a path as Delta's commands name it."""
    return name(path.replace("[]", ".element").replace("{}", ".value"))
