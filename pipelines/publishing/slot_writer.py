"""What runs on executors to publish a slot of a micro-batch: one transaction with rows and progress.

docs/decisions/0021 explains why this is exactly once. In short: a slot has one `transactional.id`. Whoever
begins to use it fences all who used it before, waits until their transactions have ended, and only then looks
how far the slot is. So between that look and its own commit nobody else can have committed anything.

A producer publishes one micro-batch. In transactions as librdkafka speaks them a request says which producer
and which epoch, not which transaction: one that ends a transaction and arrives late, after it was sent again,
would end the producer's next transaction (KIP-890). A producer that has only one leaves nothing to end.
"""

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import repeat
from typing import Final

import pyarrow as pa
from confluent_kafka import KafkaException, TopicPartition
from pyspark import TaskContext

from pipelines.fault_points import Point, reach
from pipelines.publishing.headers import Header, headers_of
from pipelines.publishing.progress_records import recorded_progress
from pipelines.publishing.slot_content import ContentCounter, refuse_other_rows
from pipelines.publishing.slots import (
    SlotClients,
    SlotConnection,
    SlotProducer,
    SlotProgress,
    UnsentError,
    Written,
    send_progress,
    what_to_do,
)

WRITTEN: Final = "slot int, rows bigint, was_done boolean"
"""What `write_slot` returns for a slot; `was_done`: an earlier try had published it."""

_WRITTEN: Final = pa.schema([("slot", pa.int32()), ("rows", pa.int64()), ("was_done", pa.bool_())])
_ANY: Final = -1

_COMMIT_TRIES: Final = 2
# A task that fails ends soon, whatever the cluster does.
_ABORT_S: Final = 5.0


@dataclass(frozen=True)
class SlotTask:
    """A micro-batch that is to be published.

    Attributes:
        connection: To the cluster.
        topic: Where rows go.
        done: What progress says once this micro-batch is published.
        is_new: Nobody can have published any of it before this try of its query.
        rules: What decides its rows, as `Written` has it.
        otherwise: What to do if it cannot be finished as it was begun, for messages.
    """

    connection: SlotConnection
    topic: str
    done: SlotProgress
    is_new: bool
    rules: Mapping[str, str]
    otherwise: str


class _Slot:
    """A producer that has a slot until another takes it, for one transaction, and how far the slot is."""

    def __init__(self, task: SlotTask, slot: int) -> None:
        self._task, self._number = task, slot
        self._timeout_s = task.connection.timeout_s
        self._transaction_s = task.connection.transaction_timeout_ms / 1000
        # Made now: clients from before may know a coordinator that has moved since.
        with closing(task.connection.clients(slot)) as clients:
            self._refuse_another_run(clients)
            self.producer = clients.take()
            self.mark, self._group = self._look(clients, is_stable=True)

    def _refuse_another_run(self, clients: SlotClients) -> None:
        """Refuse a slot that another run has, before taking it would end that run's transaction."""
        mark, run = None, self._task.done.run
        # What this run has written at its start may not be there yet for a look that does not wait.
        for is_stable in (False, True):
            with suppress(KafkaException):
                mark, _ = self._look(clients, is_stable=is_stable)
            if mark is None or mark.run == run:
                return
        what_to_do(mark, self._task.done, is_new=self._task.is_new)

    def _look(self, clients: SlotClients, *, is_stable: bool) -> tuple[SlotProgress | None, object]:
        consumer = clients.consumer(is_stable=is_stable)
        partitions = [TopicPartition(self._task.connection.progress_topic, self._number)]
        mark = SlotProgress.of(consumer.committed(partitions, timeout=self._timeout_s)[0])
        group = consumer.consumer_group_metadata()
        if mark is None and self._task.done.run:
            # A run of a stream has written progress at its start: offsets were forgotten since, records are
            # not. They may say that another run has published this micro-batch meanwhile.
            connection = self._task.connection
            mark = recorded_progress(connection, [self._number], is_stable=is_stable).get(self._number)
        return mark, group

    def begin(self, done: SlotProgress) -> None:
        """Begin a transaction with the progress, so that one who has lost the slot learns it at once.

        It says that the micro-batch is begun: if that were ever committed, the next start would report it.
        """
        self.producer.begin_transaction()
        begun = replace(done, is_begun=True)
        send_progress(self.producer, self._task.connection, self._number, begun, self._group)

    def finish(self, done: SlotProgress) -> None:
        """Say in the progress that these are all rows, and wait until the brokers have them.

        Raises:
            UnsentError: The brokers did not take them while the transaction may be open.
            KafkaException: The cluster refuses, or does not answer.
        """
        # A row that a broker refuses fails the transaction here, where it can still be rolled back; should
        # anybody end it before, it says that it was begun; and there is room in the producer's queue.
        self._flush()
        send_progress(self.producer, self._task.connection, self._number, done, self._group)
        self._flush()

    def _flush(self) -> None:
        if unsent := self.producer.flush(self._transaction_s):
            raise UnsentError(f"slot {self._number}: the brokers did not accept {unsent} rows in time")

    def abort(self) -> None:
        """Roll back, so that readers need not wait until somebody takes the slot, or time is over."""
        # Where the cluster does not take it either, whoever takes the slot next ends the transaction.
        with suppress(KafkaException):
            self.producer.abort_transaction(min(self._timeout_s, _ABORT_S))

    def commit(self) -> None:
        """Commit; readers see the rows and the next try sees the progress.

        Raises:
            KafkaException: The transaction failed, or nobody knows.
        """
        for left in reversed(range(_COMMIT_TRIES)):
            try:
                self.producer.commit_transaction(self._timeout_s)
                break
            except KafkaException as failed:
                # Whoever tries the slot next learns whether the transaction was committed after all.
                if not (left and failed.args[0].retriable()):
                    raise


def write_slot(batches: Iterator[pa.RecordBatch], task: SlotTask) -> Iterator[pa.RecordBatch]:
    """Publish the rows of the slot that is the partition of the frame, see `publish_slot`.

    Args:
        batches: The rows.
        task: What is to be published where.

    Yields:
        One row as `WRITTEN` has it.
    """
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("write_slot is for tasks of Spark")
    _freeze_modules()
    result = publish_slot(context.partitionId(), batches, task)
    yield pa.RecordBatch.from_arrays(
        [
            pa.array([value], field.type)
            for value, field in zip((result.slot, result.rows, result.was_done), _WRITTEN, strict=True)
        ],
        schema=_WRITTEN,
    )


@cache
def _freeze_modules() -> None:
    """Keep what this worker has imported out of collections of garbage.

    Spark's daemon (`pyspark.daemon`) collects all after each task, before it takes the next one: with our
    modules that is 25 ms, for which the next slot waits.
    """
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class SlotResult:
    """What became of a slot of a micro-batch.

    Attributes:
        slot: Its number.
        rows: How many it has.
        was_done: An earlier try had published it.
    """

    slot: int
    rows: int
    was_done: bool


def publish_slot(slot: int, batches: Iterator[pa.RecordBatch], task: SlotTask) -> SlotResult:
    """Publish the rows of one slot, all or none, unless that is done.

    Args:
        slot: Its number.
        batches: `key` and `value` as binary, and optionally `headers` and `partition`.
        task: What is to be published where.

    Raises:
        ProgressError: The cluster knows of another progress.
        ContentError: It was published, with other rows.
        KafkaException: The cluster refuses, does not answer, or another task has taken the slot.
    """
    taken, counter = _Slot(task, slot), ContentCounter()
    todo = what_to_do(taken.mark, task.done, is_new=task.is_new)
    if todo == "skip" and taken.mark:
        content = counter.drained(batches)
        if taken.mark == task.done:
            refuse_other_rows(slot, taken.mark, content, task.otherwise)
        return SlotResult(slot, content.rows, was_done=True)
    reach(Point.SLOT_TAKEN)
    try:
        taken.begin(task.done)
        _produce(counter.counted(batches), taken.producer, task.topic)
        content = counter.content
        taken.finish(replace(task.done, written=Written(content.rows, content.digest, task.rules)))
    except BaseException:
        taken.abort()
        raise
    reach(Point.SLOT_SENT)
    taken.commit()
    reach(Point.SLOT_COMMITTED)
    return SlotResult(slot, content.rows, was_done=False)


def write_empty_slot(batches: Iterator[pa.RecordBatch], task: SlotTask) -> Iterator[pa.RecordBatch]:
    """Write a slot that has no rows, as `write_slot` does; rows of the frame only say which slot it is."""
    for _ in batches:
        pass
    yield from write_slot(iter(()), task)


def _produce(batches: Iterator[pa.RecordBatch], producer: SlotProducer, topic: str) -> None:
    for batch in batches:
        keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
        headers: Iterator[list[Header]] = repeat([])
        partitions: Iterable[int] = repeat(_ANY)
        if "headers" in batch.schema.names:
            headers = headers_of(batch.column("headers"))
        if "partition" in batch.schema.names:
            partitions = batch.column("partition").fill_null(_ANY).to_pylist()
        for key, value, partition, pairs in zip(keys, values, partitions, headers, strict=False):
            # In place: a call for each row would be a tenth of its cost.
            while True:
                try:
                    producer.produce(topic, value, key, partition, headers=pairs)
                    break
                except BufferError:
                    # The queue is full: what the broker has taken makes room.
                    producer.poll(0.1)
        reach(Point.ROWS_PRODUCED)
        producer.poll(0)
