"""Why a record is in quarantine: each reason with the sentence that explains it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

Reason = Literal[
    "null_value",
    "no_schema_id",
    "unknown_schema",
    "undecodable",
    "malformed_json",
    "not_an_object",
    "wrong_type",
    "missing_field",
    "event_time_future",
    "event_time_past",
    "rule_failed",
    "rule_undecided",
]

REASONS: Final[Mapping[Reason, str]] = MappingProxyType(
    {
        "null_value": "The record has no value.",
        "no_schema_id": "The contract says that values name a schema, and the value names none.",
        "unknown_schema": "The registry has no schema of the id in the value, or one that Spark cannot use.",
        "undecodable": "The value is not exactly one value of the schema that it names.",
        "malformed_json": "The value is not JSON, or it is cut off.",
        "not_an_object": "The value is JSON, but not an object with fields.",
        "wrong_type": "A field holds a value of another type than the contract says.",
        "missing_field": "A field that the contract requires is not there, or is null.",
        "event_time_future": "The event time lies further in the future than is allowed.",
        "event_time_past": "The event time lies before 1970.",
        "rule_failed": "A value breaks a rule of the contract.",
        "rule_undecided": "Whether a value has the pattern of a rule takes too long to find out.",
    }
)
"""A sentence for each reason, in the order in which they are looked for."""
