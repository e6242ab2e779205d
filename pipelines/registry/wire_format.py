"""Values in the wire format of a schema registry: a byte 0, the schema's id in four bytes, the payload.

An id is a text beyond this module: to most registries it is a number, to some it is not.

Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/#wire-format

The ids are resolved by the driver before a plan is made, so a plan holds the schemas that it knows as
literals, and no executor ever asks a registry.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

ID: Final = "_schema_id"

_HEADER: Final = 5
# An id is an unsigned number of 32 bits.
_ID_OF_VALUE: Final = (
    f"CASE WHEN length(_value) >= {_HEADER} AND substring(_value, 1, 1) = X'00'"
    " THEN conv(hex(substring(_value, 2, 4)), 16, 10) END"
)


@dataclass(frozen=True)
class WriterSchema:
    """A schema that a producer wrote by, as a registry keeps it.

    Attributes:
        id: its id in the registry.
        kind: `AVRO`, `JSON` or another of the registry's kinds; `UNREADABLE` if Spark cannot read by it,
            `UNKNOWN` if the registry has none of this id.
        text: the schema, with everything that it refers to.
    """

    id: str
    kind: str
    text: str


Writers = Mapping[str, WriterSchema]
NO_WRITERS: Final[Writers] = {}


def ordered_ids(ids: Iterable[str]) -> list[str]:
    """Return ids in an order of their own, which for numbers is that of the numbers."""
    return sorted(ids, key=lambda schema_id: (len(schema_id), schema_id))


def id_of_value() -> str:
    """Return SQL for the id that a value names; null if the value is not in the wire format."""
    return _ID_OF_VALUE


def header(schema_id: str) -> bytes:
    """Return what stands before the payload of a value: the inverse of `id_of_value`."""
    return b"\x00" + int(schema_id).to_bytes(_HEADER - 1)


def payload() -> str:
    """Return SQL for the bytes of a framed value behind the id."""
    return f"substring(_value, {_HEADER + 1})"
