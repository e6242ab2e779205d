"""Types: the properties of the contract standard -> columns and their Spark types, at any depth."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from open_data_contract_standard.model import SchemaProperty
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipelines.schema_paths import MAP_KEY

_DECIMAL: Final = re.compile(r"(?:decimal|numeric) *\( *(\d{1,2}) *, *(\d{1,2}) *\)", re.IGNORECASE)
_TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "integer": LongType(),
    "number": DoubleType(),
    "boolean": BooleanType(),
    "date": DateType(),
    "timestamp": TimestampType(),
}
_FORMATS: Final[dict[tuple[str, str], DataType]] = {
    ("integer", "i32"): IntegerType(),
    ("integer", "i64"): LongType(),
    ("number", "f32"): FloatType(),
    ("number", "f64"): DoubleType(),
}
_LARGEST_PRECISION: Final = 38
_NESTED: Final = ("object", "array", "map")
_PARTS: Final = {"properties": "object", "items": "array", "map": "map"}
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)

Refuse = Callable[[str, str], None]


def columns(properties: Sequence[SchemaProperty], place: str, refuse: Refuse) -> StructType:
    """Return the columns that properties stand for; one that is required, or in the key, is not nullable.

    Args:
        properties: Of the contract's object, or of a property that is an object.
        place: Where they are, for messages.
        refuse: Takes the place and the reason of each refusal.
    """
    fields: list[StructField] = []
    taken = set[str]()
    for position, item in enumerate(properties):
        column_name = item.name or ""
        location = f"{place}.{column_name or position}"
        if not column_name:
            refuse(location, "name: missing")
        elif column_name.startswith("_"):
            refuse(
                location, "names that begin with _ are reserved for the columns that Oncelake adds; rename it"
            )
        elif not _NAME.fullmatch(column_name):
            refuse(location, f"name: expected letters, digits and _, a letter first, got {column_name!r}")
        elif column_name.casefold() in taken:
            refuse(
                location, "found the name twice (Spark does not distinguish upper and lower case); rename one"
            )
        kind = _kind(item, location, refuse)
        if kind is not None:
            fields.append(StructField(column_name, kind, nullable=not (item.required or item.primaryKey)))
            taken.add(column_name.casefold())
    if not properties:
        refuse(place, "expected at least one property, got none")
    return StructType(fields)


def nested(
    properties: Sequence[SchemaProperty], prefix: str = ""
) -> Iterator[tuple[str, SchemaProperty, bool]]:
    """Yield all properties, and those within objects, each after the one that it lies in.

    Args:
        properties: Of the contract's object.
        prefix: The path of the object that they lie in, with a dot.

    Yields:
        The path, with dots; the property; and whether it lies in an array or a map.
    """
    for item in properties:
        yield from _parts(f"{prefix}{item.name}", item)


def _parts(path: str, item: SchemaProperty) -> Iterator[tuple[str, SchemaProperty, bool]]:
    yield path, item, "[]" in path or "{" in path
    yield from nested(item.properties or [], f"{path}.")
    if item.items:
        yield from _parts(f"{path}[]", item.items)
    if item.map and item.map.key:
        yield from _parts(f"{path}{MAP_KEY}", item.map.key)
    if item.map and item.map.value:
        yield from _parts(f"{path}{{}}", item.map.value)


def _kind(item: SchemaProperty, place: str, refuse: Refuse) -> DataType | None:
    for part, holder in _PARTS.items():
        if getattr(item, part) is not None and item.logicalType != holder:
            refuse(
                place, f"{part}: allowed only with logicalType {holder}, got {item.logicalType!r}; remove one"
            )
    try:
        match item.logicalType:
            case "object":
                return columns(item.properties or [], f"{place}.properties", refuse)
            case "array":
                return _array(item, place, refuse)
            case "map":
                return _map(item, place, refuse)
            case _:
                return spark_type(item)
    except ValueError as error:
        refuse(place, str(error))
        return None


def _array(item: SchemaProperty, place: str, refuse: Refuse) -> DataType | None:
    if item.items is None:
        raise ValueError("items: missing; an array needs the type of its elements")
    kind = _kind(item.items, f"{place}.items", refuse)
    return None if kind is None else ArrayType(kind, containsNull=not item.items.required)


def _map(item: SchemaProperty, place: str, refuse: Refuse) -> DataType | None:
    key, value = (item.map.key, item.map.value) if item.map else (None, None)
    if value is None or (key and key.logicalType != "string"):
        raise ValueError("map: expected a key that is a string, as in JSON, and a value")
    if key:
        _kind(key, f"{place}.map.key", refuse)
    kind = _kind(value, f"{place}.map.value", refuse)
    return None if kind is None else MapType(StringType(), kind, valueContainsNull=not value.required)


def spark_type(item: SchemaProperty) -> DataType:
    """Return the Spark type in which a property without parts is stored.

    Raises:
        ValueError: The type is unknown; the message names the ones that are known.
    """
    logical, physical = item.logicalType or "", item.physicalType or ""
    if logical not in _TYPES:
        all_types = ", ".join([*_TYPES, *_NESTED])
        raise ValueError(f"logicalType: expected one of {all_types}, got {logical or 'nothing'!r}")
    chosen = (item.logicalTypeOptions or {}).get("format")
    if chosen is not None and (logical, str(chosen)) not in _FORMATS:
        formats = [name for kind, name in _FORMATS if kind == logical]
        raise ValueError(
            f"logicalTypeOptions.format: expected {' or '.join(formats) or 'none'}, got {chosen!r}"
        )
    if logical == "number" and physical.lower().startswith(("decimal", "numeric")):
        decimal = _DECIMAL.fullmatch(physical)
        if decimal is None:
            raise ValueError(f"physicalType: expected a form such as decimal(10,2), got {physical!r}")
        if chosen is not None:
            raise ValueError(f"logicalTypeOptions.format: expected none beside {physical}, got {chosen!r}")
        precision, scale = int(decimal[1]), int(decimal[2])
        if not scale <= precision <= _LARGEST_PRECISION or precision == 0:
            raise ValueError(
                f"physicalType: expected decimal(1..38, 0..precision), got {item.physicalType!r}"
            )
        return DecimalType(precision, scale)
    return _FORMATS.get((logical, str(chosen)), _TYPES[logical])
