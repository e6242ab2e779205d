"""What is published can be read by the contract that it came from."""

import io
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import fastavro
from chispa import assert_df_equality
from pyspark.sql import functions as F

from pipelines.config.publish import Retraction
from pipelines.contracts.contract import DataContract
from pipelines.publishing.corrections import CORRECTION
from pipelines.publishing.kafka_records import messages
from pipelines.records.decode import VALID, decode, payload_hash
from pipelines.registry.confluent import CONFLUENT
from pipelines.registry.event_schema import AvroValues, avro_schema
from tests.support.lakes import Lake, flight
from tests.support.orders import order

OFFSET = "headers.`oncelake.offset` AS _offset"


def read_back(lake: Lake, values: list[bytes]) -> Any:
    """Asserts that events survive being published; returns their messages."""
    envelopes = lake.envelopes(values)
    decoded = decode(envelopes, lake.contract, timedelta(days=1)).where(VALID)
    sent = messages(decoded, lake.contract)
    again = envelopes.drop("value").join(sent.select("value", F.expr(OFFSET)), "_offset")
    payload = payload_hash(lake.contract).alias("payload")
    assert_df_equality(
        decode(again, lake.contract, timedelta(days=1)).where(VALID).select("_offset", payload),
        decoded.select("_offset", payload),
        ignore_row_order=True,
    )
    assert sent.count() == len(values)
    return sent


def test_a_published_event_reads_as_the_one_that_came(lake: Lake) -> None:
    sent = read_back(lake, [flight(), flight(flight=2, tailnum=None, arrival_delay=...)])
    row = next(row for row in sent.collect() if b"1545" in row["key"])
    assert json.loads(row["key"]) == {
        "carrier": "UA",
        "flight": 1545,
        "origin": "EWR",
        "scheduled_departure": "2013-01-01T10:15:00.000000Z",
    }
    assert row["headers"].asDict() == {
        "oncelake.topic": "flights",
        "oncelake.partition": 0,
        "oncelake.offset": 0,
    }


def test_in_avro_a_published_event_reads_as_the_one_that_came(
    make_lake: Callable[..., Lake], nested: DataContract, contract: DataContract
) -> None:
    odd = order(placed_at="2013-01-01T10:00:00.123456Z", items=[{"sku": "x", "count": 2}])
    sent = [
        (contract, [flight(), flight(flight=2, tailnum=None, arrival_delay=...)]),
        (nested, [order(), odd]),
    ]
    for plain, values in sent:
        lake = make_lake(contract=plain)
        schema = avro_schema(lake.spark, plain, "2-events")
        decoded = decode(lake.envelopes(values), plain, timedelta(days=1)).where(VALID)
        avro = AvroValues(CONFLUENT.header("7"), schema)
        written = messages(decoded, plain, avro=avro).select("value").toArrow().to_pylist()
        assert {row["value"][:5] for row in written} == {b"\x00\x00\x00\x00\x07"}
        # Whoever reads by the schema alone finds what the lake has.
        parsed = fastavro.parse_schema(json.loads(schema))
        found = [fastavro.schemaless_reader(io.BytesIO(row["value"][5:]), parsed, None) for row in written]
        assert found == decoded.select(*plain.columns).toArrow().to_pylist(maps_as_pydicts="strict")
        # What an older contract did not have is null.
        fields = json.loads(schema)["fields"]
        assert all(("default" in field) == isinstance(field["type"], list) for field in fields)


def test_corrections_say_so_and_what_is_gone_has_no_value_or_what_it_was(lake: Lake) -> None:
    decoded = decode(lake.envelopes([flight(), flight(flight=2)]), lake.contract, timedelta(days=1))
    kind = F.when(F.col("flight") == 2, "removed")
    marked = decoded.withColumn(CORRECTION, kind)
    kinds: list[tuple[Retraction, bool]] = [("tombstone", False), ("record", True)]
    for retraction, is_there in kinds:
        first, second = messages(marked, lake.contract, retraction=retraction).toArrow().to_pylist()
        assert [each["headers"]["oncelake.correction"] for each in (first, second)] == [None, "removed"]
        assert (first["value"] is not None, second["value"] is not None) == (True, is_there)


def test_nested_values_and_keys_too(make_lake: Callable[..., Lake], nested: DataContract) -> None:
    odd = [{"sku": "x", "count": 2}, {"sku": 'ü\n"', "count": 1}]
    sent = read_back(make_lake(contract=nested), [order(placed_at="2013-01-01T10:00:00.123456Z", items=odd)])
    (row,) = sent.collect()
    assert list(json.loads(row["key"])) == list(nested.key)
