"""Publish reset: make progress and checkpoint agree again, by what an operator has found out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from pipelines.errors import ConfigError, SourceError
from pipelines.fault_points import Point, reach
from pipelines.publishing.checkpoint_note import note_of, partitions_in
from pipelines.publishing.cluster import (
    Cluster,
    ProgressBySlot,
    asking,
    ensure_progress_topic,
    fence_slots,
    known_partitions,
    read_repairable_progress,
    slots_to_take,
    topic_id,
    write_slot_progress,
)
from pipelines.publishing.progress_check import fits_in, former_slots
from pipelines.publishing.progress_gap import (
    ProgressGap,
    current_marks,
    micro_batches_text,
    progress_gap,
)
from pipelines.publishing.progress_refusals import (
    begun_with_other_slots,
    from_the_beginning,
    refuse_other_partitions,
)
from pipelines.publishing.published_days import forget_from
from pipelines.publishing.settings import sink_of
from pipelines.publishing.slots import SlotProducer, SlotProgress
from pipelines.publishing.transactional_sink import TransactionalSink, begun_with
from pipelines.spark.checkpoints import QueryFiles, query_files, write_note
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.stopped_streams import require_stopped

ResetTo = Literal["beginning", "checkpoint"]
InFlight = Literal["published", "unpublished"]


@dataclass(frozen=True)
class PublishingReset:
    """Where `publish_stream` goes on.

    Attributes:
        sink: What publishes.
        next_batch: The micro-batch that is next; None if all begins anew.
        part: How many of its parts are done.
        parts: In how many parts it is sent; 1 if it comes as a whole.
        missing: Micro-batches that the topic may lack, and that are not sent.
        again: Micro-batches that consumers have already, and that are sent once more.
    """

    sink: str
    next_batch: int | None
    part: int = 0
    parts: int = 1
    missing: range = range(0)
    again: range = range(0)


def reset_publishing(
    pipeline: Pipeline,
    to: ResetTo,
    in_flight: InFlight | None,
    *,
    accept_missing: bool = False,
    accept_partitions: bool = False,
) -> PublishingReset:
    """Make progress and checkpoint agree again, by what an operator has found out.

    Args:
        pipeline: The pipeline.
        to: `beginning`: the cluster forgets the progress, for a checkpoint that is gone or was moved aside;
            `checkpoint`: progress becomes what the checkpoint says.
        in_flight: Whether the micro-batch that was begun, if there was one, is to count as published in
            slots that do not know it themselves.
        accept_missing: Go on also if the topic may lack micro-batches that are done by the checkpoint.
        accept_partitions: Begin also if the topic has got partitions since it was published to.

    Raises:
        ConfigError: A checkpoint is there, or is not, or it has to be said what becomes of a micro-batch.
        SourceError: Some of a micro-batch is published, and what is asked for would lose or double the rest;
            or the topic has other partitions than the checkpoint that was moved aside has published to.
        InfrastructureError: The stream runs on this machine; the cluster does not answer, or publishing
            continues.
    """
    require_stopped(pipeline, "publish")
    sink = sink_of(pipeline.config)
    # Refused, if it has to be, before those who had the slots are shut out.
    _require_fit(_files(pipeline), to, in_flight)
    reach(Point.RESET_DUE)
    with asking(sink) as cluster:
        ours = _of_topic(cluster, sink)
        taken, files, marks = _take(pipeline, cluster, sink)
        _require_fit(files, to, in_flight)
        ours = replace(ours, next_batch=files.next_batch, source=files.query or "")
        if to == "beginning":
            if not accept_partitions:
                _require_same_partitions(sink, files, ours)
            _forget_unfinished(pipeline, marks)
            _write(sink, taken, marks, dict.fromkeys(range(sink.slots), replace(ours, next_batch=0)))
            return PublishingReset(sink.name, None)
        gap = _gap(marks, ours, files)
        if gap.missing and not accept_missing:
            raise _missing(sink, gap.missing, files)
        new_marks = _known(sink, marks) | repaired_progress(sink, ours, marks, files, in_flight)
        _write(sink, taken, marks, new_marks)
    write_note(pipeline.spark, files.path, note_of(sink, ours.topic_id, ours.partitions, files.note))
    done = _where_it_goes_on(sink.name, [new_marks[slot] for slot in range(sink.slots)], files)
    return replace(done, missing=gap.missing, again=_sent_again(gap, new_marks))


def _files(pipeline: Pipeline) -> QueryFiles:
    return query_files(pipeline.spark, pipeline.checkpoint("publish"))


def _of_topic(cluster: Cluster, sink: TransactionalSink) -> SlotProgress:
    """Return what progress has of the topic, with which nothing has begun."""
    topic, partitions = topic_id(cluster, sink.topic), known_partitions(cluster, sink.topic)
    return SlotProgress(0, "", topic, sink.slots, partitions=partitions)


def _known(sink: TransactionalSink, marks: ProgressBySlot) -> dict[int, SlotProgress]:
    """Return what progress says of the slots that there are, which is written again.

    Some may be known by their records alone, as where another program has set the offsets.
    """
    return {slot: mark for slot, mark in marks.items() if slot < sink.slots}


def _take(
    pipeline: Pipeline, cluster: Cluster, sink: TransactionalSink
) -> tuple[Mapping[int, SlotProducer], QueryFiles, ProgressBySlot]:
    """Take all slots; return them, and what checkpoint and progress say once nobody else can publish."""
    ensure_progress_topic(cluster, sink)
    marks = read_repairable_progress(cluster, sink, is_stable=False)
    while True:
        taken = fence_slots(sink, marks)
        # Nothing of earlier runs can commit from now on, so the two that are read now go together.
        files, marks = _files(pipeline), read_repairable_progress(cluster, sink, is_stable=True)
        if {*slots_to_take(sink.slots, marks)} <= taken.keys():
            return taken, files, marks
        # A run has begun meanwhile, with more slots.


def _write(
    sink: TransactionalSink,
    taken: Mapping[int, SlotProducer],
    marks: ProgressBySlot,
    new_marks: ProgressBySlot,
) -> None:
    """Write progress, first that of slots that the sink has no more."""
    if former := former_slots(marks, sink.slots, ""):
        write_slot_progress(sink, taken, former)
    write_slot_progress(sink, taken, new_marks)


def _require_same_partitions(sink: TransactionalSink, files: QueryFiles, ours: SlotProgress) -> None:
    """Make sure that the topic has the partitions that it had for the checkpoint that was moved aside."""
    if files.note.get("topic_id") == ours.topic_id:
        refuse_other_partitions(sink, partitions_in(files.note), ours.partitions)


def _forget_unfinished(pipeline: Pipeline, marks: ProgressBySlot) -> None:
    """Forget what a checkpoint that was moved aside has settled by a micro-batch that was not published.

    The first micro-batch has no progress of its own before it is done (`pipelines.publishing.unsent_days`).
    """
    done: dict[str, int] = {}
    for mark in current_marks(marks).values():
        done[mark.source] = min(done.get(mark.source, mark.next_batch), mark.next_batch)
    for query, batch in done.items():
        forget_from(pipeline, query, batch)


def _gap(marks: ProgressBySlot, ours: SlotProgress, files: QueryFiles) -> ProgressGap:
    """Return by which micro-batches progress and checkpoint are apart: another topic has none of them."""
    if files.note.get("topic_id", ours.topic_id) != ours.topic_id:
        return ProgressGap(range(files.next_batch))
    return progress_gap(marks, ours, files)


def _missing(sink: TransactionalSink, missing: range, files: QueryFiles) -> ConfigError:
    return ConfigError(
        f"{sink.name}: the checkpoint {files.path} has gone further than progress, or has published to"
        f" another topic: topic '{sink.topic}' may lack {micro_batches_text(missing)}, which the stream does"
        " not send again. Progress is as it was; a run that was publishing was ended."
        f" {from_the_beginning(sink, files)} If consumers have these micro-batches, or do without them, add"
        " --accept-missing"
    )


def _sent_again(gap: ProgressGap, new_marks: ProgressBySlot) -> range:
    """Return the micro-batches that consumers have, and that are sent once more."""
    following = min(mark.next_batch for mark in new_marks.values())
    return range(max(following, gap.ahead.start), gap.ahead.stop) if gap.ahead else gap.ahead


def _require_fit(files: QueryFiles, to: ResetTo, in_flight: InFlight | None) -> None:
    if to == "beginning":
        _require_moved_aside(files)
    else:
        _require_answer(files, in_flight)


def _require_moved_aside(files: QueryFiles) -> None:
    if files.query is not None:
        raise ConfigError(
            f"{files.path}: the checkpoint exists, and publish_stream would continue from it. Stop"
            " publish_stream, move this folder aside, and run this command again"
        )


def _require_answer(files: QueryFiles, in_flight: InFlight | None) -> None:
    if files.query is None:
        raise ConfigError(
            f"{files.path}: there is no checkpoint to continue from; --to beginning publishes all rows"
        )
    if files.in_flight is not None and in_flight is None:
        raise ConfigError(
            f"{files.path}: micro-batch {files.in_flight} was begun; look into the topic, and add"
            " --in-flight published if all of it is there, or --in-flight unpublished if nothing is"
        )


def repaired_progress(
    sink: TransactionalSink,
    ours: SlotProgress,
    marks: ProgressBySlot,
    files: QueryFiles,
    in_flight: InFlight | None,
) -> dict[int, SlotProgress]:
    """Return what is to be written as progress of the slots that do not know themselves how far they are.

    Args:
        sink: As the stream will publish.
        ours: What progress says of a slot of which nothing newer than the checkpoint was published.
        marks: What progress says, of stable offsets.
        files: What the checkpoint says.
        in_flight: Whether a micro-batch that was begun is to count as published.

    Raises:
        SourceError: Some of it is published, and this would lose or double the rest.
    """
    _refuse_other_slots(sink, ours, marks, files)
    begun, unknown = dict[int, SlotProgress](), list[int]()
    for slot in range(sink.slots):
        mark = marks.get(slot)
        if mark and mark.is_begun and mark.batch == files.in_flight:
            whole = replace(mark, is_begun=False, run="")
            if fits_in(whole, ours, files):
                # It says which part that was, so the others that it has done are left alone.
                batch, part = whole.position if in_flight == "published" else whole.before
                begun[slot] = replace(whole, next_batch=batch, part=part)
                continue
        if mark is None or mark.is_lost or not fits_in(mark, ours, files):
            unknown.append(slot)
    if unknown:
        _refuse_in_parts(sink, unknown, marks, files)
    done = {slot: mark for slot, mark in marks.items() if mark.position > (files.next_batch, 0)}
    following = files.next_batch + (files.in_flight is not None and in_flight == "published")
    return begun | dict.fromkeys(unknown, replace(begun_with(done, ours), next_batch=following))


def _refuse_other_slots(
    sink: TransactionalSink, ours: SlotProgress, marks: ProgressBySlot, files: QueryFiles
) -> None:
    """Refuse to divide a micro-batch in another way than the one in which some slots are published."""
    others = [
        mark.slots
        for mark in marks.values()
        if (mark.source, mark.topic_id) == (ours.source, ours.topic_id)
        and mark.batch == files.in_flight
        and mark.slots != sink.slots
    ]
    if others:
        raise begun_with_other_slots(sink, files, others[0])


def _refuse_in_parts(
    sink: TransactionalSink, unknown: list[int], marks: ProgressBySlot, files: QueryFiles
) -> None:
    """Refuse an answer for the whole of a micro-batch of which some parts are done, and others are not."""
    in_parts = [mark for mark in marks.values() if mark.batch == files.in_flight and mark.parts > 1]
    if in_parts:
        newest = max(in_parts, key=lambda mark: mark.position)
        raise SourceError(
            f"{sink.name}: how many parts of micro-batch {files.in_flight} slots"
            f" {', '.join(map(str, unknown))} have sent is unknown, and other slots have sent"
            f" {newest.part or newest.parts} of {newest.parts} parts, so neither published nor unpublished is"
            " right. Start publish_stream, which finds it out if the topic still shows it. Otherwise start"
            f" again from the beginning: move {files.path} aside, then"
            f" {sink.command('publish reset', '--to beginning')}, and send certified days with"
            f" {sink.command('publish', '--from DAY --to DAY --again')}"
        )


def _where_it_goes_on(sink: str, marks: list[SlotProgress], files: QueryFiles) -> PublishingReset:
    next_one = min(marks, key=lambda mark: mark.position)
    parts = max((mark.parts for mark in marks if mark.batch == files.in_flight), default=1)
    if parts > 1 and next_one.next_batch == files.in_flight:
        return PublishingReset(sink, next_one.next_batch, next_one.part, parts)
    return PublishingReset(sink, next_one.next_batch)
