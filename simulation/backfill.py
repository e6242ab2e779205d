"""Backfills beside ingest, over models of the topic, bronze and the row of their lease."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Final

from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig
from pipelines.delta.backfill_writer import IngestCheckpoint
from pipelines.delta.epochs import Stamp, application
from pipelines.delta.fencing import claim_table, write_fenced
from pipelines.delta.table_properties import TOPIC_ID, WHOLE_FROM
from pipelines.kafka.backfill_plan import BackfillSpan
from pipelines.kafka.backfill_run import copy_missing
from pipelines.kafka.missing_offsets import Block, Blocks, MissingRange
from pipelines.ledger.lease_holders import HeldLease, Holder
from pipelines.ledger.lease_terms import LeaseLimits, LeaseTerm, take
from pipelines.ledger.lease_terms import Machine as LeaseMachine
from pipelines.spark.ingest_plans import MicroBatchPlan
from simulation.delta import Change, ModelLog, ModelTable, Version
from simulation.ingest import (
    BronzeTransaction,
    ModelCheckpoint,
    ModelIngest,
    ModelQuery,
    Row,
    reset_note,
    rows_of,
)
from simulation.kernel import Actor, Kernel, Process, Schedule, Violation
from simulation.sealing import ZONE
from simulation.topic import ModelTopic, Sent, last_by_partition

_LOADED: Final = load_config("flights", environ={})
CONFIG: Final = _LOADED.model_copy(
    update={"backfill": _LOADED.backfill.model_copy(update={"chunk_offsets": 2})}
)
LIMITS: Final = LeaseLimits(timedelta(seconds=60), timedelta(seconds=600))
_BEGIN: Final = datetime(2013, 1, 6, tzinfo=UTC)
_LEASE: Final = f"{CONFIG.name}@backfill"
_MOST_RECORDS: Final = 40
_INGESTS: Final = 4


class ModelBackfill(ModelIngest):
    """What a backfill reads and writes, see `pipelines.kafka.backfill_run.BackfillSource`."""

    world: "BackfillWorld"

    def available(self) -> Mapping[int, range]:
        """Return the offsets that Kafka has."""
        return self.bounds()

    def sent_since(self, moment: datetime) -> Mapping[int, int]:
        """Return the first offset that was sent since a moment, by partition; -1 where there is none."""
        logs = self._look("topic: offsets since a time", lambda: self.world.topic.logs)
        first = dict[int, int]()
        for number, log in enumerate(logs):
            first[number] = min((at for at, each in log.records.items() if each.at >= moment), default=-1)
        return first

    def blocks(self, spans: Mapping[int, range], size: int) -> Blocks:
        """Return what bronze has of ranges."""
        found: dict[int, dict[int, list[int]]] = {number: {} for number in spans}
        for number, at in sorted({*self._offsets("bronze: count")}):
            if at in spans.get(number, ()):
                found[number].setdefault(at // size, []).append(at)
        return {
            number: {block: Block(min(each), max(each), len(each)) for block, each in blocks.items()}
            for number, blocks in found.items()
        }

    def held_within(self, ranges: Sequence[tuple[int, range]]) -> Mapping[int, int]:
        """Count what bronze has within ranges."""
        offsets = {*self._offsets("bronze: count known gaps")}
        return Counter(n for n, at in offsets if any(n == other and at in span for other, span in ranges))

    def last_sent_before(self, moment: datetime, below: Mapping[int, int]) -> Mapping[int, int]:
        """Return the last offset in bronze that was sent before a moment and lies below another offset."""
        rows: list[Row] = self._look("bronze: last before a time", lambda: rows_of(self.world.bronze))
        return last_by_partition(
            [
                row.record
                for row in rows
                if row.record.at < moment and row.record.offset < below.get(row.record.partition, 0)
            ]
        )

    def whole_from(self) -> str | None:
        """Return what bronze says of the first day that retention has left whole."""
        return self._property(WHOLE_FROM)

    def first_kept(self) -> Mapping[int, int] | None:
        """Return nothing, as retention never runs; None if bronze says that it lost records."""
        return {} if self.whole_from() is None else None

    def others(self) -> Sequence[IngestCheckpoint]:
        """Return none: there is one cluster."""
        return ()

    def begin(self) -> BronzeTransaction:
        """Begin a transaction on bronze."""
        return BronzeTransaction(self.world)

    def write(self, draft: BronzeTransaction, records: Sequence[Sent], at: datetime) -> int:
        """Write records as of a moment to a file that no commit names; return how many."""
        return draft.write(tuple(Row(record, at) for record in records))

    def newest_since(self, moment: datetime) -> datetime | None:
        """Return the newest ingestion in bronze, of those since a moment."""
        rows: list[Row] = self._look("bronze: newest ingestion", lambda: rows_of(self.world.bronze))
        return max((row.ingested_at for row in rows if row.ingested_at >= moment), default=None)

    def number_taken(self, application: str) -> int:
        """Return the last number of an application that bronze has taken."""
        return self.begin().number_taken(application)

    def elapsed_s(self) -> float:
        """Return the seconds of the kernel."""
        return self.world.kernel.now

    def pause(self, seconds: float) -> None:
        """Wait."""
        self.world.kernel.sleep(max(1.0, seconds), "backfill: waits")

    def prepare(self, ranges: Mapping[int, Sequence[MissingRange]]) -> None:
        """Nothing is forgotten."""

    @contextmanager
    def lacking(self, chunk: Mapping[int, MissingRange]) -> Iterator[Sequence[Sent]]:
        """Read the records of a chunk that bronze does not have."""
        ranges = {number: each.offsets for number, each in chunk.items()}
        records: list[Sent] = self._look("topic: read a chunk", partial(self.world.topic.between, ranges))
        compared = {number for number, each in chunk.items() if each.is_partial}
        held = {*self._offsets("bronze: compare a chunk")} if compared else set[tuple[int, int]]()
        yield [
            each
            for each in records
            if each.partition not in compared or (each.partition, each.offset) not in held
        ]

    def count(self, records: Sequence[Sent]) -> int:
        """Return how many records these are."""
        return len(records)

    def require_same_topic(self) -> None:
        """Make sure that the topic is still the one that bronze was filled from."""
        self.topic = self._look("topic: describe", self.world.topic.found)
        super().require_same_topic()

    def require_not_read_ahead(self) -> None:
        """Nobody reads bronze."""

    def _offsets(self, label: str) -> list[tuple[int, int]]:
        rows: list[Row] = self._look(label, lambda: rows_of(self.world.bronze))
        return [(row.record.partition, row.record.offset) for row in rows]


class LeaseRow:
    """The row of the lease of backfills, see `pipelines.ledger.lease_terms.LeaseTable`."""

    def __init__(self, leases: ModelTable, bronze: ModelTable) -> None:
        self._table, self._bronze, self.name = leases, bronze, _LEASE

    def number(self) -> int:
        """Return the highest number that the table has taken."""
        return self._table.number_taken(application(self.name))

    def held(self) -> HeldLease | None:
        """Return what the row says."""
        rows = [file["rows"] for file in self._table.begin().files.values()]
        return rows[0] if rows else None

    def fenced_numbers(self) -> list[int]:
        """Return the highest number that bronze has taken."""
        return [self._bronze.number_taken(application(self.name))]

    def write(self, held: HeldLease, stamp: Stamp) -> None:
        """Write the row by a commit that carries a stamp."""
        table = self._table
        write_fenced(table, table.saver(stamp, [self.name], lambda: [table.log.file(self.name, held)]), stamp)


def lease_tables(world: "BackfillWorld") -> tuple[ModelTable, ModelTable]:
    """Return the table of leases, and bronze, whose commits carry the epochs."""
    return ModelTable(world.kernel, world.leases), ModelTable(world.kernel, world.bronze)


class Machine:
    """A process of the simulation, see `pipelines.ledger.lease_terms.Machine`."""

    def __init__(self, world: "BackfillWorld", process: Process) -> None:
        self._world, self._process = world, process

    def now(self) -> datetime:
        """Return the time."""
        return self._world.time()

    def process(self) -> Holder:
        """Return the process."""
        return Holder("host", "boot", "namespace", self._process.number, float(self._process.number))

    def is_gone(self, held: HeldLease) -> bool:
        """Return whether a process is known to have died."""
        return self._world.sees_the_dead and self._world.processes[held.process.pid].is_dead


@contextmanager
def hold_row(row: LeaseRow, bronze: ModelTable, machine: LeaseMachine, run: str) -> Iterator[LeaseTerm]:
    """Hold a lease of backfills, whose epoch bronze is claimed for; nobody renews it."""
    term = take(row, machine, LIMITS, run)
    try:
        claim_table(bronze, term.stamp("claim"))
        yield term
    finally:
        term.give_back()


@contextmanager
def hold(world: "BackfillWorld", process: Process) -> Iterator[LeaseTerm]:
    """Hold the lease of backfills, as `pipelines.ledger.leases.backfill_lease`; nobody renews it."""
    leases, bronze = lease_tables(world)
    with hold_row(LeaseRow(leases, bronze), bronze, Machine(world, process), process.name) as term:
        yield term


Hold = Callable[["BackfillWorld", Process], Any]


@dataclass
class BackfillWorld:
    """A bronze with gaps, ingest, and backfills.

    Attributes:
        schedule: who goes on, and with which fault.
        setup: decides what is there when it begins.
        make_source: makes what a backfill reads and writes; a planted fault is one that does so wrongly.
        make_query: makes a query of ingest.
        hold: holds the lease of backfills.
        processes: the processes that took it, by number.
    """

    schedule: Schedule
    setup: Random
    make_source: Callable[["BackfillWorld"], ModelBackfill] = ModelBackfill
    make_query: Callable[["BackfillWorld", Process, bool, ModelIngest], ModelQuery] = ModelQuery
    hold: Hold = hold
    is_fenced: bool = True
    processes: dict[int, Process] = field(default_factory=dict)
    config: PipelineConfig = CONFIG
    zone = ZONE
    _newest: Version | None = None

    def __post_init__(self) -> None:
        self.kernel = Kernel(self.schedule, self.check)
        self.sees_the_dead = self.setup.random() < 0.5
        self.topic = ModelTopic(CONFIG.kafka.topic, self.setup.randint(1, 2))
        self.bronze = ModelLog("bronze", is_fenced=self.is_fenced)
        self.leases = ModelLog("leases", is_fenced=self.is_fenced)
        self._fill()
        self._backups = [(self.checkpoint.copy(), 1)]
        self._are_once = [self.setup.random() < 0.5 for _ in range(_INGESTS)]
        self._start_ingest()
        for name in ("A", "B"):
            self.start_backfill(f"backfill-{name}", self._asked())
        self._accidents()

    def time(self) -> datetime:
        """Return the time."""
        return _BEGIN + timedelta(seconds=self.kernel.now)

    def backed_up(self) -> None:
        """Copy the checkpoint, with the version that bronze has."""
        self._backups.append((self.checkpoint.copy(), len(self.bronze.versions) - 1))

    def _fill(self) -> None:
        """Let ingest have read a part of the topic, of which bronze has lost some."""
        setup, before = self.setup, _BEGIN - timedelta(hours=1)
        began, ends = dict[int, int](), dict[int, int]()
        for number in range(len(self.topic.logs)):
            for _ in range(setup.randint(3, 8)):
                self.topic.send(number, before, before.date())
            began[number] = setup.randint(0, 3)
            ends[number] = setup.randint(began[number], self.topic.logs[number].end)
        plan = MicroBatchPlan(ends, before + timedelta(minutes=1))
        self.checkpoint = ModelCheckpoint("query", began, {0: plan}, {0}, {"bronze": "table"})
        read = [
            each for each in self.topic.sent if began[each.partition] <= each.offset < ends[each.partition]
        ]
        rows = tuple(Row(each, plan.at) for each in read if setup.random() < 0.7)
        note = '{"query": "query", "batch": 0}'
        file = self.bronze.file("bronze", rows)
        properties = {TOPIC_ID: self.topic.topic_id}
        self.bronze.put(1, Change([("add", file)], "WRITE", note, ("query", 0), properties))

    def _asked(self) -> BackfillSpan:
        """Return what a backfill is asked for: all of it, or some offsets."""
        if self.setup.random() < 0.5:
            return BackfillSpan()
        spans = dict[int, range]()
        for number in range(len(self.topic.logs)):
            start = self.setup.randint(0, 4)
            spans[number] = range(start, start + self.setup.randint(1, 8))
        return BackfillSpan(offsets=spans)

    def start_backfill(self, name: str, asked: BackfillSpan) -> Actor:
        """Start a backfill, and again if it is refused."""
        process = self._process(name)

        def job() -> None:
            copy_missing(self.make_source(self), self.hold(self, process), asked, lambda _: None)

        return self.kernel.spawn(name, process, lambda: self.kernel.work(job, times=3))

    def start_ingest(self, name: str, *, once: bool, batches: int = 4) -> Actor:
        """Start ingest."""
        process = self._process(name)

        def body() -> None:
            self.make_query(self, process, once, ModelIngest(self)).run(batches)

        return self.kernel.spawn(name, process, body)

    def start_reset(self, name: str) -> Actor:
        """Do what `checkpoint reset` does, if ingest does not run."""
        process = self._process(name)

        def body() -> None:
            if self._is_ingesting:
                return
            with self.hold(self, process):
                note = reset_note(ModelIngest(self))
                self.kernel.effect("moves the checkpoint aside", partial(self._reset, note), is_write=True)

        return self.kernel.spawn(name, process, body)

    def _reset(self, note: dict[str, Any]) -> None:
        # Nobody starts ingest while it is reset.
        if not self._is_ingesting:
            self.checkpoint = ModelCheckpoint(note=note)

    def _process(self, name: str) -> Process:
        process = Process(name, len(self.processes) + 1)
        self.processes[process.number] = process
        return process

    def _start_ingest(self) -> None:
        number = sum(name.startswith("ingest") for name in self.kernel.actors)
        if number < _INGESTS and not self._is_resetting:
            self.start_ingest(f"ingest-{number + 1}", once=self._are_once[number])

    @property
    def _is_ingesting(self) -> bool:
        return self._is_alive("ingest")

    @property
    def _is_resetting(self) -> bool:
        return self._is_alive("reset")

    def _is_alive(self, kind: str) -> bool:
        actors = self.kernel.actors.items()
        return any(name.startswith(kind) and not actor.has_ended for name, actor in actors)

    def check(self) -> None:
        """Make sure that bronze has each record once, in the order of ingestion.

        Raises:
            Violation: it has not.
        """
        if self.bronze.newest is self._newest:
            return
        self._newest = self.bronze.newest
        held = Counter(row.record.number for row in rows_of(self.bronze))
        if twice := [number for number, times in held.items() if times > 1]:
            raise Violation("each record once", f"records {twice} are in bronze twice")
        moments = [row.ingested_at for row in rows_of(self.bronze)]
        if moments != sorted(moments):
            raise Violation("bronze has an order", "a commit is of an earlier ingestion than one before it")

    def finish(self) -> None:
        """Let all end, and make sure that a last backfill completes bronze.

        Raises:
            Violation: it does not.
        """
        self.kernel.come_to_rest()
        for attempt in range(3):
            ingest = self.start_ingest(f"ingest-last-{attempt}", once=True, batches=10)
            self.kernel.run()
            if ingest.failure is None:
                break
            self.start_reset(f"reset-last-{attempt}")
            self.kernel.run()
        spans = {number: range(log.end) for number, log in enumerate(self.topic.logs)}
        last = self.start_backfill("backfill-last", BackfillSpan(offsets=spans))
        self.kernel.run()
        if ingest.failure or last.failure:
            raise Violation("the next backfill is done", repr(ingest.failure or last.failure))
        held = {row.record.number for row in rows_of(self.bronze)}
        there = [record for log in self.topic.logs for record in log.records.values()]
        if self.bronze.newest.properties.get(WHOLE_FROM):
            # What lies before the first offset in bronze then stays out, see docs/backfill.md.
            first = dict[int, int]()
            for row in rows_of(self.bronze):
                number = row.record.partition
                first[number] = min(row.record.offset, first.get(number, row.record.offset))
            there = [each for each in there if each.offset >= first.get(each.partition, 0)]
        if missing := [f"{each.partition}@{each.offset}" for each in there if each.number not in held]:
            raise Violation("bronze is complete", f"it lacks {missing}")

    def _restore(self, *, as_a_copy: bool) -> None:
        """Put bronze back to what it was some micro-batches ago."""
        if self._is_ingesting:
            return
        _, version = self._backups[max(0, len(self._backups) - 2)]
        log = self.bronze
        if as_a_copy:
            if self._is_alive("backfill"):
                # Under a transaction nobody can change a table; what is said of a lease is a look.
                return
            del log.versions[version + 1 :]
            return
        log.restore_to(version)

    def _send(self, number: int) -> None:
        if number < len(self.topic.logs) and len(self.topic.sent) < _MOST_RECORDS:
            self.topic.send(number, self.time(), self.time().date())

    def _delete(self, number: int) -> None:
        if number < len(self.topic.logs):
            self.topic.delete(number, 1)

    def _add_partition(self) -> None:
        if len(self.topic.logs) < 3:
            self.topic.logs.append(type(self.topic.logs[0])())

    def _start_once(self, kind: str, start: Callable[[], object]) -> None:
        if not self._is_alive(kind):
            start()

    def _accidents(self) -> None:
        accidents = self.kernel.accidents
        for number in range(3):
            accidents[f"a record comes to partition {number}"] = partial(self._send, number)
            accidents[f"Kafka deletes the oldest offset of partition {number}"] = partial(
                self._delete, number
            )
        accidents |= {
            "a partition is added": self._add_partition,
            "ingest is started": partial(self._start_once, "ingest", self._start_ingest),
            "a further ingest is started": self._start_ingest,
            "a further backfill is started": self._start_backfill,
            "ingest is reset": self._start_reset,
            "bronze is put back by RESTORE": partial(self._restore, as_a_copy=False),
            "bronze is put back by a copy": partial(self._restore, as_a_copy=True),
            "a property of bronze is set": partial(self.bronze.set_property, "other", "value"),
        }

    def _start_backfill(self) -> None:
        number = sum(name.startswith("backfill") for name in self.kernel.actors)
        if number < 5:
            self.start_backfill(f"backfill-{number}", BackfillSpan())

    def _start_reset(self) -> None:
        number = sum(name.startswith("reset") for name in self.kernel.actors)
        if number < 2 and not self._is_ingesting:
            self.start_reset(f"reset-{number}")
