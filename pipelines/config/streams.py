"""The streams of a pipeline and its tables: their names, and which job writes what."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

Layer = Literal["bronze", "speed", "batch", "quarantine"]
"""A table of a pipeline, by the name of its folder."""
Query = Literal["ingest", "speed", "publish"]
"""A streaming query of a pipeline, by the name of its checkpoint."""


class Stream(NamedTuple):
    """A stream.

    Attributes:
        job: the name of the job that runs it.
        makes: the tables that it makes.
        port: what is added to `metrics.port`, so that all streams can run on one host.
    """

    job: str
    makes: tuple[Layer, ...]
    port: int


STREAMS: Final[Mapping[Query, Stream]] = {
    "ingest": Stream("ingest_stream", ("bronze",), 0),
    "speed": Stream("speed_stream", ("speed", "quarantine"), 1),
    "publish": Stream("publish_stream", (), 2),
}
"""All streams, in the order of the data."""
