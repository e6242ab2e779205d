"""Values of records, and what they say: JSON, or Avro behind the id of its schema."""

import io
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, Protocol

import fastavro

from chaos.traffic import Reading, Refused, judge, judge_told

WITH_SCHEMAS: Final = ("south",)
"""The pipelines whose values name a schema of the registry."""
VERSIONS: Final = 24
"""How many schemas producers go through in a run: what jobs have not met, they have to ask for."""

_FRAME: Final = struct.Struct(">bI")
_UNKNOWN: Final = 2_000_000_000
_TIMESTAMP: Final = {"type": "long", "logicalType": "timestamp-millis"}


class Values(Protocol):
    """A value format."""

    def written(self, document: bytes | None, share: float) -> bytes | None:
        """Return the value of a record.

        Args:
            document: what the record says, as JSON; broken as in `chaos.traffic`.
            share: how much of the run is over, from 0 to 1.
        """

    def judge(self, value: bytes | None, timestamp_ms: int) -> Reading | Refused:
        """Return what a value is; nothing of the decoders of the jobs is in this."""


class JsonValues:
    """Values as they are in the traffic."""

    def written(self, document: bytes | None, share: float) -> bytes | None:
        """Return the document."""
        return document

    def judge(self, value: bytes | None, timestamp_ms: int) -> Reading | Refused:
        """Return what a document says."""
        return judge(value, timestamp_ms)


JSON: Final = JsonValues()
"""Values in JSON."""


def schema(version: int, sort: str = "whole") -> dict[str, Any]:
    """Return a schema of producers.

    Args:
        version: each adds a field of its own, which no contract names.
        sort: `whole`; `powerless` has a power that may be null, `wordy` a number that is a string.
    """
    return {
        "type": "record",
        "name": "Reading",
        "fields": [
            {"name": "meter", "type": "string"},
            {"name": "number", "type": "string" if sort == "wordy" else "long"},
            {"name": "measured_at", "type": _TIMESTAMP},
            {"name": "power", "type": ["null", "double"] if sort == "powerless" else "double"},
            {"name": "note", "type": ["null", "string"]},
            {"name": f"extra_{version}", "type": ["null", "string"], "default": None},
        ],
    }


def schemas() -> list[dict[str, Any]]:
    """Return all schemas of a run, in the order in which `AvroValues` wants their ids."""
    return [*(schema(version) for version in range(VERSIONS)), schema(0, "powerless"), schema(0, "wordy")]


@dataclass(frozen=True)
class AvroValues:
    """Avro behind a byte 0 and the id of its schema.

    Attributes:
        ids: of `schemas()`, as the registry gave them.
    """

    ids: Sequence[int]

    def written(self, document: bytes | None, share: float) -> bytes | None:
        """Return the value of a record; what is broken as JSON is broken in a way of Avro's."""
        if document is None:
            return None
        try:
            told = json.loads(document)
        except ValueError:
            # A payload that is cut off in the middle of its first string.
            return _FRAME.pack(0, self.ids[0]) + b"\x20m0"
        if not isinstance(told, dict):
            return document if told[0]["number"] % 2 else _FRAME.pack(0, _UNKNOWN) + document
        version = min(int(share * VERSIONS), VERSIONS - 1)
        if "power" not in told:
            version = VERSIONS
        elif isinstance(told["number"], str):
            version = VERSIONS + 1
        told["measured_at"] = datetime.fromisoformat(told["measured_at"])
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self._parsed[self.ids[version]], told)
        return _FRAME.pack(0, self.ids[version]) + out.getvalue()

    def judge(self, value: bytes | None, timestamp_ms: int) -> Reading | Refused:
        """Return what a value is."""
        if value is None:
            return Refused("null_value")
        if value[:1] != b"\0":
            return Refused("no_schema_id")
        _, number = _FRAME.unpack(value[: _FRAME.size])
        if number not in self._parsed:
            return Refused("unknown_schema")
        try:
            told: Any = fastavro.schemaless_reader(
                io.BytesIO(value[_FRAME.size :]), self._parsed[number], None
            )
        except EOFError:
            return Refused("undecodable")
        if told["power"] is None:
            del told["power"]
        told["measured_at"] = told["measured_at"].astimezone(UTC).isoformat()
        return judge_told(told, timestamp_ms)

    @cached_property
    def _parsed(self) -> dict[int, Any]:
        return {number: fastavro.parse_schema(each) for number, each in zip(self.ids, schemas(), strict=True)}
