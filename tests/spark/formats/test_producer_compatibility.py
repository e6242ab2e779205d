"""What `contract check --against registry` says of a type is what decoding does with it."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import (
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
from pipelines.formats.producer_compatibility import producer_changes
from pipelines.records.decode import decode
from pipelines.registry.confluent import CONFLUENT
from pipelines.registry.wire_format import Writers, WriterSchema
from tests.support.avro import FIELDS, departure, encoded, framed, record
from tests.support.lakes import Lake

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
WHOLE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 0}
LOCAL = {"type": "long", "logicalType": "local-timestamp-millis"}
LOCAL_MICROS = {"type": "long", "logicalType": "local-timestamp-micros"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
# To Avro, two bytes are too few for so many digits, and mean nothing.
SMALL = {"type": "fixed", "name": "Small", "size": 2, "logicalType": "decimal", "precision": 20, "scale": 2}
NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
DATE = {"type": "int", "logicalType": "date"}
POINT = record([{"name": "x", "type": "long"}, {"name": "y", "type": "long"}], "Point")
# What producers write, a value that shows it, the contract's type, and whether it is read.
PAIRS: list[tuple[Any, Any, DataType, bool]] = [
    ("int", 5, LongType(), True),
    ("long", 2**40, IntegerType(), False),
    ("long", 5, DoubleType(), True),
    ("double", 5.0, LongType(), False),
    ("double", 1.5, DecimalType(6, 2), True),
    ("double", 1e9, DecimalType(6, 2), False),
    (MONEY, Decimal("1234.56"), DecimalType(8, 2), True),
    (MONEY, Decimal("1234.56"), DecimalType(3, 1), False),
    (MONEY, Decimal("1234.56"), DoubleType(), True),
    (WHOLE, Decimal(123_456_789), IntegerType(), True),
    (["int", "long"], 2**40, LongType(), True),
    (["int", "string"], "five", LongType(), False),
    (["int", "string"], "five", StringType(), True),
    (LOCAL, 1_357_041_600_000, TimestampType(), True),
    (LOCAL_MICROS, 1_357_041_600_000_001, TimestampType(), True),
    (NANOS, 1_357_041_600_000_000_000, TimestampType(), False),
    (DATE, 15_706, DateType(), True),
    (DATE, 15_706, TimestampType(), False),
    ("string", "2013-01-01T12:00:00Z", TimestampType(), True),
    ("boolean", True, BooleanType(), True),
    ("boolean", True, LongType(), False),
    (POINT, {"x": 1, "y": 2}, MapType(StringType(), LongType()), True),
    ({"type": "map", "values": "long"}, {"x": 1}, StructType([StructField("x", LongType())]), True),
    ({"type": "array", "items": "long"}, [1], MapType(StringType(), LongType()), False),
    ("bytes", b"\x01", StringType(), True),
    ("bytes", b"\x01", LongType(), False),
    ("string", "5.50", DecimalType(6, 2), True),
    (MONEY, Decimal("12.34"), DecimalType(6, 1), True),
    (["int", MILLIS], 5, LongType(), True),
    (["int", MILLIS], 5, TimestampType(), False),
    (SMALL, b"\x01\x02", DecimalType(20, 2), False),
    ("double", 1e39, FloatType(), False),
]
# Values that happen to fit, of types that need not: the check refuses what decoding may take.
LUCKY = {4}


@pytest.fixture
def wide(contract: DataContract) -> DataContract:
    """The contract of flights in Avro, and a column for each pair."""
    extra = [StructField(f"c{n}", kind) for n, (_, _, kind, _) in enumerate(PAIRS)]
    schema = StructType([*contract.schema, *extra])
    return replace(contract, value_format="avro", schema=schema, day_rules=(), row_rules=())


def test_types_are_read_as_the_check_says(make_lake: Callable[..., Lake], wide: DataContract) -> None:
    lake = make_lake(contract=wide)
    schemas = [record([*FIELDS, {"name": f"c{n}", "type": kind}]) for n, (kind, *_) in enumerate(PAIRS)]
    by_id = {str(n): WriterSchema(str(n), "AVRO", json.dumps(schema)) for n, schema in enumerate(schemas)}
    values = []
    for n, (kind, value, *_) in enumerate(PAIRS):
        # The library that writes takes no meaning that makes no sense; the bytes are the same without.
        plain = {k: kind[k] for k in ("type", "name", "size")} if kind is SMALL else kind
        schema = record([*FIELDS, {"name": f"c{n}", "type": plain}])
        values.append(framed(n, encoded(schema, departure(**{f"c{n}": value}))))

    decoded = decode(lake.envelopes(values), wide, timedelta(days=1), Writers(by_id, CONFLUENT))

    rows = list(decoded.orderBy("_offset").select("_valid", "_error.*", "c13", "c14").collect())
    assert [row["_valid"] for row in rows] == [reads for *_, reads in PAIRS]
    assert {row["reason"] for row in rows} == {None, "wrong_type"}
    assert rows[13]["c13"].astimezone(UTC) == NOON
    assert rows[14]["c14"].astimezone(UTC) == NOON + timedelta(microseconds=1)
    for n, (*_, reads) in enumerate(PAIRS):
        breaks = any(
            change.is_breaking and change.place.endswith(f".c{n}")
            for change in producer_changes(wide, by_id[str(n)])
        )
        assert breaks == (not reads or n in LUCKY), PAIRS[n]
