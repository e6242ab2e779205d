"""Records that no decoder may accept: the ways in which a producer breaks the contract.

Each kind knows the reason with which the pipeline must put it into quarantine.
"""

from enum import StrEnum
from typing import Any

from demo.source import Flight
from demo.wire import encode_value, value_fields


class Poison(StrEnum):
    """A way to break a record; the value is how the demo names it."""

    NOT_JSON = "not JSON"
    TRUNCATED = "truncated JSON"
    NOT_AN_OBJECT = "a JSON array"
    WRONG_TYPE = "flight: many"
    MISSING_KEY = "no flight number"
    NULL_VALUE = "null value"
    FUTURE = "event in 2099"


REASONS: dict[Poison, str] = {
    Poison.NOT_JSON: "malformed_json",
    Poison.TRUNCATED: "malformed_json",
    Poison.NOT_AN_OBJECT: "not_an_object",
    Poison.WRONG_TYPE: "wrong_type",
    Poison.MISSING_KEY: "missing_field",
    Poison.NULL_VALUE: "null_value",
    Poison.FUTURE: "event_time_future",
}
"""The quarantine reason that each kind must get."""


def poisoned_value(kind: Poison, flight: Flight) -> bytes | None:
    """Break the record of a flight.

    Args:
        kind: How.
        flight: Whose record.

    Returns:
        The value to send; `None` is Kafka's null.
    """
    fields: dict[str, Any] = value_fields(flight.key, flight.payload)
    match kind:
        case Poison.NULL_VALUE:
            return None
        case Poison.NOT_JSON:
            return f"{flight.key.carrier} {flight.key.flight} has left".encode()
        case Poison.TRUNCATED:
            whole = encode_value(fields)
            return whole[: len(whole) * 2 // 3]
        case Poison.NOT_AN_OBJECT:
            return encode_value(list(fields.values()))
        case Poison.WRONG_TYPE:
            fields["flight"] = "many"
        case Poison.MISSING_KEY:
            del fields["flight"]
        case Poison.FUTURE:
            fields["scheduled_departure"] = "2099-12-31T12:00:00-05:00"
    return encode_value(fields)
