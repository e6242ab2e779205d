"""How values name the schemas that they were written by.

Values of a topic with a schema registry begin with what names their schema, and its payload follows. How,
the registry's client says, e.g. `pipelines.registry.confluent`. An id is a text beyond a wire format: to most
registries it is a number, to some it is not.

The ids are resolved by the driver before a plan is made, so a plan holds the schemas that it knows as
literals, and no executor ever asks a registry.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

ID: Final = "_schema_id"


@dataclass(frozen=True)
class WireFormat:
    """How a value names its schema.

    Attributes:
        schema_id: SQL over `_value binary` for the id as a text of 200 characters at most; null if the value
            is not in the wire format.
        payload: SQL over `_value binary` for the bytes that follow; of no meaning without an id.
        header: Returns what stands before the payload, by the id.
    """

    schema_id: str
    payload: str
    header: Callable[[str], bytes]


UNFRAMED: Final = WireFormat("CAST(NULL AS STRING)", "_value", lambda _: b"")
"""That of values that name no schema."""


@dataclass(frozen=True)
class WriterSchema:
    """A schema that a producer wrote by, as a registry keeps it.

    Attributes:
        id: Its id in the registry.
        kind: `AVRO`, `JSON` or another of the registry's kinds; `UNREADABLE` if Spark cannot read by it,
            `UNKNOWN` if the registry has none of this id.
        text: The schema, with everything that it refers to.
    """

    id: str
    kind: str
    text: str


Schemas = Mapping[str, WriterSchema]
"""Schemas by their ids."""
NO_SCHEMAS: Final[Schemas] = {}


@dataclass(frozen=True)
class Writers:
    """What is known of those who wrote values.

    Attributes:
        schemas: The schemas that are known.
        wire_format: How values name theirs.
    """

    schemas: Schemas
    wire_format: WireFormat


NO_WRITERS: Final = Writers(NO_SCHEMAS, UNFRAMED)


def ordered_ids(ids: Iterable[str]) -> list[str]:
    """Return ids in an order of their own, which for numbers is that of the numbers."""
    return sorted(ids, key=lambda schema_id: (len(schema_id), schema_id))
