"""Reads lake and topics without Oncelake and without Spark: DuckDB on the files that delta-rs names."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import duckdb
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from deltalake import DeltaTable
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from chaos.observations import (
    Acknowledged,
    BronzeRow,
    EventKey,
    EventRow,
    Lake,
    OutputRecord,
    Place,
    Poll,
    QuarantineRow,
    SourceRecord,
)
from chaos.producers import NUMBER
from chaos.traffic import Reading
from pipelines.errors import InfrastructureError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EVENT: Final = (
    "meter, number, epoch_us(measured_at), power, note, CAST(_event_date AS DATE), _partition, _offset"
)
_POLL_S: Final = 60.0
_ANSWER_S: Final = 240.0


@dataclass(frozen=True)
class CertifiedState:
    """What readers may see of the batch layer, by the ledger of verdicts.

    Attributes:
        version: of the batch table; None if nothing is certified.
        days: the certified days, and how many times each was certified.
    """

    version: int | None
    days: Mapping[date, int]


@dataclass(frozen=True)
class Certification:
    """A verdict that a day is certified.

    Attributes:
        day: the day.
        version: the version of the batch table.
        base: the certified version that it was built on; -1 if there was none.
    """

    day: date
    version: int
    base: int


def certified_state(verdicts: Sequence[Certification]) -> CertifiedState:
    """Return what is certified: the newest version, and the days of it and of those that it was built on."""
    bases = {verdict.version: verdict.base for verdict in verdicts}
    newest = max(bases, default=None)
    standing, at = set[int](), newest
    while at is not None and at in bases:
        standing.add(at)
        at = bases[at]
    return CertifiedState(newest, Counter(each.day for each in verdicts if each.version in standing))


@dataclass(frozen=True)
class LakeReader:
    """Reads the tables of a pipeline.

    Attributes:
        root: of the lake.
        pipeline: its name.
    """

    root: Path
    pipeline: str

    def table(self, layer: str) -> Path:
        """Return the folder of a table of the pipeline."""
        return self.root / layer / self.pipeline

    def certified(self) -> CertifiedState:
        """Return what is certified."""
        rows = self._rows(
            self.root / "ops" / "certifications",
            "CAST(day AS DATE), batch_version, base_version",
            f"pipeline = '{self.pipeline}' AND status = 'certified'",
        )
        return certified_state([Certification(*row) for row in rows])

    def records(self) -> int:
        """Return how many records bronze has."""
        rows = self._rows(self.table("bronze"), "count(*)")
        return int(rows[0][0]) if rows else 0

    def bronze(self) -> list[BronzeRow]:
        """Return bronze."""
        columns = "_partition, _offset, key, value, epoch_ms(_kafka_timestamp), epoch_us(_ingested_at)"
        rows = self._rows(self.table("bronze"), columns)
        return [BronzeRow(Place(*row[:2]), *row[2:]) for row in rows]

    def quarantine(self) -> list[QuarantineRow]:
        """Return the quarantine."""
        rows = self._rows(self.table("quarantine"), "_partition, _offset, _reason, value")
        return [QuarantineRow(Place(*row[:2]), *row[2:]) for row in rows]

    def events(
        self, layer: str, days: Iterable[date] | None = None, version: int | None = None
    ) -> list[EventRow]:
        """Return rows of a table of events.

        Args:
            layer: `speed`, `batch` or `serving`.
            days: only those of these days; None for all.
            version: of the table; None for the newest.
        """
        condition = "true"
        if days is not None:
            condition = " OR ".join(f"_event_date = '{day}'" for day in days) or "false"
        rows = self._rows(self.table(layer), _EVENT, condition, version)
        return [_event_row(*row) for row in rows]

    def poll(self, at_s: float) -> Poll:
        """Read as a reader does: certified days at the certified version, other days from the speed layer."""
        copied = self.events("serving")
        state = self.certified()
        served = self.events("batch", state.days, state.version) if state.days else []
        fresh = [row for row in self.events("speed") if row.day not in state.days]
        doubled = [*_doubled([*served, *fresh]), *_doubled(copied)]
        return Poll(at_s, state.days, _digests(served, state.days), _digests(copied), doubled)

    def _rows(
        self, table: Path, columns: str, condition: str = "true", version: int | None = None
    ) -> list[tuple[Any, ...]]:
        if not (table / "_delta_log").is_dir():
            return []
        files = DeltaTable(table, version=version).file_uris()
        if not files:
            return []
        # Tables, columns and conditions are those of this module.
        query = f"SELECT {columns} FROM read_parquet(?, hive_partitioning = true, union_by_name = true)"  # noqa: S608
        with duckdb.connect() as connection:
            connection.execute("SET threads = 1")
            found = connection.execute(f"{query} WHERE {condition}", [files])
            rows: list[tuple[Any, ...]] = found.fetchall()
        return rows


def lake_of(
    reader: LakeReader,
    servers: str,
    acknowledged: Sequence[Acknowledged],
    sent_again: Sequence[Mapping[int, int]] = (),
) -> Lake:
    """Return all that a pipeline holds when nothing is at work."""
    state = reader.certified()
    return Lake(
        acknowledged=acknowledged,
        source=source_records(servers, reader.pipeline),
        bronze=reader.bronze(),
        speed=reader.events("speed"),
        quarantine=reader.quarantine(),
        certified=frozenset(state.days),
        batch=reader.events("batch", state.days, state.version) if state.days else [],
        serving=reader.events("serving"),
        output=output_records(servers, output_topic(reader.pipeline)),
        sent_again=sent_again,
    )


def output_topic(pipeline: str) -> str:
    """Return the topic to which a pipeline publishes."""
    return f"{pipeline}-events"


def end_offsets(servers: str, topic: str) -> dict[int, int]:
    """Return where each partition of a topic ends, once the cluster answers.

    Raises:
        InfrastructureError: It does not answer.
    """
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "never-committed", "log_level": 0})
    kept_trying = Retrying(
        retry=retry_if_exception_type(KafkaException),
        stop=stop_after_delay(_ANSWER_S),
        wait=wait_fixed(1),
        reraise=True,
    )

    def ends() -> dict[int, int]:
        found = consumer.list_topics(topic, timeout=_POLL_S).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        numbers = found.partitions
        return {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), _POLL_S)[1]
            for number in numbers
        }

    with closing(consumer):
        try:
            return kept_trying(ends)
        except KafkaException as error:
            raise InfrastructureError(f"topic {topic}: its ends are unknown: {error}") from error


def source_records(servers: str, topic: str) -> list[SourceRecord]:
    """Return the records of a source topic."""
    return [
        SourceRecord(
            Place(message.partition(), message.offset()),
            int(dict(message.headers() or [])[NUMBER]),
            message.key(),
            message.value(),
            message.timestamp()[1],
        )
        for message in _messages(servers, topic)
    ]


def output_records(servers: str, topic: str) -> list[OutputRecord]:
    """Return what a `read_committed` consumer gets of an output topic."""
    return [
        output_record(
            Place(message.partition(), message.offset()),
            message.key(),
            message.value(),
            dict(message.headers() or []),
        )
        for message in _messages(servers, topic)
    ]


def output_record(
    place: Place, key: bytes, value: bytes | None, headers: Mapping[str, bytes]
) -> OutputRecord:
    """Return what a record of the output topic says."""
    told = json.loads(key)
    event = EventKey(told["meter"], told["number"], datetime.fromisoformat(told["measured_at"]))
    reading = None
    if value is not None:
        said = json.loads(value)
        measured = datetime.fromisoformat(said.pop("measured_at"))
        reading = Reading(measured_at=measured, **said)
    origin = Place(int(headers["oncelake.partition"]), int(headers["oncelake.offset"]))
    correction = headers.get("oncelake.correction")
    return OutputRecord(place, event, reading, origin, correction.decode() if correction else None)


def _event_row(*row: Any) -> EventRow:
    meter, number, measured_us, power, note, day, partition, offset = row
    reading = Reading(meter, number, _EPOCH + timedelta(microseconds=measured_us), power, note)
    return EventRow(reading, day, Place(partition, offset))


def _digests(rows: Sequence[EventRow], days: Iterable[date] = ()) -> dict[date, str]:
    found: dict[date, list[str]] = {day: [] for day in days}
    for row in rows:
        found.setdefault(row.day, []).append(repr(row))
    return {
        day: hashlib.sha256("\n".join(sorted(told)).encode()).hexdigest()[:16] for day, told in found.items()
    }


def _doubled(rows: Sequence[EventRow]) -> list[EventKey]:
    return [key for key, times in Counter(row.key for row in rows).items() if times > 1]


def _messages(servers: str, topic: str) -> list[Any]:
    """Return what a plain consumer finds in a topic, up to its end, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "never-committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    found = list[Any]()
    try:
        left = set(consumer.list_topics(topic, timeout=_POLL_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in left])
        while left:
            message: Any = consumer.poll(_POLL_S)
            if message is None:
                raise InfrastructureError(
                    f"topic {topic}: no answer for partitions {left} in {_POLL_S:.0f} s"
                )
            if message.error() is None:
                found.append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            else:
                raise InfrastructureError(f"topic {topic}: {message.error()}")
    finally:
        consumer.close()
    return found
