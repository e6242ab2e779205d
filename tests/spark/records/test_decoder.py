"""The decoder comes to what an independent one in plain Python comes to, whatever a document is."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
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

from pipelines.contracts.contract import DataContract
from pipelines.contracts.rules import RowRule
from pipelines.records.decode import decode
from tests.support.decoder_oracle import Number, Oracle
from tests.support.json_documents import Documents
from tests.support.lakes import EPOCH, Lake, Record

SINGLE = [
    StructField("text", StringType()),
    StructField("flag", BooleanType()),
    StructField("count", IntegerType()),
    StructField("number", LongType(), nullable=False),
    StructField("double", DoubleType()),
    StructField("float", FloatType()),
    StructField("money", DecimalType(8, 3)),
    StructField("day", DateType()),
]
ITEM = StructType([StructField("sku", StringType(), nullable=False), StructField("n", IntegerType())])
SCHEMA = StructType(
    [
        *SINGLE,
        StructField("at", TimestampType(), nullable=False),
        StructField("inner", StructType([*SINGLE, StructField("id", StringType(), nullable=False)])),
        StructField("items", ArrayType(ITEM, containsNull=False)),
        StructField("tags", MapType(StringType(), LongType())),
        StructField("seen", ArrayType(TimestampType())),
    ]
)
RULES = (
    RowRule("number", "maximum", 800),
    RowRule("count", "values", tuple(range(850))),
    RowRule("inner.text", "max_length", 5),
    RowRule("text", "pattern", "^[^Z]*$"),
    RowRule("inner.money", "minimum", 0),
    RowRule("double", "maximum", 899.5),
)
KEYS = [("number",), ("inner.id", "money", "double", "float", "at"), ("text", "inner.double", "inner.money")]
LATEST = EPOCH + timedelta(days=1)


SINGLE_AS_HELD: dict[type[DataType], Callable[[Any], Any]] = {
    TimestampType: lambda value: datetime.fromisoformat(value).replace(tzinfo=UTC),
    DateType: date.fromisoformat,
    DecimalType: Decimal,
    DoubleType: float,
    FloatType: lambda value: float(np.float32(value)),
    IntegerType: int,
    LongType: int,
}


def as_held(value: Any, kind: DataType) -> Any:
    """A value of Spark's JSON, as the oracle has it."""
    match kind:
        case _ if value is None:
            return None
        case StructType():
            return {f.name: as_held(value[f.name], f.dataType) for f in kind}
        case ArrayType():
            return [as_held(each, kind.elementType) for each in value]
        case MapType():
            return {name: as_held(each, kind.valueType) for name, each in value.items()}
        case _:
            return SINGLE_AS_HELD.get(type(kind), lambda same: same)(value)


def comparable(fault: tuple[str | None, ...]) -> tuple[Any, ...]:
    """A fault; a double in it as a number, since Java and Python write some with other digits."""
    reason, column, found = fault
    is_double = (reason, column) == ("rule_failed", "double") and found is not None
    return reason, column, float(found or 0) if is_double else found


def decoded(lake: Lake, documents: list[bytes]) -> list[tuple[Any, tuple[str | None, ...]]]:
    """The values of each document, and the reason, column and value of its fault."""
    rows = decode(lake.envelopes([Record(each) for each in documents]), lake.contract, timedelta(days=1))
    form = "map('timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS', 'ignoreNullFields', 'false')"
    columns = ", ".join(f"`{name}`" for name in lake.contract.columns)
    read = rows.selectExpr("_offset", f"to_json(struct({columns}), {form}) AS v", "_error.*").orderBy(
        "_offset"
    )
    return [
        (
            json.loads(row["v"], parse_int=Number, parse_float=Number),
            (row["reason"], row["column"], row["found"]),
        )
        for row in read.toArrow().to_pylist()
    ]


def judged(
    lake: Lake, oracle: Oracle, documents: list[bytes]
) -> tuple[list[tuple[Any, ...]], set[str | None]]:
    """The documents on which decoder and oracle differ, and the reasons that occurred."""
    wrong, reasons = [], set()
    for document, (values, fault) in zip(documents, decoded(lake, documents), strict=True):
        expected, first = oracle.judge(document)
        reasons.add(first[0])
        held = None if expected is None else as_held(values, SCHEMA)
        # Values of a broken record have no meaning.
        if comparable(fault) != comparable(first) or (first[0] is None and held != expected):
            wrong.append((document, fault, first, held, expected))
    return wrong, reasons


def changed(contract: DataContract, key: tuple[str, ...]) -> DataContract:
    return replace(
        contract, schema=SCHEMA, key=key, event_time="at", row_rules=RULES, day_rules=(), conditions=()
    )


@pytest.mark.parametrize(
    ("key", "number"),
    [
        *((key, 4_000) for key in KEYS),
        *(pytest.param(key, 60_000, marks=pytest.mark.thorough) for key in KEYS),
    ],
)
def test_any_document_is_decoded_as_plain_python_decodes_it(
    make_lake: Callable[..., Lake], contract: DataContract, key: tuple[str, ...], number: int
) -> None:
    asked = changed(contract, key)
    source = Documents(SCHEMA, seed=len(key))
    documents = [source.one() for _ in range(number)]
    wrong, faults = judged(make_lake(contract=asked), Oracle(asked, LATEST), documents)
    assert not wrong, "\n".join(map(str, wrong[:4]))
    reasons = {"malformed_json", "not_an_object", "wrong_type", "missing_field", "rule_failed"}
    assert faults == {None, *reasons, "event_time_future", "event_time_past"}


def test_a_number_that_is_too_large_has_no_value_beside_any_other_fault(
    make_lake: Callable[..., Lake], contract: DataContract
) -> None:
    """Infinity would be one key of all of them, where `explain` shows what can be read of a broken record."""
    lake = make_lake(contract=changed(contract, KEYS[1]))
    documents = [
        b'{"double": 1e999, "float": 1e39}',
        b'{"double": 1e999, "float": 1e39, "flag": "yes"}',
        b'{"double": -1e999, "float": -1e39, "text": "Z"}',
    ]
    for values, (reason, column, _) in decoded(lake, documents):
        assert (values["double"], values["float"]) == (None, None)
        assert (reason, column) in {("wrong_type", "double"), ("wrong_type", "flag")}


@pytest.mark.long
@pytest.mark.timeout(2 * 3600)
@pytest.mark.parametrize("seed", range(100, 120))
def test_ten_million_documents_are_decoded_as_plain_python_decodes_them(
    make_lake: Callable[..., Lake], contract: DataContract, seed: int
) -> None:
    """Half a million documents of each seed, so that a run that is ended has shown what it has done."""
    asked = changed(contract, KEYS[seed % len(KEYS)])
    lake, oracle, source = make_lake(contract=asked), Oracle(asked, LATEST), Documents(SCHEMA, seed)
    for _ in range(10):
        wrong, _ = judged(lake, oracle, [source.one() for _ in range(50_000)])
        assert not wrong, "\n".join(map(str, wrong[:4]))
