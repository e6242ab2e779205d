"""The streams of a pipeline and its tables: which job runs a stream, and which tables it reads and writes.

A new stream is an entry of `STREAMS` and a name in the types below. What is done differently for each is told
apart by `match`, so mypy shows where one is missing; `tests/unit/config/test_streams.py` holds the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

Layer = Literal["bronze", "speed", "batch", "quarantine"]
"""A table of a pipeline, by the name of its folder."""
Query = Literal["ingest", "speed", "publish"]
"""A streaming query of a pipeline, by the name of its checkpoint."""
LakeQuery = Literal["ingest", "speed"]
"""A query that writes tables of a pipeline."""
TableQuery = Literal["speed", "publish"]
"""A query that reads a table of a pipeline as it grows."""

LAYERS: Final[tuple[Layer, ...]] = get_args(Layer)


@dataclass(frozen=True)
class Stream:
    """A stream.

    Attributes:
        job: The name of the job that runs it.
        reads: The tables that it reads; first the one that it reads as it grows, whose versions its
            checkpoint counts. Ingest has none, since it reads Kafka.
        writes: The tables that it makes and writes.
        port: What is added to `metrics.port`, so that all streams can run on one host.
    """

    job: str
    reads: tuple[Layer, ...]
    writes: tuple[Layer, ...]
    port: int

    @property
    def tables(self) -> tuple[Layer, ...]:
        """The tables that it reads or writes."""
        return (*self.reads, *self.writes)


STREAMS: Final[Mapping[Query, Stream]] = {
    "ingest": Stream("ingest_stream", reads=(), writes=("bronze",), port=0),
    "speed": Stream("speed_stream", reads=("bronze",), writes=("speed", "quarantine"), port=1),
    "publish": Stream("publish_stream", reads=("speed", "batch"), writes=(), port=2),
}
"""All streams, in the order of the data."""


def port_offset(stream: Stream, cluster: int) -> int:
    """Return what is added to `metrics.port` for a stream.

    Args:
        stream: The stream.
        cluster: The place among the clusters of the one that it reads; 0 is the first, or all.
    """
    return len(STREAMS) - 1 + cluster if cluster else stream.port


def writer_of(layer: Layer) -> Stream:
    """Return the stream that makes a table, which must not be the batch table."""
    return next(stream for stream in STREAMS.values() if layer in stream.writes)


def reader_of(layer: Layer) -> TableQuery | None:
    """Return the query that reads a table as it grows; None if there is none."""
    queries: tuple[TableQuery, ...] = get_args(TableQuery)
    return next((query for query in queries if STREAMS[query].reads[0] == layer), None)
