"""Zeros of both signs are one number, so they are one key: in the stream, at night and when sent on."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.types import DecimalType, DoubleType, FloatType, StructField, StructType

from pipelines.contracts.contract import DataContract
from pipelines.publishing.kafka_records import messages
from tests.support.lakes import FLIGHT, Lake, Record
from tests.support.nights import LATER, ONE, run, stream

pytestmark = pytest.mark.usefixtures("two_partitions")

PART = StructType([StructField("x", DoubleType()), StructField("y", FloatType())])
ORIGIN = {"latitude": "0.0", "price": "1.0", "x": "0.0", "y": "0.0"}


def point(**changes: str) -> bytes:
    # As text, since Python would write a number in its own way.
    at = {**ORIGIN, **changes}
    fields = json.dumps({"scheduled_departure": FLIGHT["scheduled_departure"]})[1:-1]
    top = f'"latitude": {at["latitude"]}, "price": {at["price"]}'
    return f'{{{fields}, {top}, "part": {{"x": {at["x"]}, "y": {at["y"]}}}}}'.encode()


@pytest.fixture
def places(contract: DataContract) -> DataContract:
    """Events that are told by numbers with a point, at the top and within an object."""
    numbers = [StructField("latitude", DoubleType()), StructField("price", DecimalType(10, 4))]
    held = StructField("part", PART, nullable=False)
    schema = StructType([contract.schema["scheduled_departure"], *numbers, held])
    key = ("latitude", "price", "part.x", "part.y")
    return replace(contract, schema=schema, key=key, row_rules=(), day_rules=())


def key_and_count(lake: Lake, layer: Any) -> list[tuple[bytes, int]]:
    sent = messages(lake.table(layer), lake.contract).groupBy("key").count()
    return [(bytes(row["key"]), row["count"]) for row in sent.collect()]


def test_zeros_of_both_signs_are_one_key(make_lake: Callable[..., Lake], places: DataContract) -> None:
    lake = make_lake(contract=places)
    negative = [{"latitude": "-0.0"}, {"x": "-0"}, {"y": "-0e5"}, {"latitude": "-0.0", "x": "-0.0"}]
    lake.ingest([*(point(**zero) for zero in negative), point(), point(price="1.00"), point(price='"1"')])
    lake.ingest([point(), point(price="1.000"), *(point(**zero) for zero in negative)])
    later = point(price="2").replace(b"2013-01-01", b"2013-01-04")
    lake.ingest([Record(later, sent=LATER)])
    counts = stream(lake).counts
    assert (counts.rows, counts.duplicates, counts.quarantined) == (2, 12, 0)
    done = run(lake, ONE)
    assert (done.counts.rows, done.counts.duplicates) == (1, 12)
    # The sign of the first copy is not seen by whoever reads the key.
    key = b'{"latitude":0.0,"price":1.0000,"part.x":0.0,"part.y":0.0}'
    assert key_and_count(lake, "batch") == [(key, 1)]
    assert (key, 1) in key_and_count(lake, "speed")
