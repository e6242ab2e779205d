"""Values in the wire format of a schema registry: a byte 0, the schema's id in four bytes, the payload.

Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/#wire-format

The ids are resolved by the driver before a plan is made, so a plan holds the schemas that it knows as
literals, and no executor ever asks a registry.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

ID: Final = "_schema_id"

_HEADER: Final = 5
# An id is an unsigned number of 32 bits.
_ID_OF_VALUE: Final = (
    f"CASE WHEN length(_value) >= {_HEADER} AND substring(_value, 1, 1) = X'00'"
    " THEN CAST(conv(hex(substring(_value, 2, 4)), 16, 10) AS BIGINT) END"
)


@dataclass(frozen=True)
class WriterSchema:
    """A schema that a producer wrote by, as a registry keeps it.

    Attributes:
        id: its number in the registry.
        kind: `AVRO`, `JSON` or another of the registry's kinds; `UNREADABLE` if Spark cannot read by it,
            `UNKNOWN` if the registry has none of this id.
        text: the schema, with everything that it refers to.
    """

    id: int
    kind: str
    text: str


Writers = Mapping[int, WriterSchema]
NO_WRITERS: Final[Writers] = {}


def schema_id() -> str:
    """Return SQL for the id that a value names; null if the value is not in the wire format."""
    return _ID_OF_VALUE


def payload() -> str:
    """Return SQL for the bytes of a framed value behind the id."""
    return f"substring(_value, {_HEADER + 1})"
