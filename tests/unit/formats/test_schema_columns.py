"""A schema of a registry stands for the columns that decoding makes of its records."""

import json
from typing import Any

import pytest
from pyspark.sql.types import StructType

from pipelines.errors import ContractError
from pipelines.formats.schema_columns import columns_of
from pipelines.registry.wire_format import WriterSchema

MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}
POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}


def read(document: Any, kind: str) -> StructType:
    return columns_of(WriterSchema("7", kind, json.dumps(document)))


def avro(*fields: Any) -> dict[str, Any]:
    listed = [{"name": f"f{position}", "type": field} for position, field in enumerate(fields)]
    return {"type": "record", "name": "Whole", "namespace": "shop", "fields": listed}


def words(schema: StructType) -> list[str]:
    return [f.dataType.simpleString() + ("" if f.nullable else " required") for f in schema]


AVRO: list[tuple[Any, str]] = [
    ("boolean", "boolean required"),
    ("int", "int required"),
    ("long", "bigint required"),
    ("float", "float required"),
    ({"type": "double"}, "double required"),
    ("bytes", "binary required"),
    ({"type": "string", "avro.java.string": "String"}, "string required"),
    ("null", "void"),
    (["null", "string"], "string"),
    (["string", "null"], "string"),
    ({"type": ["null", "long"]}, "bigint"),
    (["long"], "bigint required"),
    (["int", "long"], "bigint required"),
    (["null", "double", "float"], "double"),
    (["int", {"type": "long", "logicalType": "timestamp-millis"}], "bigint required"),
    (["null", {"type": "int", "logicalType": "date"}, "long"], "bigint"),
    ({**MONEY, "type": "fixed", "name": "F", "size": 2}, "binary required"),
    ({**MONEY, "type": "fixed", "name": "F", "size": 2, "precision": 4}, "decimal(4,2) required"),
    (["int", "string"], "struct<member0:int,member1:string> required"),
    (["null", "string", "boolean"], "struct<member0:string,member1:boolean>"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, "string required"),
    ({"type": "fixed", "name": "F", "size": 4}, "binary required"),
    ({"type": "fixed", "name": "F", "size": 9, **{**MONEY, "type": "fixed"}}, "decimal(20,2) required"),
    (["null", MONEY], "decimal(20,2)"),
    ({**MONEY, "scale": 21}, "binary required"),
    ({"type": "int", "logicalType": "date"}, "date required"),
    ({"type": "int", "logicalType": "time-millis"}, "int required"),
    ({"type": "long", "logicalType": "time-micros"}, "bigint required"),
    ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp required"),
    ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp required"),
    ({"type": "long", "logicalType": "timestamp-nanos"}, "bigint required"),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp_ntz required"),
    ({"type": "string", "logicalType": "uuid"}, "string required"),
    ({"type": "array", "items": ["null", "int"]}, "array<int> required"),
    ({"type": "map", "values": POINT}, "map<string,struct<x:int>> required"),
]


@pytest.mark.parametrize(("field", "expected"), AVRO, ids=json.dumps)
def test_avro_becomes_what_spark_makes_of_it(field: Any, expected: str) -> None:
    assert words(read(avro(field), "AVRO")) == [expected]


def test_a_named_type_of_avro_is_known_by_its_short_and_by_its_full_name() -> None:
    place = {"type": "enum", "name": "other.Place", "symbols": ["A"]}
    found = read(avro(POINT, "Point", ["null", "shop.Point"], place, "other.Place"), "AVRO")
    assert words(found) == ["struct<x:int> required"] * 2 + ["struct<x:int>"] + ["string required"] * 2


def test_a_type_without_namespace_is_known_within_the_one_that_holds_it() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "point", "type": POINT}]}
    found = read({"type": "record", "name": "Whole", "fields": [{"name": "inner", "type": inner}]}, "AVRO")
    assert words(found) == ["struct<point:struct<x:int>> required"]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (avro(["null", "Whole"]), "holds itself"),
        (avro("Nowhere"), "Nowhere is not defined"),
        (avro({**MONEY, "precision": 40}), "40 digits"),
        (avro({"type": "array"}), "array is not defined"),
        (avro(5), "expected a type of Avro"),
        ({"type": "record", "name": "R", "fields": [{"name": "f"}]}, "a part lacks 'type'"),
        ({"type": "record", "name": "R"}, "fields"),
        ("string", "expected a record"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_avro_that_spark_cannot_read_by_is_refused(document: Any, said: str) -> None:
    with pytest.raises(ContractError, match=f"schema 7 of the registry: .*{said}"):
        read(document, "AVRO")


JSON: list[tuple[Any, str]] = [
    ({"type": "string"}, "string"),
    ({"type": ["string", "null"]}, "string"),
    ({"type": "integer"}, "bigint"),
    ({"type": "integer", "minimum": 0, "maximum": 9}, "int"),
    ({"type": "integer", "minimum": 0}, "bigint"),
    ({"type": "number"}, "double"),
    ({"type": "boolean"}, "boolean"),
    ({"type": "null"}, "void"),
    ({"type": "string", "format": "date-time"}, "timestamp"),
    ({"type": "string", "format": "date"}, "date"),
    ({"type": "string", "format": "email"}, "string"),
    ({"type": "array", "items": {"type": ["integer", "null"]}}, "array<bigint>"),
    ({"type": "array"}, "array<variant>"),
    ({"properties": {"a": {"type": "number"}}}, "struct<a:double>"),
    ({"type": "object", "additionalProperties": {"type": "string"}}, "map<string,string>"),
    ({"type": "object"}, "map<string,variant>"),
    ({"type": ["string", "integer"]}, "variant"),
    ({"enum": ["a", 1]}, "variant"),
    (True, "variant"),
    ({"$ref": "#/$defs/code"}, "string"),
    ({"$ref": "#/definitions/a~1b"}, "boolean"),
    ({"$ref": "#/$defs/nowhere"}, "variant"),
    ({"$ref": "other.json"}, "variant"),
    ({"$ref": "#/$defs/tree"}, "struct<children:array<variant>>"),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "bigint"),
    ({"allOf": [{"$ref": "#/$defs/code"}]}, "string"),
    ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, "variant"),
    (
        {"type": "object", "properties": {"a": {}}, "allOf": [{"properties": {"b": {"type": "number"}}}]},
        "struct<a:variant,b:double>",
    ),
    ({"properties": {"a": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, "struct<a:variant>"),
    (
        {
            "oneOf": [
                {"properties": {"a": {"type": kind}, "b": {"type": kind}}} for kind in ("string", "number")
            ]
        },
        "struct<a:variant,b:variant>",
    ),
    ({"$ref": "#/%24defs/code"}, "string"),
    ({"$ref": "#/tuple/0"}, "boolean"),
    ({"$ref": "#/tuple/1"}, "variant"),
    ({"$ref": "#anchor"}, "double"),
    ({"$ref": "#older"}, "date"),
    ({"$ref": "#nowhere"}, "variant"),
    ({"$ref": "https://example.org/whole#/$defs/code"}, "string"),
    ({"type": "integer", "minimum": "0", "maximum": "9"}, "bigint"),
    ({"type": "object", "required": True, "properties": {"a": {"type": "string"}}}, "struct<a:string>"),
    ({"type": "string", "anyOf": [{"maxLength": 2}, {"minLength": 4}]}, "string"),
]


@pytest.mark.parametrize(("field", "expected"), JSON, ids=json.dumps)
def test_a_json_schema_becomes_what_it_says_of_types(field: Any, expected: str) -> None:
    children = {"type": "array", "items": {"$ref": "#/$defs/tree"}}
    tree = {"type": "object", "properties": {"children": children}}
    document = {
        "$id": "https://example.org/whole",
        "type": "object",
        "properties": {"f": field},
        "$defs": {
            "code": {"type": "string"},
            "tree": tree,
            "named": {"$anchor": "anchor", "type": "number"},
            "older": {"$id": "#older", "type": "string", "format": "date"},
        },
        "tuple": [{"type": "boolean"}],
        "definitions": {"a/b": {"type": "boolean"}},
    }
    assert words(read(document, "JSON")) == [expected]


@pytest.mark.parametrize(
    ("field", "is_sure"),
    [
        ({"type": "string"}, True),
        ({"type": ["null", "string"]}, False),
        ({"type": ["object", "null"], "properties": {"a": {}}}, False),
        ({"type": ["object", "null"], "properties": {"a": {}}, "anyOf": [{"required": ["a"]}]}, False),
        ({"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["a"]}]}, True),
        ({"type": "null"}, False),
        ({}, False),
        (True, False),
        ({"enum": ["a", None]}, False),
        ({"enum": ["a", 1]}, True),
        ({"type": ["string", "null"], "enum": ["a"]}, True),
        ({"const": None}, False),
        ({"const": "a"}, True),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}, False),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, True),
        ({"oneOf": [{"const": "a"}, {"const": None}]}, False),
        ({"oneOf": [{"type": ["null", "string"]}, {"type": "null"}]}, False),
        ({"allOf": [{"type": ["null", "string"]}, {"type": "string"}]}, True),
        ({"not": {"type": "null"}}, True),
        ({"$ref": "other.json"}, False),
        ({"$ref": "#/$defs/code"}, True),
    ],
    ids=json.dumps,
)
def test_of_json_only_what_is_required_and_never_null_is_always_there(field: Any, is_sure: bool) -> None:
    document = {
        "type": "object",
        "properties": {"f": field, "g": field},
        "$defs": {"code": {"type": "string"}},
    }
    found = read({**document, "required": ["f"]}, "JSON")
    assert [part.nullable for part in found] == [not is_sure, True]


def test_what_is_required_may_stand_apart_from_what_it_is() -> None:
    text = {"type": "string"}
    ones = {"properties": {"a": text, "b": text}, "required": ["a"]}
    document = {
        "allOf": [{"$ref": "#/$defs/ones"}, {"required": ["b"]}],
        "anyOf": [{"properties": {"c": text, "d": text}, "required": ["c", "d"]}, {"required": ["e"]}],
        "required": ["c"],
        "$defs": {"ones": ones},
    }
    found = read(document, "JSON")
    assert {part.name: part.nullable for part in found} == {"a": False, "b": False, "c": True, "d": True}


def test_what_is_no_schema_is_shown() -> None:
    with pytest.raises(
        ContractError, match="schema 7 of the registry: expected a schema in JSON, got '<html>'"
    ):
        columns_of(WriterSchema("7", "JSON", "<html>"))


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_what_is_nested_without_end_is_refused(kind: str) -> None:
    text = '{"type":"array","items":' * 5000 + '"string"' + "}" * 5000
    with pytest.raises(ContractError, match="nested too deeply"):
        columns_of(WriterSchema("7", kind, text))


def test_a_json_schema_that_names_no_properties_has_no_columns() -> None:
    assert read({"type": "object"}, "JSON") == StructType([])


@pytest.mark.parametrize("document", [{"type": "array"}, {}, {"oneOf": [{}, {}]}, {"type": "string"}])
def test_a_json_schema_of_no_object_is_refused(document: Any) -> None:
    with pytest.raises(ContractError, match="expected a record, or an object with properties"):
        read(document, "JSON")


@pytest.mark.parametrize(("size", "precision"), [(2**31 - 1, 10), (4, 10**30), (4, 10)])
def test_a_meaning_of_any_size_is_judged_at_once(size: int, precision: int) -> None:
    fixed = {"type": "fixed", "name": "M", "size": size, "logicalType": "decimal", "precision": precision}
    assert words(read(avro(fixed), "AVRO")) == [
        f"decimal({precision},0) required" if precision < size else "binary required"
    ]


def test_a_field_without_a_name_is_refused_in_words() -> None:
    with pytest.raises(ContractError, match="no decoding can be made of it"):
        read({"type": "record", "name": "R", "fields": [{"name": 7, "type": "int"}]}, "AVRO")
