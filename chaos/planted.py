"""Faults that are planted, so that the oracle can be seen to find them."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from chaos.reading import LakeReader, output_records, output_topic
from pipelines.errors import InfrastructureError

Change = Callable[[pa.Table], pa.Table]
_WITHIN_S: Final = 60.0


@dataclass(frozen=True)
class Outside:
    """What somebody outside does to a lake or a topic when the dust has settled.

    Attributes:
        name: its name.
        what: it, in words.
        rule: the rule of the oracle that has to find it.
        done: does it for the length of a block, and undoes it if that is possible.
    """

    name: str
    what: str
    rule: str
    done: Callable[[LakeReader, str], AbstractContextManager[None]]


def _rewritten(layer: str, change: Change) -> Callable[[LakeReader, str], Iterator[None]]:
    """Return what rewrites a data file of a table; the table's log knows nothing of it."""

    def done(reader: LakeReader, servers: str) -> Iterator[None]:
        file = _largest_file(reader, layer)
        before = file.read_bytes()
        pq.write_table(change(pq.ParquetFile(file).read()), file)
        try:
            yield
        finally:
            file.write_bytes(before)

    return done


def _largest_file(reader: LakeReader, layer: str) -> Path:
    version = reader.certified().version if layer == "batch" else None
    files = DeltaTable(reader.table(layer), version=version).file_uris()
    if not files:
        raise InfrastructureError(f"{reader.table(layer)}: there is no row to plant a fault in")
    return max(map(Path, files), key=lambda file: file.stat().st_size)


def _without_last(rows: pa.Table) -> pa.Table:
    return rows.slice(0, rows.num_rows - 1)


def _with_first_twice(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(0, 1)])


def _with_more_power(rows: pa.Table) -> pa.Table:
    is_first = pa.array([number == 0 for number in range(rows.num_rows)])
    power = pc.if_else(is_first, pc.add(rows["power"], 1.0), rows["power"])
    return rows.set_column(rows.schema.get_field_index("power"), rows.schema.field("power"), power)


def _sent_again(reader: LakeReader, servers: str) -> Iterator[None]:
    """Send a record of the output topic once more; a topic forgets nothing, so nothing is undone."""
    topic = output_topic(reader.pipeline)
    # The newest: older ones may have been sent before publishing began anew.
    fresh = (each for each in reversed(output_records(servers, topic)) if each.correction is None)
    newest = next(record for record in fresh if record.reading)
    told = newest.reading
    if told is not None:
        measured = told.measured_at.isoformat()
        key = json.dumps({"meter": told.meter, "number": told.number, "measured_at": measured})
        origin = {"partition": newest.origin.partition, "offset": newest.origin.offset}
        headers: dict[str, str | bytes | None] = {
            f"oncelake.{name}": str(value) for name, value in origin.items()
        }
        producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        producer.produce(topic, told.document(), key, newest.place.partition, headers=headers)
        producer.flush(_WITHIN_S)
    yield


def _deleted_from_topic(reader: LakeReader, servers: str) -> Iterator[None]:
    """Delete the first records of a partition of the topic."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for deleted in admin.delete_records([TopicPartition(reader.pipeline, 0, 5)]).values():
        deleted.result(_WITHIN_S)
    yield


_BRONZE: Final = "bronze is the topic"
_SPEED: Final = "rows of the speed layer are records, each key once"
_WINNERS: Final = "certified days are the winners"
_STEADY: Final = "a certified day changes with a verdict only"
# Those that cannot be undone come last.
OUTSIDE: Final = tuple(
    Outside(name, what, rule, contextmanager(done))
    for name, what, rule, done in (
        ("bronze-lost", "a row of bronze is gone", _BRONZE, _rewritten("bronze", _without_last)),
        ("bronze-doubled", "a row of bronze is twice", _BRONZE, _rewritten("bronze", _with_first_twice)),
        (
            "speed-doubled",
            "a row of the speed layer is twice",
            _SPEED,
            _rewritten("speed", _with_first_twice),
        ),
        ("batch-changed", "a certified row changes", _STEADY, _rewritten("batch", _with_more_power)),
        ("batch-lost", "a certified row is gone", _WINNERS, _rewritten("batch", _without_last)),
        (
            "serving-lost",
            "a row of the serving table is gone",
            "the serving table is the winners",
            _rewritten("serving", _without_last),
        ),
        (
            "quarantine-lost",
            "a row of the quarantine is gone",
            "the quarantine is what is broken",
            _rewritten("quarantine", _without_last),
        ),
        ("output-doubled", "a record is sent twice", "consumers get each event once", _sent_again),
        (
            "topic-lost",
            "acknowledged records are gone",
            "acknowledged records are in the topic",
            _deleted_from_topic,
        ),
    )
)

PATCHED: Final = {
    "ingest-drops": "ingest leaves out one record of a hundred",
    "ingest-doubles": "ingest writes one record of a hundred twice",
    "speed-changes": "speed_stream writes another value for some events",
    "speed-doubles": "speed_stream writes some events twice",
    "quarantine-drops": "speed_stream forgets records that break a rule of the contract",
    "corrections-dropped": "publish_stream sends no correction but events that were missing",
    "publish-repeats": "tasks of publishing do not look whether they have been done before",
    "winners-changed": "the nightly run, and its audit, choose among copies by their offsets first",
    "serving-forgotten": "the nightly run does not bring the serving table up to date",
    "restores-unnoticed": "streams do not compare their tables with their checkpoints",
    "damage-unspecific": "damaged state is reported with exit code 1",
}
"""Faults of the jobs: `chaos.planted_job` runs them so."""
