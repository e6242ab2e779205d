"""How a flight looks on the wire: the key and the JSON value of its Kafka record."""

import json
from functools import cache
from typing import Any

from demo.source import ZONE, FlightKey, FlightPayload


def record_key(key: FlightKey) -> bytes:
    """Name the flight, not its departure: all departures of one flight number share a partition.

    Args:
        key: The dedup key.

    Returns:
        `carrier-flight-origin` in UTF-8.
    """
    return _name(key.carrier, key.flight, key.origin)


def value_fields(key: FlightKey, payload: FlightPayload) -> dict[str, Any]:
    """Lay out the fields of a value in the order of the contract.

    Args:
        key: The dedup key.
        payload: The rest.

    Returns:
        Field name to JSON value; the departure is ISO 8601 with New York's offset.
    """
    fields: dict[str, Any] = key._asdict()
    fields["scheduled_departure"] = key.scheduled_departure.astimezone(ZONE).isoformat()
    return fields | payload._asdict()


def encode_value(content: object) -> bytes:
    """Write JSON as compactly as producers do.

    Args:
        content: What `json` can write.

    Returns:
        UTF-8 JSON without spaces.
    """
    return json.dumps(content, separators=(",", ":")).encode()


@cache
def _name(carrier: str, flight: int, origin: str) -> bytes:
    return f"{carrier}-{flight}-{origin}".encode()
