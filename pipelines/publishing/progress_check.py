"""Compare a cluster's progress of a sink with the checkpoint of the stream that it publishes."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NoReturn, Protocol
from uuid import uuid4

from confluent_kafka import KafkaError, KafkaException
from pyspark.sql import SparkSession
from tenacity import RetryCallState, retry, retry_if_exception, stop_after_attempt

from pipelines.errors import ConfigError, SourceError
from pipelines.fault_points import Point, reach
from pipelines.publishing.checkpoint_note import PARTITIONS, note_of
from pipelines.publishing.cluster import (
    Cluster,
    ProgressBySlot,
    asking,
    ensure_progress_topic,
    fence_slots,
    known_partitions,
    read_slot_progress,
    slots_to_take,
    topic_id,
    write_slot_progress,
)
from pipelines.publishing.progress_gap import current_marks, progress_gap
from pipelines.publishing.progress_refusals import (
    KEYS_MOVE,
    apart,
    begun_with_other_slots,
    from_the_beginning,
    refuse_incomplete,
    refuse_other_progress,
    reset_to_checkpoint,
)
from pipelines.publishing.slots import SlotProducer, SlotProgress
from pipelines.publishing.topic_lookup import published_slots
from pipelines.publishing.transactional_sink import Frame, Outgoing, Publisher, TransactionalSink
from pipelines.spark.checkpoints import QueryFiles, offsets_of, planned_at, query_files, write_note

_PASSES_OVER: Final = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")

_FENCED: Final = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)

_log = logging.getLogger(__name__)


def publisher(spark: SparkSession, sink: TransactionalSink, checkpoint: str) -> Publisher:
    """Compare the cluster's progress with a stream's checkpoint, and return what publishes the stream.

    Args:
        spark: The session.
        sink: Where the stream goes.
        checkpoint: The path of the checkpoint with which it will be started.

    Returns:
        A function for `foreachBatch`.

    Raises:
        ConfigError: There is no such topic, librdkafka refuses its settings, or the session passes over
            files.
        SourceError: Progress and checkpoint do not match, or another run takes the slots as well; the
            message says what to do.
        InfrastructureError: The cluster does not answer.
    """
    _refuse_to_pass_over(spark)
    with asking(sink) as cluster:
        start = _started(_OfKafka(spark, cluster, sink, checkpoint), sink)
    files, lost, settle = start.files, start.lost, None
    if lost and files.in_flight is not None:
        plan = offsets_of(spark, checkpoint, files.in_flight)
        if plan is None:
            raise RuntimeError(f"{checkpoint}: micro-batch {files.in_flight} was not planned")
        settle = partial(_settle, sink, lost, round(planned_at(plan).timestamp() * 1000))
    return Publisher(sink, start.last, start.ours, settle)


def _is_fenced(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _FENCED


def _taken_each_time(attempts: RetryCallState) -> NoReturn:
    cause = attempts.outcome.exception() if attempts.outcome else None
    raise SourceError(
        "another run has taken the slots each time that this one had. Two drivers publish with one checkpoint"
        " or a copy of it: leave one driver running"
    ) from cause


# A task of a run that was stopped may take its slot as late as that. A start anew then takes it once more.
@retry(
    retry=retry_if_exception(_is_fenced), stop=stop_after_attempt(3), retry_error_callback=_taken_each_time
)
def _started(effects: "StartEffects", sink: TransactionalSink) -> "RunStart":
    return start_run(effects, sink, uuid4().hex)


class StartEffects(Protocol):
    """What a start reads of a cluster and a checkpoint, and writes there."""

    def topic_id(self) -> str:
        """Return the id of the topic."""

    def files(self) -> QueryFiles:
        """Return what the checkpoint says."""

    def marks(self, *, is_stable: bool) -> dict[int, SlotProgress]:
        """Return what progress says; stable: after all that is under way has ended."""

    def partitions(self, files: QueryFiles) -> int:
        """Return how many partitions the topic has, if these are those that it had."""

    def fence_slots(self, marks: ProgressBySlot) -> Mapping[int, SlotProducer]:
        """Take all slots, those that an earlier run had among them."""

    def write(self, taken: Mapping[int, SlotProducer], marks: ProgressBySlot) -> None:
        """Write progress by the producers that have taken the slots."""

    def note(self, topic: str, partitions: int) -> None:
        """Write beside the checkpoint what it belongs to."""


@dataclass(frozen=True)
class _OfKafka:
    """A cluster and a checkpoint on a file system."""

    spark: SparkSession
    cluster: Cluster
    sink: TransactionalSink
    checkpoint: str

    def topic_id(self) -> str:
        topic = topic_id(self.cluster, self.sink.topic)
        ensure_progress_topic(self.cluster, self.sink)
        return topic

    def files(self) -> QueryFiles:
        return query_files(self.spark, self.checkpoint)

    def marks(self, *, is_stable: bool) -> dict[int, SlotProgress]:
        return read_slot_progress(self.cluster, self.sink, is_stable=is_stable)

    def partitions(self, files: QueryFiles) -> int:
        return partitions_of(self.cluster, self.sink, files)

    def fence_slots(self, marks: ProgressBySlot) -> Mapping[int, SlotProducer]:
        taken = fence_slots(self.sink, marks)
        reach(Point.SLOTS_FENCED)
        return taken

    def write(self, taken: Mapping[int, SlotProducer], marks: ProgressBySlot) -> None:
        write_slot_progress(self.sink, taken, marks)

    def note(self, topic: str, partitions: int) -> None:
        note = note_of(self.sink, topic, partitions, self.files().note)
        write_note(self.spark, self.checkpoint, note)


@dataclass(frozen=True)
class RunStart:
    """A run that has taken all slots.

    Attributes:
        ours: What progress of the run has in common, see `Publisher`.
        files: What the checkpoint says.
        lost: Slots whose progress was lost while a micro-batch was under way; None if none.
    """

    ours: SlotProgress
    files: QueryFiles
    lost: "_Lost | None"

    @property
    def last(self) -> int:
        """The last micro-batch of which somebody may have published something."""
        return self.files.next_batch - (self.files.in_flight is None)


def start_run(effects: StartEffects, sink: TransactionalSink, run: str) -> RunStart:
    """Take all slots for a run, if progress and checkpoint belong together, and say so in their progress.

    Args:
        effects: The cluster and the checkpoint.
        sink: Where the stream goes.
        run: The id of the run.

    Raises:
        SourceError: Progress and checkpoint do not match; the message says what to do.
    """
    topic = effects.topic_id()
    # Refused, if it has to be, before those who had the slots are shut out: they may be another's.
    marks = effects.marks(is_stable=False)
    refuse_other_progress(sink, topic, marks, effects.files())
    while True:
        taken = effects.fence_slots(marks)
        # Nothing of earlier runs can commit from now on, so what is read now stays.
        files, marks = effects.files(), effects.marks(is_stable=True)
        if {*slots_to_take(sink.slots, marks)} <= taken.keys():
            break
        # Another run has begun meanwhile, with more slots.
    mark = reconcile_with_checkpoint(sink, topic, marks, files)
    partitions = effects.partitions(files)
    ours = SlotProgress(0, "", topic, sink.slots, run=run, partitions=partitions)
    lost = None if files.in_flight is None else _lost(sink, marks, files, ours)
    new_marks = {slot: mark or marks[slot] for slot in range(sink.slots)}
    if lost:
        # A slot of which the topic has some parts is looked for from there on.
        new_marks |= {slot: marks[slot] for slot in new_marks if slot in marks}
        in_place = partial(replace, is_lost=True, partitions=lost.partitions)
        new_marks |= {slot: in_place(new_marks[slot]) for slot in lost.slots}
    # Whoever had the slots before, by the same checkpoint or a copy of it, learns it by this.
    if former := former_slots(marks, sink.slots, run):
        effects.write(taken, former)
    effects.write(taken, {slot: replace(mark, run=ours.run) for slot, mark in new_marks.items()})
    effects.note(topic, partitions)
    return RunStart(ours, files, lost)


def former_slots(marks: ProgressBySlot, slots: int, run: str) -> dict[int, SlotProgress]:
    """Return progress of slots that a sink had before and has no more, for another run.

    It is written before that of the others: a run that had more slots would publish those that it still has,
    and their rows are in other slots by then.

    Args:
        marks: What progress says.
        slots: How many slots the sink has now.
        run: The run that takes them; empty if it is none of a stream.
    """
    return {slot: replace(mark, run=run) for slot, mark in marks.items() if slot >= slots}


def _refuse_to_pass_over(spark: SparkSession) -> None:
    for setting in _PASSES_OVER:
        if str(spark.conf.get(setting, "false")).lower() != "false":
            raise ConfigError(
                f"{setting}: expected false: a file that is skipped changes the content of a micro-batch"
            )


@dataclass(frozen=True)
class _Lost:
    """Slots of a micro-batch whose progress was lost, and by how many partitions it divided keys."""

    slots: Sequence[int]
    partitions: int


def _lost(
    sink: TransactionalSink, marks: ProgressBySlot, files: QueryFiles, ours: SlotProgress
) -> _Lost | None:
    if _is_untouched(marks, replace(ours, source=files.query or ""), files):
        # Slots that it lacks are those by which there are more now.
        return None
    partitions = ours.partitions
    slots = [slot for slot in range(sink.slots) if slot not in marks or marks[slot].is_lost]
    if not slots:
        return None
    marks_of_batch = [
        mark
        for slot, mark in marks.items()
        if slot < sink.slots and (mark.is_lost or mark.position > (files.next_batch, 0))
    ]
    if marks_of_batch:
        partitions = marks_of_batch[0].partitions
    elif PARTITIONS not in files.note:
        # It was begun by an earlier version, which divided keys by a hash.
        partitions = 0
    return _Lost(slots, partitions)


def _settle(sink: TransactionalSink, lost: _Lost, begun_ms: int, rows: Outgoing, done: SlotProgress) -> None:
    """Write the progress of slots of which it was lost, by what is on the topic."""
    if not isinstance(rows, Frame):
        raise TypeError(f"found {type(rows)}, expected a frame: only its rows are looked for on a topic")
    # Of the parts that follow nobody knows yet.
    done = replace(done, partitions=lost.partitions, is_lost=done.part > 0)
    published = published_slots(rows.rows, sink, done, lost.slots, begun_ms)
    write_slot_progress(
        sink, {slot: sink.connection.take(slot) for slot in published}, dict.fromkeys(published, done)
    )


def partitions_of(cluster: Cluster, sink: TransactionalSink, files: QueryFiles) -> int:
    """Return how many partitions the topic has, which divide keys among slots.

    Args:
        cluster: Where it is.
        sink: Whose topic.
        files: What is known beside the checkpoint of the stream.

    Raises:
        SourceError: It has others than when it was published to before.
        InfrastructureError: The broker that was asked does not know them yet.
    """
    actual = known_partitions(cluster, sink.topic)
    # What is beside a checkpoint that was moved aside is about a stream that has ended.
    remembered = files.note.get(PARTITIONS, actual) if files.query is not None else actual
    if (expected := int(remembered)) != actual:
        raise SourceError(
            f"{sink.name}: topic '{sink.topic}': found {actual} partitions, expected the {expected} that it"
            f" had. {KEYS_MOVE} Recreate the topic, and start again. {from_the_beginning(sink, files)}"
            f" Or continue with the new number: {reset_to_checkpoint(sink, files)}"
        )
    return actual


def reconcile_with_checkpoint(
    sink: TransactionalSink, topic: str, marks: ProgressBySlot, files: QueryFiles
) -> SlotProgress | None:
    """Compare progress with the checkpoint, when nobody can change it any longer.

    Args:
        sink: As the stream will publish.
        topic: The id of the topic.
        marks: What progress says, of stable offsets.
        files: What the checkpoint says.

    Returns:
        What is to be written as progress of all slots first; None if it is right as it is.

    Raises:
        SourceError: They do not match; the message says what to do.
    """
    refuse_other_progress(sink, topic, marks, files)
    ours = SlotProgress(files.next_batch, files.query or "", topic, sink.slots)
    if not marks:
        return _without_progress(sink, ours, files)
    if files.query is None and any(mark.topic_id != topic for mark in marks.values()):
        # Written for a stream that has not begun; the topic was recreated since.
        return ours
    current = current_marks(marks)
    if not current:
        # What is left is of slots that the sink has no more.
        return _without_progress(sink, ours, files)
    refuse_incomplete(sink, current)
    slots = current[min(current)].slots
    if gap := progress_gap(current, ours, files):
        raise apart(sink, gap, current, files)
    if slots != sink.slots or any(mark.slots != slots for mark in current.values()):
        if files.in_flight is None or _is_untouched(marks, ours, files):
            return ours
        raise begun_with_other_slots(sink, files, slots)
    return _without_progress(sink, ours, files) if len(current) < slots else None


def _is_untouched(marks: ProgressBySlot, ours: SlotProgress, files: QueryFiles) -> bool:
    """Return whether no slot has committed any of the micro-batch that was begun, as all of them say.

    Before the tasks of a run begin, each of its slots has progress with their number. A start that dies
    while it changes the number may leave none of which all slots are there; then the answer is no, and the
    number that they were begun with is asked for.
    """
    before = {
        slot: mark
        for slot, mark in marks.items()
        if mark.source in ("", ours.source) and mark.topic_id == ours.topic_id
    }
    due = (files.next_batch, 0)
    if any(mark.position > due or mark.is_begun or mark.is_lost for mark in before.values()):
        return False
    at_it = {slot for slot, mark in before.items() if mark.position == due}
    return any(at_it >= {*range(mark.slots)} for mark in before.values())


def fits_in(mark: SlotProgress | None, ours: SlotProgress, files: QueryFiles) -> bool:
    """Return whether progress of a slot can be right as it is.

    Args:
        mark: What progress says.
        ours: What it says of a slot of which nothing newer than the checkpoint was published.
        files: What the checkpoint says.
    """
    fresh = {replace(ours, source="")} if ours.next_batch == 0 else set()
    whole = replace(mark, part=0) if mark and files.in_flight is not None else mark
    return whole in fresh | {replace(ours, next_batch=number) for number in _numbers(files)}


def _numbers(files: QueryFiles) -> set[int]:
    """Return the micro-batches that may come next for a slot: one that was begun may be published."""
    return {files.next_batch} | ({files.next_batch + 1} if files.in_flight is not None else set())


def _without_progress(sink: TransactionalSink, ours: SlotProgress, files: QueryFiles) -> SlotProgress:
    if files.in_flight is not None:
        _log.warning(
            "%s: the cluster has lost the progress of micro-batch %d, which was begun; topic %s is searched"
            " for what of it was published",
            *(sink.name, files.in_flight, sink.topic),
        )
        return ours
    if files.next_batch:
        _log.warning(
            "%s: the cluster has forgotten the progress (offsets.retention.minutes?); no micro-batch was"
            " begun, so it is written again",
            sink.name,
        )
        return ours
    # Which query it will be is not known before it runs.
    return replace(ours, source="")
