"""Ingest over models of topic, checkpoint and bronze: the code of the job, and what Spark does around it.

Sources: `MicroBatchExecution.scala` and `KafkaMicroBatchStream.scala` of Spark.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import partial
from typing import Any, Final, Protocol, cast
from zoneinfo import ZoneInfo

from pipelines.config.model import PipelineConfig
from pipelines.delta.checkpoint_fit import BEGIN
from pipelines.delta.conflicts import raising_stale_epoch
from pipelines.delta.epochs import Stamp, require_newer
from pipelines.delta.idempotent_writer import DraftedRows, IdempotentWriter
from pipelines.delta.stream_check import require_ingest_fit
from pipelines.delta.table_properties import TOPIC_ID, WHOLE_FROM, no_earlier_day
from pipelines.delta.table_state import StreamCommit, TableState
from pipelines.errors import InfrastructureError, SourceError
from pipelines.kafka.beginnings import Beginning, beginning_in, first_began
from pipelines.kafka.bronze_offsets import Ingestion
from pipelines.kafka.ingest_position import beginning, continuation, passed
from pipelines.kafka.ingest_state import RecordComparison
from pipelines.kafka.topic_offsets import BrokerOffsets
from pipelines.kafka.topics import Topic, refuse_other_topic
from pipelines.spark.checkpoints import QueryFiles
from pipelines.spark.ingest_plans import MicroBatchPlan, offsets_in
from pipelines.steps.ingest_start import OffsetRequests, prepare_start
from simulation.delta import Action, Change, ModelLog, ModelTransaction
from simulation.kernel import Kernel, Process
from simulation.topic import ModelTopic, Sent, last_by_partition

_ROWS: Final = "rows"
_DAY: Final = "bronze"
_CHECKPOINT: Final = "checkpoints/ingest"


@dataclass(frozen=True)
class Row:
    """A record in bronze, and when its micro-batch was planned."""

    record: Sent
    ingested_at: datetime


@dataclass
class ModelCheckpoint:
    """The files of ingest's checkpoint."""

    query: str | None = None
    began: Mapping[int, int] | None = None
    plans: dict[int, MicroBatchPlan] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    note: dict[str, Any] = field(default_factory=dict)

    def copy(self) -> "ModelCheckpoint":
        """Return a copy, as a backup has it."""
        return replace(self, plans=dict(self.plans), done=set(self.done), note=dict(self.note))

    def files(self) -> QueryFiles:
        """Return what `pipelines.spark.checkpoints.query_files` returns."""
        if self.query is None:
            return QueryFiles(_CHECKPOINT, None, 0, None, dict(self.note))
        following = max(self.done, default=-1) + 1
        begun = following if following in self.plans else None
        return QueryFiles(_CHECKPOINT, self.query, following, begun, dict(self.note))


class IngestWorld(Protocol):
    """What ingest works on."""

    kernel: Kernel
    topic: ModelTopic
    bronze: ModelLog
    checkpoint: ModelCheckpoint
    config: PipelineConfig
    zone: ZoneInfo

    def time(self) -> datetime:
        """Return the time."""

    def backed_up(self) -> None:
        """Note that checkpoint and bronze may be copied as they are."""


def rows_of(log: ModelLog, version: int | None = None) -> list[Row]:
    """Return the rows of bronze at a version; the newest if none is named."""
    files = (log.newest if version is None else log.versions[version]).files
    return [row for file in files.values() for row in file[_ROWS]]


class ModelIngest:
    """Ingest's checkpoint, bronze and the topic, see `pipelines.steps.ingest_start.IngestLake`."""

    def __init__(self, world: IngestWorld) -> None:
        self.world, self.config = world, world.config
        self.topic: Topic = self._look("topic: describe", world.topic.found)

    def _look(self, label: str, action: Any) -> Any:
        return self.world.kernel.effect(label, action)

    @property
    def zone(self) -> ZoneInfo:
        """The zone in which days end."""
        return self.world.zone

    def now(self) -> datetime:
        """Return the time."""
        return self.world.time()

    def files(self) -> QueryFiles:
        """Return what the checkpoint says."""
        found: QueryFiles = self._look("checkpoint: read", self.world.checkpoint.files)
        return found

    def has_begun(self, files: QueryFiles) -> bool:
        """Return whether the query knows where it began."""
        return files.next_batch > 0 or files.in_flight is not None or bool(self.began())

    def oldest(self) -> int | None:
        """Return the oldest micro-batch whose plan the checkpoint still has."""
        found: int | None = self._look(
            "checkpoint: oldest", lambda: min(self.world.checkpoint.plans, default=None)
        )
        return found

    def began(self) -> Mapping[int, int] | None:
        """Return the offsets at which the checkpoint began; None if it does not know."""
        return self.world.checkpoint.began

    def first_began(self) -> Mapping[int, int]:
        """Return the offsets at which ingest first began, before resets."""
        noted = beginning_in(self.world.checkpoint.note, _CHECKPOINT)
        forgotten = noted.forgotten(self.first_complete_day()) if noted.lost else {}
        return first_began(self.began() or {}, noted, forgotten)

    def plan(self, batch: int) -> MicroBatchPlan | None:
        """Return the plan of a micro-batch; None if the checkpoint no longer has it, or not yet."""
        return self.world.checkpoint.plans.get(batch)

    def commits(self, most: int) -> Sequence[StreamCommit]:
        """Return the newest commits of bronze, the newest first."""
        versions = self._look("bronze: history", lambda: self.world.bronze.versions[-most:])
        return [_stream_commit(version.commit) for version in reversed(versions)]

    def last_offsets(
        self, came: Ingestion | None = None, partitions: Collection[int] | None = None
    ) -> Mapping[int, int]:
        """Return the last offset of each partition in bronze.

        Args:
            came: Only records that were ingested in this range; None for all.
            partitions: Only these partitions; None for all.
        """
        rows: list[Row] = self._look("bronze: last offsets", lambda: rows_of(self.world.bronze))
        return last_by_partition(
            [
                row.record
                for row in rows
                if (came is None or _is_within(came, row.ingested_at))
                and (partitions is None or row.record.partition in partitions)
            ]
        )

    def held(self) -> Mapping[int, range]:
        """Return the first to the last offset of each partition in bronze."""
        rows: list[Row] = self._look("bronze: ends", lambda: rows_of(self.world.bronze))
        offsets = dict[int, list[int]]()
        for row in rows:
            offsets.setdefault(row.record.partition, []).append(row.record.offset)
        return {number: range(min(each), max(each) + 1) for number, each in offsets.items()}

    def bounds(self) -> Mapping[int, range]:
        """Return the offsets that Kafka has of the partitions that were found."""
        bounds: dict[int, range] = self._look("topic: offsets", self.world.topic.bounds)
        return {number: bounds.get(number, range(0)) for number in range(self.topic.partitions)}

    def readable(self) -> Mapping[int, BrokerOffsets]:
        """Return those that ingest may read."""
        return {number: BrokerOffsets(each.start, each.stop) for number, each in self.bounds().items()}

    def records_within(
        self, ranges: Mapping[int, range], *, stop_at_first: bool = False
    ) -> Mapping[int, int]:
        """Count records that Kafka gives."""
        if not any(ranges.values()):
            return {}
        found: list[Sent] = self._look("topic: read", partial(self.world.topic.between, ranges))
        numbers = [record.partition for record in found]
        return {number: numbers.count(number) for number in numbers}

    def compared(self, ranges: Mapping[int, range]) -> Mapping[int, RecordComparison]:
        """Compare records within some offsets."""
        ranges = {number: offsets for number, offsets in ranges.items() if offsets}
        if not ranges:
            return {}
        theirs: list[Sent] = self._look("topic: compare", partial(self.world.topic.between, ranges))
        rows: list[Row] = self._look("bronze: compare", lambda: rows_of(self.world.bronze))
        ours = {(row.record.partition, row.record.offset): row.record for row in rows}
        compared = dict[int, RecordComparison]()
        for record in sorted(theirs, key=lambda each: each.offset):
            own = ours.get((record.partition, record.offset))
            if own is None:
                continue
            before = compared.get(record.partition, RecordComparison(None, None))
            same = record.offset if own == record else before.same
            compared[record.partition] = RecordComparison(
                same, before.other if own == record else record.offset
            )
        return compared

    def accepted_divergences(self) -> str:
        """Nobody accepts any."""
        return ""

    def make_bronze(self) -> None:
        """Make sure that bronze was filled from the topic; the first one is remembered."""
        self.require_same_topic()

    def require_same_topic(self) -> None:
        """Compare the topic with the one that bronze was filled from."""
        stored = self._property(TOPIC_ID)
        if stored is None:
            self._set_property(TOPIC_ID, self.topic.topic_id)
        else:
            refuse_other_topic(self.config, stored, self.topic)

    def first_sent(self, ranges: Mapping[int, range]) -> Mapping[int, float]:
        """Return when records were sent."""
        found: list[Sent] = self._look("topic: oldest records", partial(self.world.topic.between, ranges))
        first = dict[int, float]()
        for record in sorted(found, key=lambda each: each.offset):
            first.setdefault(record.partition, record.at.timestamp())
        return first

    def first_complete_day(self) -> date | None:
        """Return the first complete day, or None if bronze never lost records."""
        day = self._property(WHOLE_FROM)
        return None if day is None else date.fromisoformat(day)

    def set_first_complete_day(self, day: date) -> None:
        """Let bronze say so."""
        bronze, said = self.world.bronze, {WHOLE_FROM: day.isoformat()}

        def set_day() -> None:
            bronze.set_property(WHOLE_FROM, no_earlier_day(bronze.newest.properties, said)[WHOLE_FROM])

        self.world.kernel.effect("bronze: set the first complete day", set_day, is_write=True)

    def note_tables(self, files: QueryFiles, beginning: Beginning) -> None:
        """Write beside the checkpoint which table it writes to."""
        note = {"bronze": "table", **beginning.entries()}
        if not files.next_batch and BEGIN in files.note:
            note[BEGIN] = files.note[BEGIN]
        if note != files.note:
            self.world.kernel.effect(
                "note: write", lambda: setattr(self.world.checkpoint, "note", note), is_write=True
            )

    def require_fit(self) -> QueryFiles:
        """Compare bronze with the checkpoint, as `pipelines.delta.stream_check.check_ingest`."""
        files = self.files()
        newest = self._look("bronze: state", lambda: self.world.bronze.newest)
        state = TableState("bronze", "table", newest.numbers)
        require_ingest_fit(
            self.config, files, state, lambda: not files.next_batch and any(newest.files.values())
        )
        return files

    def _property(self, name: str) -> str | None:
        found: str | None = self._look(
            f"bronze: {name}", lambda: self.world.bronze.newest.properties.get(name)
        )
        return found

    def _set_property(self, name: str, value: str) -> None:
        self.world.kernel.effect(
            f"bronze: set {name}", lambda: self.world.bronze.set_property(name, value), is_write=True
        )


class UndisturbedIngest(ModelIngest):
    """The same for somebody who looks while nothing else happens."""

    def _look(self, label: str, action: Any) -> Any:
        return action()


def reset_note(state: ModelIngest) -> dict[str, Any]:
    """Return what `checkpoint reset` writes beside a checkpoint, see `pipelines.steps.checkpoints`."""
    began = beginning(state, continuation(state))
    noted, read = beginning_in(state.world.checkpoint.note, _CHECKPOINT), dict[int, int]()
    with suppress(SourceError):
        read = dict(passed(state, state.require_fit()))
    return {BEGIN: "bronze", **replace(noted, began=began, passed=read).entries()}


def _is_within(came: Ingestion, moment: datetime) -> bool:
    is_in_time = came.until is None or moment <= came.until
    return moment >= came.since and is_in_time and (came.after is None or moment > came.after)


def _stream_commit(commit: Any) -> StreamCommit:
    noted = json.loads(commit.note) if commit.note and commit.note.startswith("{") else {}
    return StreamCommit(
        commit.version,
        commit.operation,
        commit.note,
        query=noted.get("query"),
        batch=noted.get("batch"),
        asked=noted.get("asked"),
    )


@dataclass(frozen=True)
class _Frame:
    """The rows of a micro-batch, in place of a data frame."""

    rows: tuple[Row, ...]
    sparkSession: None = None  # noqa: N815 - as Spark names it


class BronzeTransaction(ModelTransaction):
    """A transaction on bronze, which may write rows to a file that no commit names."""

    spark = None

    def __init__(self, world: IngestWorld) -> None:
        super().__init__(world.kernel, world.bronze)
        self._added = list[Action]()

    def write(self, rows: tuple[Row, ...]) -> int:
        """Write rows; return how many."""
        self._added = [("add", self._log.file(_DAY, rows))] if rows else []
        return len(rows)

    def adopt(self, other: "BronzeTransaction") -> bool:
        """Take what another transaction has written."""
        self._added = other._added
        return True

    def discard(self) -> None:
        """Delete what was written."""
        self._added = []

    def commit(
        self, actions: Sequence[Action], stamp: Stamp, mode: str = "Append", condition: str | None = None
    ) -> int:
        """Commit what was written; a note has no random part."""
        require_newer("bronze", self.number_taken(stamp.application), stamp)
        note = stamp.note
        if note.startswith("{"):
            noted = json.loads(note)
            del noted["try"]
            note = json.dumps(noted)
        with raising_stale_epoch("bronze"):
            number = (stamp.application, stamp.number)
            return self.put(Change([*self._added, *actions], "WRITE", note, number))


class ModelWriter(IdempotentWriter):
    """Appends micro-batches to the model of bronze, as the job does."""

    def __init__(self, world: IngestWorld, begun: int | None) -> None:
        super().__init__("bronze", begun)
        self._world = world

    def draft(self, rows: Any) -> DraftedRows:
        """Write the rows to a file that no reader sees."""
        transaction = BronzeTransaction(self._world)
        return DraftedRows(cast(Any, transaction), transaction.write(rows.rows))

    def has_committed(self, transaction: Any, note: str) -> bool:
        """Return whether bronze has a commit with a note, since a transaction began."""
        found: bool = self._world.kernel.effect(
            "bronze: history",
            lambda: any(
                version.commit.note == note
                for version in self._world.bronze.versions[transaction.version + 1 :]
            ),
        )
        return found

    def query(self, spark: Any) -> str:
        """Return the id of the query."""
        if self._world.checkpoint.query is None:
            raise InfrastructureError("the checkpoint is gone while the query runs")
        return self._world.checkpoint.query

    def last_batch(self, spark: Any, query: str) -> int | None:
        """Return the number of the last micro-batch of a query in bronze; None if there is none."""
        found: int | None = self._world.kernel.effect(
            "bronze: last micro-batch", lambda: self._world.bronze.newest.numbers.get(query)
        )
        return found

    def committed_rows(self, spark: Any, query: str, batch: int) -> int:
        """Nobody counts them."""
        return 0

    def pause(self, seconds: float) -> None:
        """Wait before a commit is tried again."""
        self._world.kernel.sleep(1, "bronze: wait")


class ModelQuery:
    """What Spark does with ingest's query: it plans a micro-batch, lets the job write it, and notes that.

    Args:
        world: the world.
        process: the process that it runs in.
        once: whether it takes what the topic holds when it starts.
        lake: what its start was checked by; a planted fault is one that answers wrongly.
    """

    def __init__(self, world: IngestWorld, process: Process, once: bool, lake: ModelIngest) -> None:
        self.world, self.process, self.once, self.lake = world, process, once, lake
        self._ends: Mapping[int, int] | None = None

    def requests(self) -> OffsetRequests:
        """Return when Spark asks Kafka, see the job."""
        begun = self.lake.files().in_flight
        return OffsetRequests(begun, self.once, self.world.time, is_bounded=False)

    def writer(self, files: QueryFiles) -> ModelWriter:
        """Return what writes bronze."""
        return ModelWriter(self.world, files.in_flight)

    def run(self, batches: int) -> None:
        """Start, and take some micro-batches."""
        files = self.lake.require_fit()
        start = prepare_start(self.lake, files)
        writer, requests = self.writer(files), self.requests()
        self._effect("checkpoint: metadata", partial(self._begin_query, self.world.checkpoint))
        if self.once:
            self._ends = self._look_for_ends()
        batch = self.lake.files().next_batch
        before = self.world.checkpoint.plans[batch - 1].ends if batch else self._first(start)
        for _ in range(batches):
            plan = self.world.checkpoint.plans.get(batch) or self._planned(batch, before)
            if plan is None:
                if self.once:
                    return
                self.world.kernel.sleep(10, "waits for records")
                requests.done()
                continue
            rows = self._rows(before, plan)
            writer.append(cast(Any, _Frame(rows)), batch, 0, asked=requests.before(batch))
            requests.done()
            self._effect(f"checkpoint: commits/{batch}", partial(self._done, self.world.checkpoint, batch))
            before, batch = plan.ends, batch + 1

    def _effect(self, label: str, action: Any) -> Any:
        return self.world.kernel.effect(label, action, is_write=True)

    def _begin_query(self, checkpoint: ModelCheckpoint) -> None:
        checkpoint.query = checkpoint.query or f"query of {self.process.name}"

    def _first(self, start: Any) -> Mapping[int, int]:
        """Return where the first micro-batch begins; the first to write that decides."""
        if (began := self.lake.began()) is not None:
            return began
        if start is None:
            raise SourceError("a query without a beginning: the checkpoint was changed while it started")
        first = offsets_in(start.starting_offsets, self.world.config)

        checkpoint = self.world.checkpoint

        def write() -> Mapping[int, int]:
            checkpoint.began = checkpoint.began or first
            return checkpoint.began

        found: Mapping[int, int] = self._effect("checkpoint: sources/0/0", write)
        return found

    def _look_for_ends(self) -> Mapping[int, int]:
        bounds = self.world.kernel.effect("topic: ends for a plan", self.world.topic.bounds)
        return {number: offsets.stop for number, offsets in bounds.items()}

    def _planned(self, batch: int, before: Mapping[int, int]) -> MicroBatchPlan | None:
        ends = self._ends or self._look_for_ends()
        if any(ends.get(number, -1) < at for number, at in before.items()):
            raise SourceError("some data may have been missed: Kafka ends before the offsets that were read")
        if ends == before:
            return None
        write = partial(self._plan, self.world.checkpoint, batch, dict(ends))
        plan: MicroBatchPlan = self._effect(f"checkpoint: offsets/{batch}", write)
        return plan

    def _plan(self, checkpoint: ModelCheckpoint, batch: int, ends: dict[int, int]) -> MicroBatchPlan:
        # Spark reads the clock just before; see docs/reliability.md for a process that stands still there.
        if batch in checkpoint.plans:
            raise InfrastructureError("multiple streaming queries are using the checkpoint")
        return checkpoint.plans.setdefault(batch, MicroBatchPlan(ends, self.world.time()))

    def _done(self, checkpoint: ModelCheckpoint, batch: int) -> None:
        if batch in checkpoint.done:
            raise InfrastructureError("multiple streaming queries are using the checkpoint")
        checkpoint.done.add(batch)
        self.world.backed_up()

    def _rows(self, before: Mapping[int, int], plan: MicroBatchPlan) -> tuple[Row, ...]:
        def read() -> list[Sent]:
            bounds, ranges = self.world.topic.bounds(), dict[int, range]()
            for number, end in plan.ends.items():
                first = before.get(number)
                if first is None:
                    first = bounds[number].start if number in bounds else 0
                    if first:
                        raise SourceError(f"added partition {number} starts from {first} instead of 0")
                ranges[number] = range(first, end)
            return self.world.topic.between(ranges)

        found: list[Sent] = self.world.kernel.effect("topic: read a micro-batch", read)
        return tuple(Row(record, plan.at) for record in found)
