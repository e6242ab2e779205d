"""Publishes any stream to Kafka, each row once for `read_committed` readers.

Rows go to a fixed number of slots by their key's partition of the topic. A task of Spark publishes one slot
of a micro-batch in one transaction of Kafka, together with the number of the micro-batch
(`pipelines.publishing.slot_writer`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.config.publish import PROGRESS_TOPIC
from pipelines.delta.io import small_rows
from pipelines.fault_points import Point, reach
from pipelines.publishing.headers import normalized
from pipelines.publishing.progress_reader import progress
from pipelines.publishing.slot_connections import Connection
from pipelines.publishing.slot_content import (
    COUNTED,
    NOTHING,
    Content,
    count_slot,
    refuse_other_rows,
    refuse_other_rules,
    with_hashes,
)
from pipelines.publishing.slot_writer import WRITTEN, SlotResult, SlotTask, write_empty_slot, write_slot
from pipelines.publishing.slots import SlotProgress, refuse_another_run
from pipelines.spark.streams import query_of

_PARTITION: Final = "oncelake_kafka_partition"
_PARTITION_CLASS: Final = "oncelake.publish.KafkaPartition"


@dataclass(frozen=True)
class TransactionalSink:
    """Where a stream is published.

    Attributes:
        name: The sink's own name on its cluster: the group that keeps its progress, and the beginning of its
            transactional ids. No two streams may share it.
        topic: Where rows go.
        slots: How many transactions publish a micro-batch. Fixed while one is under way.
        client: Librdkafka's settings for reaching the cluster, `bootstrap.servers` among them.
        rack_variable: The environment variable that names each executor's rack, for `client.rack`.
        progress_topic: A compacted topic with a partition for each slot, which keeps progress.
        timeout: How long the cluster may take for one answer.
        transaction_timeout: How long a transaction may be open: longer than a micro-batch ever takes.
        rules: What decides the rows beside the source, as words by name. While a part of a micro-batch is
            published and another is not, they may not change.
        identity: The columns by which rows are known again when a micro-batch is tried again.
        in_commands: The options that name its pipeline to `oncelake publish`, for messages.
        secrets: The names of the settings in `client` whose values are secrets.
        login_settings: Where its login is said, for messages.
        finish: The command that finishes what was begun; empty for that of a stream.
        rebuild: What to do if it cannot be finished as it was begun; empty for that of a stream.
    """

    name: str
    topic: str
    slots: int
    client: Mapping[str, Any] = field(repr=False)
    rack_variable: str | None = None
    progress_topic: str = PROGRESS_TOPIC
    timeout: timedelta = timedelta(seconds=30)
    transaction_timeout: timedelta = timedelta(minutes=5)
    rules: Mapping[str, str] = field(default_factory=dict)
    identity: Collection[str] = ("key", "value", "headers")
    in_commands: str = ""
    secrets: Collection[str] = ()
    login_settings: str = "its settings"
    finish: str = ""
    rebuild: str = ""

    def command(self, name: str, options: str = "") -> str:
        """Return this sink's command, such as `oncelake publish reset --pipeline flights --to checkpoint`."""
        return " ".join(filter(None, ("oncelake", name, self.in_commands, options)))

    @property
    def republish_command(self) -> str:
        """The commands that publish everything once more, after the checkpoint was moved aside."""
        reset, days = (
            self.command("publish reset", "--to beginning"),
            # Days that were sent as a whole to a topic that has lost them count as published.
            self.command("publish", "--from DAY --to DAY --again"),
        )
        return f"{reset}, and send certified days with {days}"

    @property
    def to_finish(self) -> str:
        """The command that finishes what was begun."""
        return self.finish or self.command("publish_stream", "--once")

    @property
    def otherwise(self) -> str:
        """What to do if what was begun cannot be finished as it was begun."""
        return self.rebuild or f"If they are gone: move the checkpoint aside, then {self.republish_command}"

    @property
    def to_repair(self) -> str:
        """What to do if something else than progress is in its place."""
        return (
            "To repair the progress of publish_stream:"
            f" {self.command('publish reset', '--to checkpoint')}; that of a whole day is known again once"
            " the offsets are deleted (kafka-consumer-groups.sh --delete-offsets"
            f" --group {self.name} --topic {self.progress_topic})"
        )

    @property
    def connection(self) -> Connection:
        """How its slots are reached, by whom it is sent to."""
        return Connection(
            name=self.name,
            progress_topic=self.progress_topic,
            client=dict(self.client),
            rack_variable=self.rack_variable,
            timeout_s=self.timeout / timedelta(seconds=1),
            transaction_timeout_ms=self.transaction_timeout // timedelta(milliseconds=1),
        )


@dataclass(frozen=True)
class Published:
    """What became of a micro-batch.

    Attributes:
        rows: It has.
        slots_done_before: Slots that an earlier try had published.
    """

    rows: int
    slots_done_before: int


class Publisher:
    """Publishes the micro-batches of one stream; for `foreachBatch`.

    Made by `pipelines.publishing.progress_check.publisher`, which first compares the cluster's progress
    with the stream's checkpoint.

    Args:
        sink: Where they go.
        last: The number of the last micro-batch of which somebody may have published something: a slot
            without progress is then refused, and not taken for one that has nothing yet.
        ours: What progress of this run has in common: topic, slots, partitions and the name of the run.
        settle: Writes progress that was lost, by the rows of a micro-batch that was under way then.
    """

    def __init__(
        self,
        sink: TransactionalSink,
        last: int,
        ours: SlotProgress,
        settle: Callable[["Outgoing", SlotProgress], None] | None = None,
    ) -> None:
        self.sink = sink
        self._last, self._ours, self._settle = last, ours, settle

    @property
    def topic_id(self) -> str:
        """The cluster's identifier of the topic, so that one that was recreated is noticed."""
        return self._ours.topic_id

    @property
    def run(self) -> str:
        """The run that has taken the slots."""
        return self._ours.run

    def __call__(self, rows: DataFrame, batch: int, parts: int = 1) -> Published:
        """Publish a micro-batch, unless that is done.

        Args:
            rows: `key` and `value` as binary or text, and optionally `headers`
                (see `pipelines.publishing.headers`) and `partition int`. When the micro-batch is tried again
                they must be the same, in any order: the source must be replayable, and the way here
                deterministic.
            batch: Its number.
            parts: How many transactions of each slot it is divided into, one after the other. One that was
                begun is finished in as many as it was begun with.

        Returns:
            What was done.

        Raises:
            ContentError: A part of it was published, with other rows.
            PythonException: A task failed; its text has the reason, a `ProgressError` among others.
        """
        return self.publish(Frame(rows, self.sink), query_of(rows.sparkSession), batch, parts)

    def publish(self, rows: "Outgoing", query: str, batch: int, parts: int = 1) -> Published:
        """Publish a micro-batch of a query, unless that is done; as a call does."""
        self._last, is_new = max(batch, self._last), batch > self._last
        marks = {} if is_new else progress(self.sink.connection, range(self.sink.slots), is_stable=True)
        done = replace(self._ours, next_batch=batch + 1, source=query)
        results = list[Published]()
        for part, mark in parts_due(marks, done, self.sink.slots, parts):
            some = rows.part(part, mark.parts)
            reach(Point.PART_DUE)
            if self._settle:
                self._settle(some, mark)
            results.append(publish_outgoing(some, self.sink, mark, is_new=is_new))
        self._settle = None
        return Published(
            rows=sum(each.rows for each in results),
            slots_done_before=sum(each.slots_done_before for each in results),
        )


def parts_due(
    marks: Mapping[int, SlotProgress], done: SlotProgress, slots: int, parts: int
) -> list[tuple[int, SlotProgress]]:
    """Return the parts of a micro-batch that some slot may lack, with what progress says once each is done.

    Args:
        marks: What progress says of the slots; none if nobody can have published any of it.
        done: What it says once the micro-batch is published.
        slots: How many there are.
        parts: How many transactions of each slot it is divided into, unless it was begun with others.
    """
    batch = done.batch
    begun = [mark for mark in marks.values() if mark.position > (batch, 0)]
    parts = begun[0].parts if begun else parts
    # A slot may be ahead by some parts: it divided keys as all of them have to.
    done = begun_with(dict(enumerate(begun)), replace(done, parts=parts))
    return [
        (part, done if part + 1 == parts else replace(done, next_batch=batch, part=part + 1))
        for part in range(_first_part(marks, batch, slots, parts), parts)
    ]


def _first_part(marks: Mapping[int, SlotProgress], batch: int, slots: int, parts: int) -> int:
    """Return the first part of a micro-batch that some slot may lack; the last if none does."""
    if len(marks) < slots:
        return 0
    done = (mark.part if mark.next_batch == batch else parts for mark in marks.values())
    return min(*done, parts - 1)


class Outgoing(Protocol):
    """Rows that are to be published: a frame, or those of a simulation."""

    def part(self, number: int, of: int) -> "Outgoing":
        """Return one of so many parts of them."""

    def count(self) -> int:
        """Return how many they are."""

    def contents(self, partitions: int) -> Mapping[int, Content]:
        """Return what each slot has of them, with keys divided by so many partitions of the topic."""

    def written(self, task: SlotTask) -> Sequence[SlotResult]:
        """Let a task publish each slot, and return what became of them."""


@dataclass(frozen=True)
class Frame:
    """The rows of a frame, which tasks of Spark publish."""

    rows: DataFrame
    sink: TransactionalSink

    def part(self, number: int, of: int) -> "Frame":
        """Return one of so many parts of them; all rows of a key are in one."""
        if of == 1:
            return self
        return Frame(self.rows.where(F.pmod(F.hash("key"), F.lit(of)) == number), self.sink)

    def count(self) -> int:
        """Return how many they are."""
        return self.rows.count()

    def contents(self, partitions: int) -> dict[int, Content]:
        """Return what each slot has of them."""
        counted = in_slots(self.rows, self.sink, partitions).mapInArrow(count_slot, COUNTED)
        return {row["slot"]: Content(row["rows"], row["digest"]) for row in small_rows(counted)}

    def written(self, task: SlotTask) -> list[SlotResult]:
        """Let a task of Spark publish each slot."""
        placed = in_slots(self.rows, self.sink, task.done.partitions)
        slots = small_rows(placed.mapInArrow(partial(write_slot, task=task), WRITTEN))
        if not slots:
            # Spark makes no tasks of a frame that it finds to be empty, and slots get on all the same.
            number = F.col("id").cast("int")
            every = self.rows.sparkSession.range(self.sink.slots).repartitionById(self.sink.slots, number)
            slots = small_rows(every.mapInArrow(partial(write_empty_slot, task=task), WRITTEN))
        return [SlotResult(**slot) for slot in slots]


def publish_rows(rows: DataFrame, sink: TransactionalSink, done: SlotProgress, *, is_new: bool) -> Published:
    """Publish a frame, see `publish_outgoing`."""
    return publish_outgoing(Frame(rows, sink), sink, done, is_new=is_new)


def publish_outgoing(
    rows: Outgoing, sink: TransactionalSink, done: SlotProgress, *, is_new: bool
) -> Published:
    """Publish one in a row of bounded frames, unless that is done.

    Args:
        rows: The rows.
        sink: Where they go.
        done: What progress says of each slot once they are published.
        is_new: Nobody can have published any of them before.

    Raises:
        ContentError: A part of them was published, and then they were others.
        PythonException: A task failed; its text has the reason, a `ProgressError` among others.
    """
    if not is_new:
        marks = progress(sink.connection, range(sink.slots), is_stable=True)
        before = {slot: mark for slot, mark in marks.items() if mark == done}
        for mark in before.values():
            refuse_another_run(mark, done.run)
        if len(before) == sink.slots:
            written = [mark.written.rows for mark in before.values() if mark.written]
            # Nothing is sent that other content could harm; not all progress says how many rows.
            total = sum(written) if len(written) == sink.slots else rows.count()
            return Published(rows=total, slots_done_before=sink.slots)
        done = begun_with(before, done)
        refuse_changed_content(rows, sink, before)
    task = SlotTask(
        connection=sink.connection,
        topic=sink.topic,
        done=done,
        is_new=is_new,
        rules=_rules(sink),
        otherwise=sink.otherwise,
    )
    slots = rows.written(task)
    if sorted(slot.slot for slot in slots) != list(range(sink.slots)):
        raise RuntimeError(f"{sink.name}: not every slot was published once: {slots}")
    return Published(
        rows=sum(slot.rows for slot in slots),
        slots_done_before=sum(slot.was_done for slot in slots),
    )


def refuse_changed_content(rows: Outgoing, sink: TransactionalSink, done: Mapping[int, SlotProgress]) -> None:
    """Make sure that the slots that are done still have the rows that they were made of.

    If a row has moved between a slot that is done and one that is still to be published, it would be lost or
    published twice.

    Args:
        rows: As `publish_outgoing` gets them.
        sink: Where they go.
        done: What progress says of the slots that are done.

    Raises:
        ContentError: They were made of others.
    """
    if not done:
        return
    for slot, mark in done.items():
        refuse_other_rules(slot, mark, _rules(sink), sink.to_finish)
    partitions = next(mark.partitions for mark in done.values())
    contents = rows.contents(partitions)
    for slot, mark in done.items():
        refuse_other_rows(slot, mark, contents.get(slot, NOTHING), sink.otherwise)


def begun_with(before: Mapping[int, SlotProgress], done: SlotProgress) -> SlotProgress:
    """Return what progress is to say, with keys divided as they were in slots that are done."""
    return replace(done, partitions=next((mark.partitions for mark in before.values()), done.partitions))


def _rules(sink: TransactionalSink) -> dict[str, str]:
    return {**sink.rules, "publish.slots": str(sink.slots)}


def in_slots(rows: DataFrame, sink: TransactionalSink, partitions: int) -> DataFrame:
    """Return rows as the slots publish them: partition n of the frame is slot n.

    Partition p of the topic belongs to slot p modulo their number, so that no two slots write to one, and
    readers of a partition wait for one transaction. All rows of a key are in one slot.

    Args:
        rows: As `Publisher` takes them. Those without a key are spread by their value.
        sink: Where they go.
        partitions: Of the topic; 0 divides keys by a hash of theirs, as was done before.

    Returns:
        `key binary, value binary` and, if `rows` has them, `headers`; `partition`, where it is known; and
        what `ContentCounter` sums up.
    """
    plain = rows.select(F.col("key").cast("binary"), F.col("value").cast("binary"), *_optional(rows))
    # All is computed before the shuffle: Spark makes no task of what comes after an empty one.
    plain, who = with_hashes(plain, sink.identity), F.coalesce("key", "value")
    if not partitions:
        slot = F.pmod(F.xxhash64(who), F.lit(sink.slots)).cast("int")
        return plain.repartitionById(sink.slots, slot)
    rows.sparkSession.udf.registerJavaFunction(_PARTITION, _PARTITION_CLASS, "int")
    by_key = F.coalesce(F.call_udf(_PARTITION, who, F.lit(partitions)), F.lit(0))
    partition = F.coalesce("partition", by_key) if "partition" in plain.columns else by_key
    placed = plain.withColumn("partition", partition)
    return placed.repartitionById(sink.slots, F.pmod("partition", F.lit(sink.slots)))


def _optional(rows: DataFrame) -> list[Column]:
    """Return the columns that rows may have, if they have them."""
    headers = [normalized(rows).alias("headers")] if "headers" in rows.columns else []
    partition = [F.col("partition").cast("int")] if "partition" in rows.columns else []
    return headers + partition
