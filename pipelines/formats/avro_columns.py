"""An Avro schema -> the columns that its records have once they have become JSON.

Avro is taken as Spark's `from_avro` takes it, since that is what makes JSON of it; so a whole number with a
meaning that Spark does not know (`timestamp-nanos`) is a whole number. Spark's own conversion needs a JVM.

Source: https://spark.apache.org/docs/latest/sql-data-sources-avro.html#supported-types-for-avro---spark-sql-conversion
"""

from collections.abc import Mapping
from math import log10
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
)

from pipelines.registry.avro_names import names_of

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
}
# Spark makes one column of these unions, and an object with a field for each branch of any other.
_WIDER: Final[dict[frozenset[str], DataType]] = {
    frozenset({"int", "long"}): LongType(),
    frozenset({"float", "double"}): DoubleType(),
}
_LARGEST_PRECISION: Final = 38


class AvroColumns:
    """Read a schema; named types are remembered, since a schema defines them once and then names them."""

    def __init__(self) -> None:
        self.named: dict[str, DataType | None] = {}

    def kind(self, node: Any, space: str) -> DataType:
        """Return the type that Spark makes of a part of a schema.

        Args:
            node: The part, as parsed JSON.
            space: The namespace that it lies in.

        Raises:
            ValueError: Spark cannot read it.
        """
        match node:
            case str():
                return _AVRO[node] if node in _AVRO else self._named_type(node, space)
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

    def _named_type(self, name: str, space: str) -> DataType:
        full = next((full for full in (f"{space}.{name}", name) if full in self.named), None)
        if full is None:
            raise ValueError(f"the type {name} is not defined")
        data_type = self.named[full]
        if data_type is None:
            raise ValueError(f"the type {name} holds itself, which Spark does not read")
        return data_type

    def _union(self, branches: list[Any], space: str) -> DataType:
        kinds = [(kind, branch) for branch in branches if (kind := self.kind(branch, space)) != NullType()]
        if len(kinds) <= 1:
            return kinds[0][0] if kinds else NullType()
        members = [StructField(f"member{position}", kind) for position, (kind, _) in enumerate(kinds)]
        # Spark looks at the types of Avro alone here: dates and times are whole numbers.
        return _WIDER.get(frozenset(_base(branch) for _, branch in kinds)) or StructType(members)

    def _defined(self, node: Mapping[str, Any], space: str) -> DataType:
        if "name" not in node:
            raise KeyError("name")
        full, inner = names_of(node, space)
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


def _base(node: Any) -> str:
    """Return the name of the Avro type that carries a value, whatever it means."""
    return _base(node["type"]) if isinstance(node, dict) else str(node)


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
    # By logarithms: a schema may say any numbers, and their powers have no end.
    too_long = node["type"] == "fixed" and precision >= (8 * node["size"] - 1) * log10(2)
    if not 0 <= scale <= precision or precision == 0 or too_long:
        # To Avro, a meaning that makes no sense is none.
        return None
    if precision > _LARGEST_PRECISION:
        raise ValueError(f"a decimal of {precision} digits; Spark reads {_LARGEST_PRECISION} at most")
    return DecimalType(precision, scale)
