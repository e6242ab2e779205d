"""Flights in Avro, in the wire format of a schema registry."""

import io
import struct
from typing import Any

import fastavro

from tests.support.lakes import FLIGHT

NULLABLE_DOUBLE = ["null", "double"]
FIELDS: list[dict[str, Any]] = [
    {"name": "carrier", "type": "string"},
    {"name": "flight", "type": "int"},
    {"name": "origin", "type": "string"},
    {"name": "scheduled_departure", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "dest", "type": "string"},
    {"name": "tailnum", "type": ["null", "string"]},
    {"name": "departure_delay", "type": NULLABLE_DOUBLE},
    {"name": "arrival_delay", "type": NULLABLE_DOUBLE},
    {"name": "air_time", "type": NULLABLE_DOUBLE},
    {"name": "distance", "type": "double"},
]
DEPARTURE_MS = 1_357_035_300_000
AVRO_FLIGHT = {**FLIGHT, "scheduled_departure": DEPARTURE_MS}


def record(fields: list[dict[str, Any]], name: str = "Flight") -> dict[str, Any]:
    """An Avro record's schema."""
    return {"type": "record", "name": name, "namespace": "nyc", "fields": fields}


def framed(number: int, payload: bytes) -> bytes:
    """A payload behind the id of its schema."""
    return struct.pack(">bI", 0, number) + payload


def encoded(schema: Any, value: Any) -> bytes:
    """A value as its schema writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def departure(**changes: Any) -> dict[str, Any]:
    """One departure, as Avro has it, with some fields changed."""
    return {**AVRO_FLIGHT, **changes}
