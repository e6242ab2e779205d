"""The column that decodes JSON by a contract, in one pass of the class `oncelake.decode.Decoder` in the JVM.

It is one call in a plan, whatever the contract has: what a record must be is handed to it as text.
"""

import json
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pipelines.contracts.contract import DataContract
from pipelines.contracts.event_days import FIRST_DAY
from pipelines.formats.registered_formats import format_of
from pipelines.formats.value_format import DOCUMENT
from pipelines.records.send_time import sent_by
from pipelines.schema_paths import optional

VALUES: Final = "values"
FAULT: Final = "error"
ERROR_PARTS: Final = ("reason", "column", "found")

_SHOWN: Final = {None: "whole", "hash": "hash", "drop": "nothing"}


def decoded_column(contract: DataContract, max_future: timedelta) -> Column:
    """Return the column that decodes, over `_document binary`, `_kafka_timestamp` and `_ingested_at`.

    Args:
        contract: What the records ought to be.
        max_future: How far an event time may lie after the record was sent.

    Returns:
        `struct<values struct<the contract's columns>, error struct<reason string, column string,
        found string>>`. A document that is no JSON object has no values; an event has no error.
    """
    error = StructType([StructField(part, StringType()) for part in ERROR_PARTS])
    decoded = StructType([StructField(VALUES, optional(contract.schema)), StructField(FAULT, error)])
    # The decoder takes a number, which cannot be null.
    sent = F.coalesce(F.unix_micros(sent_by()), F.lit(0))
    jvm: Any = SparkContext._jvm
    column = jvm.oncelake.decode.DecodedColumn.of(
        contract_text(contract, max_future), decoded.json(), F.col(DOCUMENT)._jc, sent._jc
    )
    return Column(column)


def contract_text(contract: DataContract, max_future: timedelta) -> str:
    """Return what a contract asks of a record, as `oncelake.decode.Spec` reads it."""
    first = datetime.combine(FIRST_DAY, time.min, contract.zone).astimezone(UTC)
    return json.dumps(
        {
            "fields": _fields(contract, contract.schema, "", within=False),
            "event_time": contract.event_time,
            "max_future": max_future // timedelta(microseconds=1),
            "first": int(first.timestamp()) * 1_000_000,
            "sends_shortest_doubles": format_of(contract).has_shortest_doubles,
            "rules": [
                {"column": rule.column, "kind": rule.kind, "value": rule.value} for rule in contract.row_rules
            ],
        }
    )


def _fields(contract: DataContract, schema: StructType, prefix: str, *, within: bool) -> list[dict[str, Any]]:
    parts = ((f, _part(contract, f.dataType, f"{prefix}{f.name}", within=within)) for f in schema)
    return [{"name": field.name, "required": not field.nullable, **part} for field, part in parts]


def _part(contract: DataContract, kind: DataType, path: str, *, within: bool) -> dict[str, Any]:
    """Return a part of the contract.

    Args:
        contract: Names the key, and says what may be shown.
        kind: The part's type.
        path: Where it is.
        within: Whether it lies in an array or a map.
    """
    part: dict[str, Any] = {
        "type": kind.typeName(),
        "path": path,
        "key": contract.key.index(path) if path in contract.key else -1,
        "shown": _SHOWN[contract.treatment(path)],
        "in_collection": within,
    }
    match kind:
        case StructType():
            part["fields"] = _fields(contract, kind, f"{path}.", within=within)
        case ArrayType():
            item = _part(contract, kind.elementType, f"{path}[]", within=True)
            part["item"] = {"required": not kind.containsNull, **item}
        case MapType():
            item = _part(contract, kind.valueType, f"{path}{{}}", within=True)
            part["item"] = {"required": not kind.valueContainsNull, **item}
        case DecimalType():
            part |= {"precision": kind.precision, "scale": kind.scale}
    return part
