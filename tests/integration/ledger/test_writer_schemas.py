"""Values with a schema of a real registry: read by what they were written with, or put aside."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from pyspark.sql import SparkSession

from pipelines.contracts.contract import DataContract
from pipelines.errors import InfrastructureError
from pipelines.ledger.decoding import decode_all
from pipelines.nightly.verdicts import NightResult
from pipelines.registry.confluent import ConfluentRegistry
from pipelines.registry.wire_format import WriterSchema
from pipelines.steps.nightly import nightly
from pipelines.steps.serving import read_serving
from pipelines.steps.speed import SpeedCounts, speed
from tests.support.avro import AVRO_FLIGHT, DEPARTURE_MS, FIELDS, departure, encoded, framed, record
from tests.support.lake_copies import lake_in
from tests.support.lakes import Lake, Record, flight
from tests.support.nights import ONE

ANY_OBJECT = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}


@pytest.fixture(scope="module")
def avro(contract: DataContract) -> DataContract:
    return replace(contract, value_format="avro", day_rules=())


@pytest.fixture
def lake(make_lake: Callable[..., Lake], avro: DataContract, url: str) -> Lake:
    return make_lake(f"registry.url={url}", contract=avro)


def register(registry: SchemaRegistryClient, subject: str, schema: Any, kind: str = "AVRO") -> int:
    return registry.register_schema(subject, Schema(json.dumps(schema), kind))


def verdicts(lake: Lake, values: list[Any]) -> list[Any]:
    decoded = decode_all(lake.pipeline, lake.envelopes(values))
    rows = decoded.select("_offset", "_error.*").orderBy("_offset").collect()
    return [tuple(row[1:]) for row in rows]


def away(lake: Lake) -> Lake:
    """The same lake, whose registry has the same name and does not answer any more."""
    assert lake.config.registry is not None
    # What the lake has kept is kept under the address; a proxy leads to nowhere, and is tried once.
    options = {"proxy": "http://127.0.0.1:9", "max.retries": "0"}
    registry = lake.config.registry.model_copy(update={"options": options})
    return lake.variant(config=lake.config.model_copy(update={"registry": registry}))


@dataclass(frozen=True)
class History:
    """What became of a lake: streams over values of several writers, and a night without the registry.

    Attributes:
        lake: the lake.
        refusal: what the stream said while the registry was away.
        left: the rows that the speed layer and the quarantine had then.
        streams: the counts of the stream over the first records, and of the next one.
        rows: the speed layer after the first of them.
        night: what the night said.
    """

    lake: Lake
    refusal: str
    left: tuple[int, int]
    streams: tuple[SpeedCounts, SpeedCounts]
    rows: list[dict[str, Any]]
    night: NightResult


@pytest.fixture(scope="module")
def history(
    spark: SparkSession,
    registry: SchemaRegistryClient,
    url: str,
    avro: DataContract,
    tmp_path_factory: pytest.TempPathFactory,
) -> History:
    lake = lake_in(tmp_path_factory.mktemp("writers"), spark, avro, f"registry.url={url}")
    old, gate = record(FIELDS), {"name": "gate", "type": "string", "default": ""}
    # Another order, another width, a field that the contract does not know.
    other = record([*reversed(FIELDS), gate])
    first, second, text = (
        register(registry, f"{name}-value", schema)
        for name, schema in (("old", old), ("other", other), ("text", {"type": "string"}))
    )
    no_record = framed(text, b"\x04UA")
    lake.ingest(
        [
            framed(first, encoded(old, departure(flight=1))),
            framed(second, encoded(other, departure(flight=2, gate="B2"))),
            flight(),
            framed(first, encoded(old, departure(dest="lower"))),
            no_record,
        ]
    )
    with pytest.raises(InfrastructureError) as refused:
        speed(away(lake).pipeline, once=True)
    left = lake.count("speed"), lake.count("quarantine")
    streams = [speed(lake.pipeline, once=True).counts]
    rows = [row.asDict() for row in lake.table("speed").orderBy("flight").collect()]
    newer = record([*FIELDS, gate])
    third = register(registry, "old-value", newer)
    lake.ingest(
        [
            framed(first, encoded(old, departure(flight=1))),
            framed(third, encoded(newer, departure(flight=3, gate="A"))),
            framed(third, b"\x02"),
            no_record,
        ]
    )
    streams.append(speed(lake.pipeline, once=True).counts)
    night = nightly(away(lake).pipeline, "run", [ONE])
    return History(lake, str(refused.value), left, (streams[0], streams[1]), rows, night)


@pytest.mark.thorough
def test_without_the_registry_nothing_goes_to_quarantine_and_the_batch_is_done_later(
    history: History,
) -> None:
    assert re.search(r"registry\.url: .* does not answer", history.refusal)
    assert history.left == (0, 0)
    assert history.streams[0].records == 5


def test_records_of_several_writers_in_one_batch_are_each_read_by_their_own_schema(history: History) -> None:
    counts = history.streams[0]
    assert (counts.records, counts.rows, counts.quarantined) == (5, 2, 3)
    assert [row["flight"] for row in history.rows] == [1, 2]
    for row in history.rows:
        assert {name: row[name] for name in ("carrier", "tailnum", "air_time")} == {
            "carrier": "UA",
            "tailnum": "N14228",
            "air_time": 227.0,
        }
        assert row["scheduled_departure"].timestamp() * 1000 == DEPARTURE_MS


def test_a_schema_that_appears_while_the_stream_runs_loses_and_doubles_nothing(history: History) -> None:
    counts = history.streams[1]
    expected = SpeedCounts(records=4, rows=1, duplicates=1, late=0, quarantined=2, batches=counts.batches)
    assert counts == expected
    flown = sorted(row["flight"] for row in history.lake.table("speed").collect())
    assert flown == [1, 2, 3]


def test_a_schema_that_is_no_record_stops_nothing_however_often_it_comes(history: History) -> None:
    quarantine = history.lake.table("quarantine").orderBy("_offset").select("_offset", "_reason")
    assert [tuple(row) for row in quarantine.collect()] == [
        (2, "no_schema_id"),
        (3, "rule_failed"),
        (4, "not_an_object"),
        (7, "undecodable"),
        (8, "not_an_object"),
    ]


def test_the_night_decides_as_the_stream_did_and_needs_no_registry_for_schemas_it_has_seen(
    history: History,
) -> None:
    assert history.night.days == {ONE: "certified"}
    counts = history.night.counts
    assert (counts.rows, counts.duplicates, counts.quarantined) == (3, 1, 5)
    flown = sorted(row["flight"] for row in read_serving(history.lake.pipeline).collect())
    assert flown == [1, 2, 3]


def test_what_is_not_in_the_wire_format_is_put_aside_as_such_with_the_registry_and_without(
    lake: Lake, registry: SchemaRegistryClient
) -> None:
    schema = record(FIELDS)
    number = register(registry, "wire-value", schema)
    other_kind = register(registry, "wire-json-value", ANY_OBJECT, "JSON")
    whole = encoded(schema, AVRO_FLIGHT)
    wrong_type = record([{**f, "type": "string"} if f["name"] == "flight" else f for f in FIELDS])
    wrong = register(registry, "wire-other-value", wrong_type)

    values = [
        framed(number, whole),
        flight(),
        b"",
        b"\x00\x00",
        None,
        framed(2_000_000_000, whole),
        framed(0xFFFFFFFF, whole),
        framed(other_kind, whole),
        framed(number, whole[:20]),
        framed(number, b""),
        # A text of two billion bytes is announced.
        framed(number, b"\xfe\xff\xff\xff\x0dUA"),
        framed(wrong, encoded(wrong_type, departure(flight="many"))),
        framed(number, encoded(schema, departure(distance=float("nan")))),
        framed(number, encoded(schema, departure(distance=-1.0))),
    ]
    expected = [
        (None, None, None),
        ("no_schema_id", None, None),
        ("no_schema_id", None, None),
        ("no_schema_id", None, None),
        ("null_value", None, None),
        ("unknown_schema", None, "2000000000"),
        ("unknown_schema", None, "4294967295"),
        ("unknown_schema", None, str(other_kind)),
        *[("undecodable", None, None)] * 3,
        ("wrong_type", "flight", "many"),
        ("wrong_type", "distance", "NaN"),
        ("rule_failed", "distance", "-1.0"),
    ]
    assert verdicts(lake, values) == expected
    # Neither do ids that nobody knows make a night need the registry.
    assert verdicts(away(lake), values) == expected


RECURSIVE = record(
    [*FIELDS, {"name": "next", "type": ["null", {"type": "map", "values": "nyc.Flight"}], "default": None}]
)


@pytest.mark.thorough
def test_a_recursive_schema_stops_nothing_and_is_asked_for_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Confluent's registry has such schemas; Apicurio fails to take one, so its answer is given here.
    answer = WriterSchema("7", "AVRO", json.dumps(RECURSIVE))
    monkeypatch.setattr(ConfluentRegistry, "schema", lambda self, number: answer)
    value = framed(7, encoded(record(FIELDS), AVRO_FLIGHT))
    for _ in range(2):
        assert verdicts(lake, [value]) == [("unknown_schema", None, "7")]
    table = lake.config.ops_table("writer_schemas")
    assert lake.spark.read.format("delta").load(table).count() == 1
    fixed = WriterSchema("7", "AVRO", json.dumps(record(FIELDS)))
    monkeypatch.setattr(ConfluentRegistry, "schema", lambda self, number: fixed)
    assert verdicts(lake, [value]) == [(None, None, None)]


@pytest.mark.thorough
def test_a_schema_that_refers_to_others_is_read_with_them(lake: Lake, registry: SchemaRegistryClient) -> None:
    airport = {"type": "enum", "name": "Airport", "namespace": "nyc.places", "symbols": ["EWR", "JFK", "LGA"]}
    registry.register_schema("airport", Schema(json.dumps(airport), "AVRO"))
    fields = [{**f, "type": "nyc.places.Airport"} if f["name"] == "origin" else f for f in FIELDS]
    number = registry.register_schema(
        "refers-value",
        Schema(json.dumps(record(fields)), "AVRO", [SchemaReference("nyc.places.Airport", "airport", 1)]),
    )
    whole = record([{**f, "type": airport} if f["name"] == "origin" else f for f in FIELDS])

    assert verdicts(lake, [framed(number, encoded(whole, AVRO_FLIGHT))]) == [(None, None, None)]


@pytest.mark.thorough
def test_json_with_a_schema_id_is_read_behind_it(
    make_lake: Callable[..., Lake], contract: DataContract, registry: SchemaRegistryClient, url: str
) -> None:
    lake = make_lake(f"registry.url={url}", contract=replace(contract, value_format="json_schema"))
    number = register(registry, "json-value", ANY_OBJECT, "JSON")
    of_avro = register(registry, "json-avro-value", record(FIELDS))

    assert verdicts(
        lake,
        [
            framed(number, flight()),
            flight(),
            framed(number, b"not json"),
            framed(number, flight(distance="far")),
            framed(of_avro, flight()),
            Record(framed(number, b"\xff\xfe")),
        ],
    ) == [
        (None, None, None),
        ("no_schema_id", None, None),
        ("malformed_json", None, None),
        ("wrong_type", "distance", "far"),
        ("unknown_schema", None, str(of_avro)),
        ("malformed_json", None, None),
    ]


@pytest.mark.thorough
def test_decimals_dates_and_nested_avro_come_through_exactly(
    make_lake: Callable[..., Lake], registry: SchemaRegistryClient, url: str, nested: DataContract
) -> None:
    lake = make_lake(f"registry.url={url}", contract=replace(nested, value_format="avro"))
    money = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}
    item = record([{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}], "Item")
    schema = record(
        [
            {
                "name": "order",
                "type": record(
                    [
                        {"name": "id", "type": "string"},
                        {"name": "placed_on", "type": ["null", {"type": "int", "logicalType": "date"}]},
                    ],
                    "Order",
                ),
            },
            {"name": "placed_at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "total", "type": ["null", money]},
            {"name": "items", "type": {"type": "array", "items": item}},
            {"name": "tags", "type": {"type": "map", "values": "string"}},
        ],
        "Placed",
    )
    number = register(registry, "nested-value", schema)
    value = {
        "order": {"id": "ä-1", "placed_on": 15_706},
        "placed_at": DEPARTURE_MS * 1000 + 1,
        "total": Decimal("123456789012345678.91"),
        "items": [{"sku": "a", "count": 2}, {"sku": "b", "count": 3}],
        "tags": {"b": "2", "a": "1"},
    }

    decoded = decode_all(lake.pipeline, lake.envelopes([framed(number, encoded(schema, value))]))

    (found,) = (row.asDict(recursive=True) for row in decoded.collect())
    assert found["_valid"], found["_error"]
    assert (found["order"]["id"], str(found["order"]["placed_on"])) == ("ä-1", "2013-01-01")
    assert (found["total"], dict(found["tags"])) == (Decimal("123456789012345678.91"), {"a": "1", "b": "2"})
    assert found["placed_at"].microsecond == 1
    assert found["items"] == [{"sku": "a", "count": 2}, {"sku": "b", "count": 3}]
