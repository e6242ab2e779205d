"""A writer's schema -> the columns that its records have once they have become JSON.

Avro is taken as Spark's `from_avro` takes it, since that is what makes JSON of it; so a whole number with a
meaning that Spark does not know (`timestamp-nanos`) is a whole number. Spark's own conversion needs a JVM.

Source: https://spark.apache.org/docs/latest/sql-data-sources-avro.html#supported-types-for-avro---spark-sql-conversion
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    VariantType,
)

from pipelines.errors import ContractError
from pipelines.wire import WriterSchema

ANYTHING: Final = VariantType()

_AVRO: Final[dict[str, DataType]] = {
    "null": NullType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}
_AVRO_MEANINGS: Final[dict[tuple[str, str], DataType]] = {
    ("int", "date"): DateType(),
    ("long", "timestamp-millis"): TimestampType(),
    ("long", "timestamp-micros"): TimestampType(),
    ("long", "local-timestamp-millis"): TimestampNTZType(),
    ("long", "local-timestamp-micros"): TimestampNTZType(),
    ("long", "time-micros"): TimeType(),
}
# Spark makes one column of these unions, and an object with a field for each branch of any other.
_WIDER: Final[dict[frozenset[DataType], DataType]] = {
    frozenset({IntegerType(), LongType()}): LongType(),
    frozenset({FloatType(), DoubleType()}): DoubleType(),
}
_LARGEST_PRECISION: Final = 38

_JSON: Final[dict[str, DataType]] = {"null": NullType(), "boolean": BooleanType(), "number": DoubleType()}
_JSON_FORMATS: Final[dict[str, DataType]] = {"date-time": TimestampType(), "date": DateType()}
_JOINTS: Final = ("allOf", "anyOf", "oneOf")


def columns_of(schema: WriterSchema) -> StructType:
    """The columns that a schema stands for; one that may be null or left out is nullable.

    Args:
        schema: of the kind `AVRO` or `JSON`, with all that it refers to.

    Returns:
        The columns, in the order of the schema. What a schema of JSON does not say, or says in another way
        than by types and properties, is `ANYTHING`; an object that names no properties is a map, or, as the
        whole, has no columns.

    Raises:
        ContractError: its values are no objects, or it cannot be read by.
    """
    place = f"schema {schema.id} of the registry"
    try:
        document = json.loads(schema.text)
        kind = _Avro().kind(document, "") if schema.kind == "AVRO" else _Json(document).part(document)[0]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ContractError(f"{place}: no decoding can be made of it: {error}") from None
    match kind:
        case StructType():
            return kind
        case MapType():
            return StructType([])
        case _:
            raise ContractError(
                f"{place}: expected a record, or an object with properties, got {kind.simpleString()}:"
                " its values cannot be compared with columns"
            )


class _Avro:
    """Remembers named types, which a schema defines once and then names."""

    def __init__(self) -> None:
        self.named: dict[str, DataType | None] = {}

    def kind(self, node: Any, space: str) -> DataType:
        match node:
            case str():
                return _AVRO[node] if node in _AVRO else self._known(node, space)
            case list():
                return self._union(node, space)
            case {"type": "record" | "error" | "enum" | "fixed"}:
                return self._defined(node, space)
            case {"type": "array", "items": inner} | {"type": "map", "values": inner}:
                item = (self.kind(inner, space), _has_null(inner))
                return ArrayType(*item) if node["type"] == "array" else MapType(StringType(), *item)
            case {"type": str() as base} if base in _AVRO:
                return _decimal(node) or _AVRO_MEANINGS.get((base, str(node.get("logicalType"))), _AVRO[base])
            case {"type": inner}:
                return self.kind(inner, space)
            case _:
                raise ValueError(f"expected a type of Avro, got {node!r}")

    def _known(self, name: str, space: str) -> DataType:
        full = next((full for full in (f"{space}.{name}", name) if full in self.named), None)
        if full is None:
            raise ValueError(f"the type {name} is not defined")
        found = self.named[full]
        if found is None:
            raise ValueError(f"the type {name} holds itself, which Spark does not read")
        return found

    def _union(self, branches: list[Any], space: str) -> DataType:
        kinds = [kind for branch in branches if (kind := self.kind(branch, space)) != NullType()]
        if len(kinds) <= 1:
            return kinds[0] if kinds else NullType()
        members = [StructField(f"member{position}", kind) for position, kind in enumerate(kinds)]
        return _WIDER.get(frozenset(kinds)) or StructType(members)

    def _defined(self, node: Mapping[str, Any], space: str) -> DataType:
        name = str(node["name"])
        inner = name.rpartition(".")[0] or str(node.get("namespace", space))
        full = name if "." in name or not inner else f"{inner}.{name}"
        self.named[full] = None
        kind: DataType
        match node["type"]:
            case "enum":
                kind = StringType()
            case "fixed":
                kind = _decimal(node) or BinaryType()
            case _:
                kind = StructType(
                    [
                        StructField(f["name"], self.kind(f["type"], inner), _has_null(f["type"]))
                        for f in node["fields"]
                    ]
                )
        self.named[full] = kind
        return kind


def _has_null(node: Any) -> bool:
    match node:
        case list():
            return any(_has_null(branch) for branch in node)
        case {"type": str() | list() | dict() as inner}:
            return _has_null(inner)
        case _:
            return bool(node == "null")


def _decimal(node: Mapping[str, Any]) -> DataType | None:
    if node["type"] not in ("bytes", "fixed") or node.get("logicalType") != "decimal":
        return None
    precision, scale = node.get("precision", 0), node.get("scale", 0)
    if not 0 <= scale <= precision or precision == 0:
        # To Avro, a meaning that makes no sense is none.
        return None
    if precision > _LARGEST_PRECISION:
        raise ValueError(f"a decimal of {precision} digits; Spark reads {_LARGEST_PRECISION} at most")
    return DecimalType(precision, scale)


class _Json:
    """Resolves references within the document."""

    def __init__(self, document: Any) -> None:
        self.document = document

    def part(self, node: Any, seen: frozenset[str] = frozenset()) -> tuple[DataType, bool]:
        """The type of a part, and whether it may be null."""
        if not isinstance(node, dict):
            return ANYTHING, False
        if isinstance(reference := node.get("$ref"), str):
            # What holds itself has no end as columns.
            target = None if reference in seen else self._target(reference)
            return self.part(target, seen | {reference})
        given = node.get("type", "object" if "properties" in node else None)
        types = given if isinstance(given, list) else [given]
        others = [name for name in types if name != "null"]
        if any(joint in node for joint in _JOINTS) and others in ([None], ["object"], ["array"]):
            return self._joined(node, seen)
        if not others:
            return NullType(), True
        kind = self._kind(str(others[0]), node, seen) if len(others) == 1 else ANYTHING
        return kind, "null" in types

    def _joined(self, node: Mapping[str, Any], seen: frozenset[str]) -> tuple[DataType, bool]:
        """One schema or null, as `Optional[X]` is often written; of all else, nothing is known."""
        joints = [joint for joint in _JOINTS if joint in node]
        branches = [self.part(branch, seen) for branch in node[joints[0]]]
        found = [branch for branch in branches if branch[0] != NullType()]
        if len(joints) > 1 or len(found) != 1 or node.keys() & {"type", "properties"}:
            return ANYTHING, False
        return found[0][0], any(nullable for _, nullable in branches)

    def _kind(self, name: str, node: Mapping[str, Any], seen: frozenset[str]) -> DataType:
        match name:
            case "object":
                return self._object(node, seen)
            case "array":
                return ArrayType(*self.part(node.get("items"), seen))
            case "string":
                return _JSON_FORMATS.get(str(node.get("format")), StringType())
            case "integer":
                least, most = node.get("minimum"), node.get("maximum")
                is_small = least is not None and most is not None and least >= -(2**31) and most < 2**31
                return IntegerType() if is_small else LongType()
            case _:
                return _JSON.get(name, ANYTHING)

    def _object(self, node: Mapping[str, Any], seen: frozenset[str]) -> DataType:
        properties = node.get("properties") or {}
        if not properties:
            return MapType(StringType(), *self.part(node.get("additionalProperties"), seen))
        required, fields = node.get("required", []), []
        for name, inner in properties.items():
            kind, nullable = self.part(inner, seen)
            fields.append(StructField(name, kind, nullable or name not in required))
        return StructType(fields)

    def _target(self, reference: str) -> Any:
        """What a reference within the document leads to; None if it leads elsewhere."""
        found = self.document
        steps = reference.removeprefix("#").split("/")[1:] if reference.startswith("#") else ["nowhere"]
        for step in steps:
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        return found
