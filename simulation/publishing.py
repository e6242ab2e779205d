"""Publishing over a model of Kafka: drivers, tasks and their copies, with all that may go wrong."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaException

from pipelines.errors import InfrastructureError, OncelakeError
from pipelines.publishing.cluster import slots_to_take
from pipelines.publishing.progress_check import start_run
from pipelines.publishing.progress_reader import all_progress
from pipelines.publishing.slot_content import Content, ContentCounter
from pipelines.publishing.slot_writer import SlotResult, SlotTask, publish_slot
from pipelines.publishing.slots import (
    ProgressError,
    SlotConnection,
    SlotProducer,
    SlotProgress,
    UnsentError,
    send_progress,
)
from pipelines.publishing.topic_lookup import Row, slots_with_all
from pipelines.publishing.transactional_sink import Outgoing, Publisher, TransactionalSink
from pipelines.spark.checkpoints import QueryFiles
from simulation.kafka import ModelCluster, ModelConsumer, ModelProducer
from simulation.kernel import Actor, Kernel, Process, Schedule, Violation

_MOST_SLOTS: Final = 2
PARTITIONS: Final = 2
_TASK_TRIES: Final = 3
_MOST_ROWS: Final = 9
_TRANSACTION_TIMEOUT_MS: Final = 60_000
_OTHER_SLOTS: Final = "was begun with"
_OTHER_CONTENT: Final = ("was published with", "was published by other rules")


@dataclass(frozen=True)
class ModelConnection:
    """How slots are reached in the simulation, by one process."""

    world: "PublishingWorld"
    process: Process
    name: str = "sink"
    progress_topic: str = "progress"
    timeout_s: float = 30.0
    transaction_timeout_ms: int = _TRANSACTION_TIMEOUT_MS

    def take(self, slot: int) -> SlotProducer:
        """Return a producer for a slot, which from now on nobody else can write to."""
        return self.world.producer(self, slot)

    def consumer(self, *, is_stable: bool = True) -> Any:
        """Return a consumer of the group that keeps the progress."""
        return ModelConsumer(self.world.cluster, self.timeout_s, is_stable=is_stable)

    def clients(self, slot: int) -> "ModelClients":
        """Return the clients of one try to publish a slot, which is not taken yet."""
        return ModelClients(self, slot)


@dataclass(frozen=True)
class ModelClients:
    """The clients of one try to publish a slot in the simulation."""

    connection: SlotConnection
    slot: int

    def take(self) -> SlotProducer:
        """Return a producer for the slot, which from now on nobody else can write to."""
        return self.connection.take(self.slot)

    def consumer(self, *, is_stable: bool) -> Any:
        """Return a consumer of the group that keeps the progress."""
        return self.connection.consumer(is_stable=is_stable)

    def close(self) -> None:
        """Do nothing: the model has no connections."""


@dataclass(frozen=True)
class ModelSink(TransactionalSink):
    """A sink of the simulation."""

    reached: ModelConnection | None = None

    @property
    def connection(self) -> Any:
        """How its slots are reached."""
        return self.reached


@dataclass
class Checkpoint:
    """The files of a query.

    Attributes:
        query: its id; None before it has been started.
        plans: the rows of each micro-batch that was begun, from the first to the one behind the last.
        commits: the micro-batches that are done.
    """

    query: str | None = None
    plans: dict[int, range] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)

    def files(self) -> QueryFiles:
        """Return what `pipelines.spark.checkpoints.query_files` says of them."""
        following = max(self.commits, default=-1) + 1
        return QueryFiles("checkpoint", self.query, following, following if following in self.plans else None)


@dataclass(frozen=True)
class ModelRows:
    """The rows of a micro-batch, or of a part of it."""

    world: "PublishingWorld"
    driver: str
    ids: tuple[int, ...]
    shift: int
    slots: int

    def part(self, number: int, of: int) -> "ModelRows":
        """Return one of so many parts of them."""
        return replace(self, ids=tuple(each for each in self.ids if each // 2 % of == number))

    def count(self) -> int:
        """Return how many they are."""
        return len(self.ids)

    def contents(self, partitions: int) -> Mapping[int, Content]:
        """Return what each slot has of them."""
        return {slot: ContentCounter().drained(iter([self.of_slot(slot)])) for slot in range(self.slots)}

    def of_slot(self, slot: int) -> pa.RecordBatch:
        """Return the rows of a slot, as `pipelines.publishing.transactional_sink.in_slots` makes them."""
        placed = {each: (each + self.shift) % PARTITIONS for each in self.ids}
        ids = [each for each in self.ids if placed[each] % self.slots == slot]
        columns = {
            "key": pa.array([str(each).encode() for each in ids], pa.binary()),
            "value": pa.array([b"" for _ in ids], pa.binary()),
            "partition": pa.array([placed[each] for each in ids], pa.int32()),
            "_hash_1": pa.array([each * 7919 + 1 for each in ids], pa.int64()),
            "_hash_2": pa.array([each * 104729 + 3 for each in ids], pa.int64()),
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def written(self, task: SlotTask) -> Sequence[SlotResult]:
        """Let tasks publish the slots, as Spark does: again if one fails, or seems to be lost."""
        kernel = self.world.kernel
        running = {slot: self.world.start_task(self, slot, task) for slot in range(self.slots)}
        results, tries = dict[int, SlotResult](), Counter[int](running.keys())
        while len(results) < self.slots:
            kernel.sleep(2, "waits for its tasks")
            for slot, attempt in running.items():
                if slot in results:
                    continue
                if attempt.result:
                    results[slot] = attempt.result
                elif attempt.is_over or attempt.is_given_up:
                    if tries[slot] == _TASK_TRIES:
                        raise InfrastructureError(f"task of slot {slot} failed: {attempt.actor.failure}")
                    tries[slot] += 1
                    running[slot] = self.world.start_task(self, slot, task)
        return [results[slot] for slot in range(self.slots)]


@dataclass
class Attempt:
    """A task of Spark's that publishes a slot.

    Attributes:
        actor: runs it, in an executor of its own.
        result: what it has returned.
        is_given_up: whether Spark believes that its executor is lost, which may not be so.
    """

    actor: Actor
    result: SlotResult | None = None
    is_given_up: bool = False

    @property
    def is_over(self) -> bool:
        """Whether it has failed or died."""
        return self.actor.has_ended


class ModelStart:
    """What a start reads and writes, see `pipelines.publishing.progress_check.StartEffects`."""

    def __init__(self, world: "PublishingWorld", sink: ModelSink) -> None:
        self._world, self._sink = world, sink
        self.slots = sink.slots

    def topic_id(self) -> str:
        """Return the id of the topic."""
        return "topic"

    def files(self) -> QueryFiles:
        """Return what the checkpoint says."""
        return self._world.kernel.effect("reads the checkpoint", self._world.checkpoint.files)

    def marks(self, *, is_stable: bool) -> dict[int, SlotProgress]:
        """Return what progress says."""
        return all_progress(self._sink.connection, self._sink.slots, _MOST_SLOTS, is_stable=is_stable)

    def partitions(self, files: QueryFiles) -> int:
        """Return how many partitions the topic has."""
        return PARTITIONS

    def fence_slots(self, marks: Mapping[int, SlotProgress]) -> Mapping[int, SlotProducer]:
        """Take all slots, as `pipelines.publishing.cluster.fence_slots`."""
        taken = slots_to_take(self._sink.slots, marks)
        return {slot: self._sink.connection.take(slot) for slot in taken}

    def write(self, taken: Mapping[int, SlotProducer], marks: Mapping[int, SlotProgress]) -> None:
        """Write progress, as `pipelines.publishing.cluster.write_slot_progress`."""
        for slot, mark in marks.items():
            taken[slot].begin_transaction()
            send_progress(taken[slot], self._sink.connection, slot, mark, object())
            taken[slot].commit_transaction(30.0)

    def note(self, topic: str, partitions: int) -> None:
        """Write nothing beside the checkpoint: topic and partitions do not change."""


MakeProducer = Callable[["PublishingWorld", ModelConnection, int], SlotProducer]
Publish = Callable[[int, ModelRows, SlotTask], SlotResult]


def new_producer(world: "PublishingWorld", connection: ModelConnection, slot: int) -> SlotProducer:
    """Return a producer for each task, as `pipelines.publishing.slot_connections.Connection.take`."""
    timeout_s = connection.transaction_timeout_ms / 1000
    return ModelProducer(world.cluster, f"{connection.name}-{slot}", timeout_s)


def publish(slot: int, rows: ModelRows, task: SlotTask) -> SlotResult:
    """Publish a slot by the code of the jobs."""
    return publish_slot(slot, iter([rows.of_slot(slot)]), task)


@dataclass
class PublishingWorld:
    """A stream that is published, and the drivers that do so, of which there should be one.

    Attributes:
        schedule: who goes on, and with which fault.
        setup: decides what is there when it begins.
        make_producer: how a slot is taken; a planted fault is one that does so wrongly.
        publish: how a slot is published.
        connect: how slots are reached by a process.
        make_rows: makes the rows of a micro-batch.
        run_of: the id of the run of a driver.
        make_start: makes what a start reads and writes.
        are_rules_known: whether progress says by which key records were made; None: the setup decides.
        shift: which partition a row goes to; whoever changes it changes the key of the records.
    """

    schedule: Schedule
    setup: Random
    make_producer: MakeProducer = new_producer
    publish: Publish = publish
    connect: Callable[["PublishingWorld", Process], ModelConnection] = ModelConnection
    make_rows: Callable[["PublishingWorld", str, tuple[int, ...], int, int], ModelRows] = ModelRows
    run_of: Callable[[Process], str] = lambda process: process.name
    make_start: Callable[["PublishingWorld", ModelSink], ModelStart] = ModelStart
    are_rules_known: bool | None = None
    shift: int = 0
    tasks: int = 0
    _known: tuple[int, int] = (-1, -1)

    def __post_init__(self) -> None:
        self.kernel = Kernel(self.schedule, self.check)
        self.kernel.expected = (OncelakeError, ProgressError, UnsentError, KafkaException)
        self.cluster = ModelCluster(self.kernel)
        self.checkpoint = Checkpoint()
        self.rows = self.setup.randint(1, 5)
        self.parts = self.setup.choice((1, 1, 2))
        self.slots = self.setup.choice((1, 2, 2))
        if self.are_rules_known is None:
            self.are_rules_known = self.setup.random() < 0.5
        self.attempts: list[Attempt] = []
        for name in ("A", "B")[: self.setup.randint(1, 2)]:
            self.start(name)
        self._accidents()

    def producer(self, connection: ModelConnection, slot: int) -> SlotProducer:
        """Return a producer that has taken a slot."""
        return self.make_producer(self, connection, slot)

    def start(self, name: str) -> None:
        """Start a driver."""
        process = Process(name, 0)
        self.kernel.spawn(name, process, partial(self._drive, process))

    def start_task(self, rows: ModelRows, slot: int, task: SlotTask) -> Attempt:
        """Start a task of Spark's in a process of its own."""
        self.tasks += 1
        name = f"{rows.driver}.{slot}.{self.tasks}"
        process = Process(name, 0)
        connection = self.connect(self, process)
        own = SlotTask(connection, task.topic, task.done, task.is_new, task.rules, task.otherwise)

        def body() -> None:
            attempt.result = self.publish(slot, rows, own)

        attempt = Attempt(self.kernel.spawn(name, process, body))
        self.attempts.append(attempt)
        return attempt

    def _drive(self, process: Process) -> None:
        """Publish micro-batch after micro-batch, as Spark does with a checkpoint."""
        kernel, checkpoint = self.kernel, self.checkpoint
        # A driver reads its contract once.
        shift, slots = self.shift, self.slots
        rules = {"contract.key": str(shift)} if self.are_rules_known else {}
        sink = ModelSink("sink", "out", slots, {}, rules=rules, reached=self.connect(self, process))
        start = start_run(self.make_start(self, sink), sink, self.run_of(process))
        settle = partial(self._settle, sink, start.lost.slots) if start.lost else None
        publisher = Publisher(sink, start.last, start.ours, settle)
        query = kernel.effect("writes the id of the query", self._begin_query, is_write=True)
        batch = kernel.effect("reads the checkpoint", checkpoint.files).next_batch
        while plan := kernel.effect(f"plans micro-batch {batch}", partial(self._plan, batch), is_write=True):
            parts = self.parts
            rows: Outgoing = self.make_rows(self, process.name, tuple(plan), shift, slots)
            publisher.publish(rows, query, batch, parts)
            kernel.effect(f"micro-batch {batch} is done", partial(self._done, batch), is_write=True)
            batch += 1

    def _settle(self, sink: ModelSink, lost: Sequence[int], rows: Outgoing, done: SlotProgress) -> None:
        """Write progress that was lost, by what is on the topic, as `pipelines.publishing.progress_check`."""
        if not isinstance(rows, ModelRows):
            raise TypeError(f"found {type(rows)}, expected rows of the simulation")
        keys = {slot: rows.of_slot(slot).column("key").to_pylist() for slot in lost}
        by_row: dict[Row, int] = {(key, b"", ()): slot for slot in lost for key in keys[slot]}
        found = self.kernel.effect("looks for rows on the topic", self.published)
        published = slots_with_all(sink, by_row, {row for row in by_row if found[int(row[0] or b"-1")]})
        done = replace(done, is_lost=done.part > 0)
        taken = {slot: sink.connection.take(slot) for slot in published}
        ModelStart(self, sink).write(taken, dict.fromkeys(published, done))

    def _begin_query(self) -> str:
        self.checkpoint.query = self.checkpoint.query or "query"
        return self.checkpoint.query

    def _plan(self, batch: int) -> range | None:
        plans = self.checkpoint.plans
        if batch not in plans:
            first = max((plan.stop for plan in plans.values()), default=0)
            if first == self.rows:
                return None
            plans[batch] = range(first, self.rows)
        return plans[batch]

    def _done(self, batch: int) -> None:
        if batch in self.checkpoint.commits:
            raise InfrastructureError("another driver has written that this micro-batch is done")
        self.checkpoint.commits.add(batch)

    def published(self) -> Counter[int]:
        """Return how often readers of committed records get each row."""
        return Counter(
            int(record.key)
            for (topic, _), log in self.cluster.logs.items()
            if topic == "out"
            for record in log
            if record.key is not None and self.cluster.outcomes.get(record.transaction)
        )

    def check(self) -> None:
        """Make sure that no row is there twice, and that all rows of what is done are there.

        Raises:
            Violation: one is, or one is not.
        """
        known = (len(self.cluster.outcomes), len(self.checkpoint.commits))
        if known == self._known:
            return
        self._known, rows = known, self.published()
        if twice := [row for row, count in rows.items() if count > 1]:
            raise Violation("each row once", f"rows {twice} are there twice")
        for batch in self.checkpoint.commits:
            if missing := [row for row in self.checkpoint.plans[batch] if row not in rows]:
                raise Violation("nothing acknowledged is lost", f"micro-batch {batch} lacks rows {missing}")

    def finish(self) -> None:
        """Let all come to their end, and make sure that the next driver publishes the rest.

        Raises:
            Violation: it does not.
        """
        self.kernel.come_to_rest()
        self.start("last")
        self.kernel.run()
        failure = self.kernel.actors["last"].failure
        for attempt in ("again", "once more"):
            # Whoever changed something in the middle of a micro-batch takes that back.
            if failure and any(words in str(failure) for words in _OTHER_CONTENT):
                self.shift = 1 - self.shift
            elif failure and _OTHER_SLOTS in str(failure):
                self.slots = 3 - self.slots
            else:
                break
            name = f"last-{attempt}".replace(" ", "-")
            self.start(name)
            self.kernel.run()
            failure = self.kernel.actors[name].failure
        if failure:
            raise Violation("the next driver is done", repr(failure))
        if missing := sorted({*range(self.rows)} - {*self.published()}):
            raise Violation("each row once", f"rows {missing} are missing at the end")

    def _accidents(self) -> None:
        def more_rows() -> None:
            self.rows = min(self.rows + 2, _MOST_ROWS)

        def change_key() -> None:
            self.shift = 1 - self.shift

        def change_slots() -> None:
            self.slots = 3 - self.slots

        def give_up() -> None:
            running = [each for each in self.attempts if not each.is_over]
            if running:
                running[-1].is_given_up = True

        self.kernel.accidents.update(
            {
                "rows come": more_rows,
                "the key of records is changed": change_key,
                "the number of slots is changed": change_slots,
                "an executor is taken for lost": give_up,
                "offsets of the group expire": self.cluster.forget_offsets,
                "driver C is started": partial(self._start_once, "C"),
            }
        )

    def _start_once(self, name: str) -> None:
        if name not in self.kernel.actors:
            self.start(name)
