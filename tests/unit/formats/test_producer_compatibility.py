"""What producers registered is known to keep a contract, or to break it, and why."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
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

from pipelines.cli.contract import contract as command
from pipelines.contracts.contract import DataContract
from pipelines.contracts.diff import Change
from pipelines.errors import ConfigError
from pipelines.formats.producer_compatibility import producer_changes
from pipelines.registry.wire_format import WriterSchema

STRING, BOOLEAN, DAY, TIMESTAMP = StringType(), BooleanType(), DateType(), TimestampType()
INT, LONG, FLOAT, DOUBLE = IntegerType(), LongType(), FloatType(), DoubleType()
DATE = {"type": "int", "logicalType": "date"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-millis"}
NANOS = {"type": "long", "logicalType": "timestamp-nanos"}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def items(of: Any) -> dict[str, Any]:
    return {"type": "array", "items": of}


def values(of: Any) -> dict[str, Any]:
    return {"type": "map", "values": of}


@dataclass(frozen=True)
class Required:
    kind: DataType


Wanted = DataType | Required


def struct(**fields: Wanted) -> StructType:
    return StructType(
        [
            StructField(name, kind.kind, nullable=False)
            if isinstance(kind, Required)
            else StructField(name, kind)
            for name, kind in fields.items()
        ]
    )


def judged(contract: DataContract, columns: StructType, kind: str, document: Any) -> list[Change]:
    value_format = "avro" if kind == "AVRO" else "json_schema"
    shaped = replace(contract, schema=columns, value_format=value_format)
    return producer_changes(shaped, WriterSchema("1", kind, json.dumps(document)))


UNBOUNDED = "a value may not fit, or is rounded"
OTHER, MAYBE_NOT, LEFT_OUT = "! another type", "! a value may not fit", "! required, but producers may leave"
NOT_SENT, NULLS, IGNORED = "! required, but producers do not send it", "always null", "ignored"
TEXTS, UNSAID = "read only where the text is one", "producers may send anything"

# What a contract asks of the column f, what producers write in it, and what is said of which place: nothing
# where it fits; after an exclamation mark, what breaks producers.
AVRO: list[tuple[Wanted, Any, dict[str, str]]] = [
    *((STRING, kind, {}) for kind in ("string", "int", "bytes", "boolean", MILLIS, items("int"))),
    (STRING, ["null", "string", "int"], {}),
    (Required(STRING), "string", {}),
    (Required(STRING), ["null", "string"], {"f": LEFT_OUT}),
    (Required(STRING), "null", {"f": LEFT_OUT}),
    (STRING, "null", {"f": "producers send only null"}),
    (INT, "int", {}),
    (INT, "long", {"f": MAYBE_NOT}),
    (INT, decimal(9, 0), {}),
    (INT, decimal(10, 0), {"f": MAYBE_NOT}),
    (INT, "double", {"f": OTHER}),
    (INT, "string", {"f": OTHER}),
    (INT, DATE, {"f": OTHER}),
    (Required(INT), ["null", "long"], {"f": f"{LEFT_OUT}; {MAYBE_NOT}"}),
    (LONG, "int", {}),
    (LONG, "long", {}),
    (LONG, NANOS, {}),
    (LONG, decimal(18, 0), {}),
    (LONG, decimal(19, 0), {"f": MAYBE_NOT}),
    (LONG, decimal(18, 1), {"f": OTHER}),
    (LONG, ["int", "string"], {"f": OTHER}),
    *((DOUBLE, kind, {}) for kind in ("int", "long", "float", "double", decimal(38, 9))),
    *((FLOAT, kind, {}) for kind in ("int", "long", "float", decimal(38, 9))),
    (FLOAT, "double", {"f": MAYBE_NOT}),
    (DOUBLE, "string", {"f": OTHER}),
    (DecimalType(10, 2), decimal(10, 2), {}),
    (DecimalType(10, 2), decimal(8, 1), {}),
    (DecimalType(10, 2), decimal(11, 2), {"f": MAYBE_NOT}),
    (DecimalType(10, 2), decimal(11, 3), {"f": "rounded to its places"}),
    (DecimalType(12, 2), "int", {}),
    (DecimalType(11, 2), "int", {"f": MAYBE_NOT}),
    (DecimalType(19, 0), "long", {}),
    (DecimalType(20, 2), "long", {"f": MAYBE_NOT}),
    (DecimalType(20, 2), "double", {"f": MAYBE_NOT}),
    (DecimalType(20, 2), "string", {"f": TEXTS}),
    (DecimalType(20, 2), {**decimal(20, 2), "type": "fixed", "name": "F", "size": 2}, {"f": OTHER}),
    (LONG, ["int", MILLIS], {}),
    (DecimalType(20, 2), "bytes", {"f": OTHER}),
    (TIMESTAMP, MILLIS, {}),
    (TIMESTAMP, LOCAL, {"f": "read as UTC"}),
    (TIMESTAMP, NANOS, {"f": OTHER}),
    (TIMESTAMP, "string", {"f": TEXTS}),
    (TIMESTAMP, DATE, {"f": OTHER}),
    (DAY, DATE, {}),
    (DAY, "string", {"f": TEXTS}),
    (DAY, MILLIS, {"f": OTHER}),
    (BOOLEAN, "boolean", {}),
    (BOOLEAN, "int", {"f": OTHER}),
    (ArrayType(INT), items("int"), {}),
    (ArrayType(INT), items("long"), {"f[]": MAYBE_NOT}),
    (ArrayType(INT), "int", {"f": OTHER}),
    (ArrayType(INT), values("int"), {"f": OTHER}),
    (MapType(STRING, INT), values("string"), {"f{}": OTHER}),
    (MapType(STRING, INT), record("R", a="int", b="string"), {"f.b": OTHER}),
    (MapType(STRING, STRING), record("R", a="int", b=["null", "string"]), {}),
    (struct(a=INT), record("R", a="int"), {}),
    (struct(a=INT), record("R", a="string", b="int"), {"f.a": OTHER, "f.b": IGNORED}),
    (struct(a=INT, b=Required(INT)), record("R", a="int"), {"f.b": NOT_SENT}),
    (struct(a=INT, b=INT), record("R", a="int"), {"f.b": NULLS}),
    (struct(a=Required(INT)), ["null", record("R", a=["null", "int"])], {"f.a": LEFT_OUT}),
    (struct(a=Required(INT)), values("int"), {"f.a": LEFT_OUT}),
    (struct(a=INT), "string", {"f": OTHER}),
    (ArrayType(struct(a=MapType(STRING, INT))), items(record("R", a=values("long"))), {"f[].a{}": MAYBE_NOT}),
]
TEXT, NUMBER = {"type": "string"}, {"type": "number"}
JSON: list[tuple[Wanted, Any, dict[str, str]]] = [
    (STRING, TEXT, {}),
    (STRING, {}, {}),
    (STRING, {"type": "object", "properties": {"a": TEXT}}, {}),
    (INT, {}, {"f": UNSAID}),
    (INT, {"type": "integer"}, {"f": MAYBE_NOT}),
    (INT, {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}, {}),
    (INT, {"type": "integer", "minimum": 0, "maximum": 2**31}, {"f": MAYBE_NOT}),
    (LONG, {"type": "integer"}, {}),
    (LONG, NUMBER, {"f": OTHER}),
    (DOUBLE, NUMBER, {}),
    (DecimalType(10, 2), NUMBER, {"f": UNBOUNDED}),
    (FLOAT, NUMBER, {"f": UNBOUNDED}),
    (DecimalType(20, 2), TEXT, {"f": TEXTS}),
    (DecimalType(20, 2), {"type": "integer"}, {"f": UNBOUNDED}),
    (DecimalType(20, 2), {"type": "integer", "minimum": 0, "exclusiveMaximum": 10**15}, {}),
    (DecimalType(20, 2), {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}, {}),
    (DecimalType(19, 2), {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}, {"f": MAYBE_NOT}),
    (LONG, {"type": "integer", "minimum": 0, "maximum": 10**15}, {}),
    (TIMESTAMP, {**TEXT, "format": "date-time"}, {}),
    (TIMESTAMP, TEXT, {"f": TEXTS}),
    (TIMESTAMP, {"type": "integer"}, {"f": OTHER}),
    (DAY, {**TEXT, "format": "date"}, {}),
    (DAY, {**TEXT, "format": "date-time"}, {"f": OTHER}),
    (BOOLEAN, {"type": ["boolean", "null"]}, {}),
    (ArrayType(INT), {"type": "array"}, {"f[]": UNSAID}),
    (ArrayType(struct(a=STRING)), {"type": "array", "items": {"properties": {"a": TEXT}}}, {}),
    (MapType(STRING, DOUBLE), {"type": "object", "additionalProperties": TEXT}, {"f{}": OTHER}),
    (struct(a=Required(INT)), {"properties": {"a": {}}}, {"f.a": f"{LEFT_OUT}; {UNSAID}"}),
]


def check(
    contract: DataContract, columns: StructType, kind: str, document: Any, expected: dict[str, str]
) -> None:
    said: dict[str, list[str]] = {}
    for change in judged(contract, columns, kind, document):
        assert change.breaks in ((), ("producers",))
        mark = "! " if change.is_breaking else ""
        said.setdefault(change.place.removeprefix("schema.properties."), []).append(mark + change.what)
    assert said.keys() == expected.keys()
    for place, words in expected.items():
        for part, whole in zip(words.split("; "), said[place], strict=True):
            assert part.startswith("!") == whole.startswith("!")
            assert part.removeprefix("! ") in whole


@pytest.mark.parametrize(("wanted", "sent", "expected"), AVRO, ids=str)
def test_avro_is_judged_as_it_is_decoded(
    contract: DataContract, wanted: Wanted, sent: Any, expected: dict[str, str]
) -> None:
    check(contract, struct(f=wanted), "AVRO", record("Whole", f=sent), expected)


@pytest.mark.parametrize(("wanted", "sent", "expected"), JSON, ids=str)
def test_json_is_judged_as_it_is_decoded(
    contract: DataContract, wanted: Wanted, sent: Any, expected: dict[str, str]
) -> None:
    check(contract, struct(f=wanted), "JSON", {"type": "object", "properties": {"f": sent}}, expected)


def test_elements_that_may_be_null_break_a_contract_that_requires_them(nested: DataContract) -> None:
    line = record("Line", sku="string", count="int")
    whole = record("Whole", order=record("Order", id="string"), placed_at=MILLIS, items=items(["null", line]))
    found = producer_changes(
        replace(nested, value_format="avro"), WriterSchema("1", "AVRO", json.dumps(whole))
    )
    assert [(c.place, c.what) for c in found if c.is_breaking] == [
        ("schema.properties.items[]", "required, but producers may leave it out or send null")
    ]
    assert [c.place.removeprefix("schema.properties.") for c in found if not c.is_breaking] == [
        "order.placed_on",
        "total",
        "tags",
        "seen",
    ]


def test_names_are_matched_with_upper_and_lower_case(contract: DataContract) -> None:
    document = record("Whole", Carrier="string")
    check(
        contract,
        struct(carrier=Required(STRING)),
        "AVRO",
        document,
        {"carrier": NOT_SENT, "Carrier": IGNORED},
    )


def test_a_schema_that_promises_nothing_breaks_what_is_required(contract: DataContract) -> None:
    check(
        contract, struct(a=Required(STRING), b=INT), "JSON", {"type": "object"}, {"a": NOT_SENT, "b": NULLS}
    )


def test_a_schema_of_another_kind_breaks_all(contract: DataContract) -> None:
    avro = replace(contract, value_format="avro")
    (found,) = producer_changes(avro, WriterSchema("1", "PROTOBUF", 'syntax = "proto3";'))
    assert (found.place, found.breaks) == ("schema.customProperties.valueFormat", ("producers",))
    assert "kind AVRO, producers write PROTOBUF" in found.what


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--against", "registry"], "--against registry needs --pipeline NAME"),
        (["--against", "HEAD", "--pipeline", "flights"], "--pipeline: allowed only with --against registry"),
        (
            ["--against", "./registry", "--env", "prod", "--set", "kafka.topic=a"],
            "--env, --set: allowed only with",
        ),
    ],
)
def test_the_registry_is_compared_with_for_a_pipeline_only(words: list[str], said: str) -> None:
    refused = CliRunner().invoke(command, ["check", *words])
    assert refused.exit_code == 2
    assert said in refused.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "flights.odcs.yaml: valueFormat json: values have no schema id"),
        (
            ["data_contracts/weather.odcs.yaml"],
            "weather.odcs.yaml: expected no file, or .*flights",
        ),
    ],
)
def test_a_pipeline_has_one_contract_and_plain_json_no_registry(words: list[str], said: str) -> None:
    refused = CliRunner().invoke(command, ["check", *words, "--against", "registry", "--pipeline", "flights"])
    assert isinstance(refused.exception, ConfigError)
    with pytest.raises(ConfigError, match=said):
        raise refused.exception


def test_a_file_called_registry_is_named_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path("data_contracts/flights.odcs.yaml").read_text()
    monkeypatch.chdir(tmp_path)
    for name in ("registry", "new.odcs.yaml"):
        Path(name).write_text(text)
    done = CliRunner().invoke(command, ["check", "new.odcs.yaml", "--against", "./registry"])
    assert (done.exit_code, "no relevant change" in done.output) == (0, True)
