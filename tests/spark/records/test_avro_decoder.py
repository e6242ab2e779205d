"""Avro becomes the JSON that fastavro and plain Python make of it, and broken bytes become nothing else."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from pipelines.formats.avro import Avro
from pipelines.formats.value_format import DOCUMENT
from pipelines.registry.confluent import CONFLUENT
from pipelines.registry.wire_format import Writers, WriterSchema
from tests.support.avro_documents import AvroDocuments, Undecided, as_document, in_range, read, written


@dataclass(frozen=True)
class Sent:
    """A payload, and the schema that its header names."""

    schema: dict[str, Any]
    number: int
    payload: bytes


SINGLE_MAX = float(np.finfo(np.float32).max)


def payloads(documents: AvroDocuments, schemas: int, of_each: int) -> Iterator[Sent]:
    """Values of some schemas, half of them with broken bytes."""
    for number in range(1, schemas + 1):
        schema = documents.schema()
        for position in range(of_each):
            whole = written(schema, documents.value(schema))
            yield Sent(schema, number, documents.broken(whole) if position % 2 else whole)


def made_of(spark: SparkSession, sent: list[Sent]) -> list[str | None]:
    """The JSON that is made of each; None where the bytes are no value."""
    schemas = {str(s.number): WriterSchema(str(s.number), "AVRO", json.dumps(s.schema)) for s in sent}
    writers = Writers(schemas, CONFLUENT)
    for writer in schemas.values():
        Avro().require_readable(spark, writer)
    rows = [(at, bytearray(CONFLUENT.header(str(s.number)) + s.payload)) for at, s in enumerate(sent)]
    values = spark.createDataFrame(rows, "at int, _value binary")
    faults = " ".join(
        f"WHEN {fault.condition} THEN '{fault.reason}'" for fault in Avro().document_faults(writers)
    )
    read_rows = (
        Avro()
        .with_document(values, writers)
        .selectExpr("at", f"CASE {faults} END AS reason", f"CAST({DOCUMENT} AS STRING) AS document")
    )
    found = {row["at"]: row for row in read_rows.toArrow().to_pylist()}
    assert {row["reason"] for row in found.values()} <= {None, "undecodable"}
    return [None if found[at]["reason"] else found[at]["document"] for at in range(len(sent))]


def is_same(found: Any, expected: Any) -> bool:
    """Whether two documents are the same; a number is one of 32 or of 64 bits."""
    match found, expected:
        case dict(), dict():
            inner = {name: value for name, value in found.items() if value is not None}
            return inner.keys() == expected.keys() and all(is_same(inner[k], expected[k]) for k in inner)
        case list(), list():
            return len(found) == len(expected) and all(map(is_same, found, expected))
        case (int() | float(), float()) | (float(), int()):
            is_single = abs(expected) <= SINGLE_MAX and bool(np.float32(found) == np.float32(expected))
            return math.isclose(found, expected, rel_tol=1e-14) or is_single
        case str(), datetime():
            return datetime.fromisoformat(found) == expected
        case _:
            return type(found) is type(expected) and bool(found == expected)


def fault_of(sent: Sent, document: str | None) -> str | None:
    """What is wrong with what was made of a payload; None if nothing is."""
    try:
        value = read(sent.schema, sent.payload)
    except ValueError as error:
        return None if document is None else f"made {document!r} of what fastavro refuses: {error}"
    # Bytes may stand for a value without being those that anybody writes; whether they do, readers differ.
    is_canonical = in_range(sent.schema, value) and written(sent.schema, value) == sent.payload
    try:
        expected = as_document(sent.schema, value)
    except Undecided:
        return None
    if document is None:
        return f"refused what is {expected!r}" if is_canonical else None
    if is_canonical and not is_same(json.loads(document), expected):
        return f"made {document!r} of {expected!r}"
    return None


HOURS = (pytest.mark.long, pytest.mark.timeout(2 * 3600))


@pytest.mark.parametrize(
    ("seed", "rounds"),
    [
        (0, 1),
        pytest.param(1, 40, marks=pytest.mark.thorough),
        *(pytest.param(seed, 400, marks=HOURS) for seed in range(100, 104)),
    ],
)
def test_avro_is_what_fastavro_reads(spark: SparkSession, seed: int, rounds: int) -> None:
    documents = AvroDocuments(seed)
    for _ in range(rounds):
        sent = list(payloads(documents, 8, 60))
        made = made_of(spark, sent)
        wrong = [
            (each.schema, each.payload.hex(), fault)
            for each, document in zip(sent, made, strict=True)
            if (fault := fault_of(each, document))
        ]
        assert not wrong, "\n".join(map(str, wrong[:4]))
        assert len(sent) / 2 <= sum(document is not None for document in made) < len(sent)
