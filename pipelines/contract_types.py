"""Types: a property of the contract standard -> the Spark type of its column."""

import re
from typing import Final

from open_data_contract_standard.model import SchemaProperty
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
)

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


def spark_type(item: SchemaProperty) -> DataType:
    """The Spark type in which a property is stored.

    Raises:
        ValueError: the type is unknown; the message names the ones that are known.
    """
    logical, physical = item.logicalType or "", item.physicalType or ""
    if logical not in _TYPES:
        raise ValueError(f"logicalType: expected one of {', '.join(_TYPES)}, got {logical or 'nothing'!r}")
    chosen = (item.logicalTypeOptions or {}).get("format")
    if chosen is not None and (logical, chosen) not in _FORMATS:
        known = [name for kind, name in _FORMATS if kind == logical]
        raise ValueError(
            f"logicalTypeOptions.format: expected {' or '.join(known) or 'none'}, got {chosen!r}"
        )
    if logical == "number" and physical.lower().startswith(("decimal", "numeric")):
        decimal = _DECIMAL.fullmatch(physical)
        if decimal is None:
            raise ValueError(f"physicalType: expected a form such as decimal(10,2), got {physical!r}")
        precision, scale = int(decimal[1]), int(decimal[2])
        if not scale <= precision <= _LARGEST_PRECISION or precision == 0:
            raise ValueError(
                f"physicalType: expected decimal(1..38, 0..precision), got {item.physicalType!r}"
            )
        return DecimalType(precision, scale)
    return _FORMATS.get((logical, str(chosen)), _TYPES[logical])
