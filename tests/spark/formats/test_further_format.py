"""Values of a further format, in the wire format of a further registry, are decoded like all others."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.formats.registered_formats import FORMATS, format_of
from pipelines.ledger.decoding import decode_all
from pipelines.ledger.writer_schemas import kept_schemas
from pipelines.lineage.key_filter import asked_key
from pipelines.publishing.kafka_records import messages
from pipelines.records.decode import decode, valid
from pipelines.registry.confluent import ConfluentRegistry
from pipelines.registry.event_schema import AvroValues, avro_schema
from pipelines.registry.wire_format import Writers, WriterSchema
from pipelines.steps.explain import explain
from pipelines.steps.speed import speed
from tests.support.avro import framed
from tests.support.further_format import BY_UUID, FURTHER, KIND, SCHEMA_ID, HexJson, written
from tests.support.lakes import Lake, flight

OTHER_ID = "00000000-0000-4000-8000-000000000001"
WRITERS = Writers({SCHEMA_ID: WriterSchema(SCHEMA_ID, KIND, "carrier string")}, BY_UUID)


@pytest.fixture
def lake(make_lake: Callable[..., Lake], contract: DataContract, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setitem(FORMATS, FURTHER, HexJson())
    return make_lake(contract=replace(contract, value_format=FURTHER, day_rules=()))


def test_it_is_decoded_and_what_is_broken_has_a_reason(lake: Lake) -> None:
    HexJson().require_readable(lake.spark, WRITERS.schemas[SCHEMA_ID])
    cases: list[tuple[bytes | None, tuple[Any, ...]]] = [
        (written(flight()), (None, None, None)),
        (None, ("null_value", None, None)),
        (flight(), ("no_schema_id", None, None)),
        (framed(7, flight().hex().encode()), ("no_schema_id", None, None)),
        (BY_UUID.header(SCHEMA_ID)[:-1], ("no_schema_id", None, None)),
        (written(flight(), OTHER_ID), ("unknown_schema", None, OTHER_ID)),
        (BY_UUID.header(SCHEMA_ID) + b"no hex", ("undecodable", None, None)),
        (written(flight()[:50]), ("malformed_json", None, None)),
        (written(flight(flight="many")), ("wrong_type", "flight", "many")),
    ]
    decoded = decode(lake.envelopes([value for value, _ in cases]), lake.contract, timedelta(days=1), WRITERS)
    rows = decoded.orderBy("_offset").selectExpr("_error.reason", "_error.column", "_error.found").collect()
    assert [tuple(row) for row in rows] == [expected for _, expected in cases]
    (event,) = valid(decoded, lake.contract).select("carrier", "flight").collect()
    assert tuple(event) == ("UA", 1545)


def test_what_was_sent_is_shown(lake: Lake) -> None:
    text = format_of(lake.contract).text(BY_UUID)
    assert text is not None
    values = lake.envelopes([written(flight())]).withColumnRenamed("value", "_value")
    (row,) = values.select(F.expr(text).alias("text")).collect()
    assert json.loads(row["text"]) == json.loads(flight())


def test_what_is_published_names_its_schema_in_the_wire_format(lake: Lake) -> None:
    decoded = decode(lake.envelopes([written(flight())]), lake.contract, timedelta(days=1), WRITERS)
    avro = AvroValues(BY_UUID.header(SCHEMA_ID), avro_schema(lake.spark, lake.contract, "flights"))
    published = messages(decoded, lake.contract, avro=avro).withColumnRenamed("value", "_value")
    (row,) = published.select(F.expr(BY_UUID.schema_id).alias("id")).collect()
    assert row["id"] == SCHEMA_ID


@pytest.mark.thorough
def test_streams_and_explanations_take_the_wire_format_from_the_client_of_the_registry(
    lake: Lake, make_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConfluentRegistry, "wire_format", BY_UUID)
    monkeypatch.setattr(ConfluentRegistry, "schema", lambda _, schema_id: WRITERS.schemas.get(schema_id))
    lake = make_lake("registry.url=http://registry", contract=lake.contract)
    values = [written(flight()), written(flight() + b" {}"), written(flight(flight=2), OTHER_ID)]
    lake.ingest(values)

    counts = speed(lake.pipeline, once=True).counts

    assert (counts.records, counts.rows, counts.quarantined) == (3, 1, 2)
    assert {schema.id: schema.kind for schema in kept_schemas(lake.pipeline).values()} == {
        SCHEMA_ID: KIND,
        OTHER_ID: "UNKNOWN",
    }
    # The key of a broken record is read in what was sent.
    found = explain(lake.pipeline, asked_key(lake.contract, ["carrier=UA", "flight=1545"]), 20)
    assert [facts.reason for facts, _ in found.records] == [None, "malformed_json"]
    assert decode_all(lake.pipeline, lake.envelopes(values)).where("_valid").count() == 1
