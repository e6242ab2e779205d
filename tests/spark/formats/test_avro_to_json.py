"""Avro that Spark would stop at, or read as another value, is read as it was meant or put aside."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pipelines.contracts.contract import DataContract
from pipelines.formats.avro import Avro
from pipelines.records.decode import decode
from pipelines.registry.confluent import CONFLUENT
from pipelines.registry.wire_format import Writers, WriterSchema
from tests.support.avro import FIELDS, departure, encoded, framed, record
from tests.support.lakes import Lake

EXTRA: dict[str, DataType] = {
    "text": StringType(),
    "texts": ArrayType(StringType()),
    "number": LongType(),
    "money": DecimalType(20, 2),
    "tags": MapType(StringType(), StringType()),
    "point": StructType([StructField("x", LongType()), StructField("y", StringType())]),
}
MICROS = {"type": "long", "logicalType": "time-micros"}
MILLIS = {"type": "int", "logicalType": "time-millis"}
POINT = record([{"name": "x", "type": "long"}], "Point")
NAMED = record([{"name": "y", "type": ["string", "long"]}], "Named")
OF_BYTES = ["null", record([{"name": "y", "type": ["bytes", "long"]}], "Named"), POINT]
NO_TEXTS = (b"\xff", b"\xfe", b"\xed\xa0\x80", b"\xef\xbf\xbd\xff")


@pytest.fixture
def lake(make_lake: Callable[..., Lake], contract: DataContract) -> Lake:
    schema = StructType([*contract.schema, *(StructField(name, kind) for name, kind in EXTRA.items())])
    wide = replace(contract, value_format="avro", schema=schema, day_rules=(), row_rules=())
    return make_lake(contract=wide)


def verdicts(lake: Lake, cases: list[tuple[Any, bytes, str]]) -> list[Any]:
    """What becomes of bytes by a schema: the value of an expression, or reason and column."""
    schemas = {
        str(n): WriterSchema(str(n), "AVRO", json.dumps(schema)) for n, (schema, *_) in enumerate(cases)
    }
    for writer in schemas.values():
        Avro().require_readable(lake.spark, writer)
    values = [framed(n, payload) for n, (_, payload, _) in enumerate(cases)]
    writers = Writers(schemas, CONFLUENT)
    decoded = decode(lake.envelopes(values), lake.contract, timedelta(days=1), writers)
    shown = " ".join(f"WHEN {n} THEN CAST({column} AS STRING)" for n, (*_, column) in enumerate(cases))
    found = decoded.selectExpr("_offset", "_valid", f"CASE _offset {shown} END AS v", "_error.*")
    return [
        row["v"] if row["_valid"] else (row["reason"], row["column"])
        for row in found.orderBy("_offset").collect()
    ]


def array(items: Any) -> Any:
    return {"type": "array", "items": items}


def a_map(values: Any) -> Any:
    return {"type": "map", "values": values}


def case(column: str, kind: Any, value: Any, written: Any = None) -> tuple[Any, bytes, str]:
    """A departure with one field more, of a type, written as another type that has the same bytes."""
    name = column.partition(".")[0].partition("[")[0]
    schema = record([*FIELDS, {"name": name, "type": kind}])
    as_written = record([*FIELDS, {"name": name, "type": written or kind}])
    return schema, encoded(as_written, departure(**{name: value})), column


def test_no_value_stops_a_job_and_a_union_is_the_member_that_is_set(lake: Lake) -> None:
    plain = record(FIELDS)
    whole = encoded(plain, departure())
    either = [
        "null",
        "string",
        "long",
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    ]
    both = record([*FIELDS, {"name": "text", "type": "string"}, {"name": "Text", "type": "string"}])
    all_null = record([{"name": "tailnum", "type": ["null", "string"]}])
    cases: list[tuple[tuple[Any, bytes, str], Any]] = [
        # Times of day that no day has: Spark would end the query.
        (case("number", MICROS, -5, "long"), "-5"),
        (case("text", MICROS, 86_400_000_000, "long"), "86400000000"),
        (case("number", ["null", MILLIS], -1, ["null", "int"]), "-1"),
        (case("texts[0]", array(MICROS), [-5], array("long")), "-5"),
        ((*case("elsewhere", MICROS, -5, "long")[:2], "carrier"), "UA"),
        # A union is the member that is set.
        (case("text", either, "a"), "a"),
        (case("text", either, None), None),
        (case("text", either, 5), "5"),
        (case("money", either, Decimal("1.50")), "1.50"),
        (case("number", either, 5), "5"),
        (case("number", either, "a"), ("wrong_type", "number")),
        (case("text", ["int", {"type": "fixed", "name": "F", "size": 1}], b"\xff"), "/w=="),
        (case("texts[1]", array(["string", "long"]), ["a", 2]), "2"),
        (case("point.x", ["null", NAMED, POINT], ("nyc.Point", {"x": 3})), "3"),
        (case("point.y", ["null", NAMED, POINT], ("nyc.Named", {"y": 3})), "3"),
        (case("text", ["double", "string"], float("nan")), "NaN"),
        # Fields that differ only in case.
        ((both, encoded(both, departure(text="low", Text="high")), "text"), "low"),
        # A value that is not a record at its root, or nothing.
        ((["null", plain], encoded(["null", plain], departure()), "carrier"), "UA"),
        ((["null", plain], b"\x00", "carrier"), ("not_an_object", None)),
        (("string", encoded("string", "x"), "carrier"), ("not_an_object", None)),
        ((all_null, encoded(all_null, {"tailnum": None}), "carrier"), ("missing_field", "carrier")),
        # Bytes that are left, or missing.
        ((plain, whole + b"\x00", "carrier"), ("undecodable", None)),
        ((plain, whole + b"a mark of as many bytes as it may be", "carrier"), ("undecodable", None)),
        ((plain, whole[:-1], "carrier"), ("undecodable", None)),
        ((plain, b"", "carrier"), ("undecodable", None)),
        # Texts that are not UTF-8, which would all become the same.
        *((case("text", "string", text, "bytes"), ("undecodable", None)) for text in NO_TEXTS),
        (case("texts[0]", array("string"), [b"\xff"], array("bytes")), ("undecodable", None)),
        (case("tags", a_map("string"), {"k": b"\xff"}, a_map("bytes")), ("undecodable", None)),
        (
            case("point.y", ["null", NAMED, POINT], ("nyc.Named", {"y": b"\xff"}), OF_BYTES),
            ("undecodable", None),
        ),
        (case("text", "string", "\ufffd"), "\ufffd"),
    ]
    assert verdicts(lake, [sent for sent, _ in cases]) == [expected for _, expected in cases]
