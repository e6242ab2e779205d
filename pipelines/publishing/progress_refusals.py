"""What is said where a cluster's progress of a sink does not go with the checkpoint of its stream."""

from typing import Final

from pipelines.errors import SourceError
from pipelines.publishing.checkpoint_note import PROGRESS_IN, SINK
from pipelines.publishing.cluster import ProgressBySlot
from pipelines.publishing.progress_gap import ProgressGap, current_marks, micro_batches_text
from pipelines.publishing.transactional_sink import TransactionalSink
from pipelines.spark.checkpoints import QueryFiles

KEYS_MOVE: Final = (
    "Keys would go to other partitions than their older records, so compaction would not remove those."
)
"""What it means that a topic has got partitions."""
_WHO: Final = (
    "Either another deployment publishes under the same pipeline and environment (give one of them another"
    " --env), or the checkpoint was lost or recreated (restore it)."
)


def refuse_other_progress(
    sink: TransactionalSink, topic: str, marks: ProgressBySlot, files: QueryFiles
) -> None:
    """Make sure that progress is that of this checkpoint and this topic, whatever it says.

    Args:
        sink: As the stream will publish.
        topic: The id of the topic.
        marks: What progress says.
        files: What the checkpoint says.

    Raises:
        SourceError: It is another's; the message says what to do.
    """
    marks = current_marks(marks)
    begun = [mark for mark in marks.values() if mark.source]
    if files.query is None:
        if begun:
            raise SourceError(
                f"{sink.name}: the cluster has progress of a stream that published to '{sink.topic}' before,"
                f" but its checkpoint {files.path} does not exist. {_WHO} {from_the_beginning(sink, files)}"
            )
        return
    _refuse_other_place(sink, files)
    for mark in begun:
        if mark.source != files.query:
            raise SourceError(
                f"{sink.name}: progress belongs to another checkpoint: found query {mark.source}, expected"
                f" {files.query} of {files.path}. {_WHO} {from_the_beginning(sink, files)}"
            )
    others = {mark.topic_id for mark in marks.values()} | {files.note.get("topic_id", topic)}
    if others - {topic}:
        raise SourceError(
            f"{sink.name}: topic '{sink.topic}' was recreated, or is another, or is on another cluster, since"
            f" it was published to: found id {topic}, expected {', '.join(sorted(others - {topic}))}."
            f" {from_the_beginning(sink, files)} To continue from the checkpoint instead, without what was"
            f" published so far: {reset_to_checkpoint(sink, files, '--accept-missing')}."
        )


def _refuse_other_place(sink: TransactionalSink, files: QueryFiles) -> None:
    """Make sure that progress is looked for where the runs of this checkpoint have written it.

    Notes of earlier releases do not say where that is.
    """
    if (was := files.note.get(SINK, sink.name)) != sink.name:
        raise SourceError(
            f"{sink.name}: found this name of the sink, expected '{was}', under which {files.path} has"
            " published: the pipeline or the environment has another name, or the checkpoint is another's."
            " Progress is kept under that name, and its runs are not shut out by this one. Undo the change;"
            f" or, once no run of that name is left: {_go_on(sink, files)} {from_the_beginning(sink, files)}"
        )
    if (was := files.note.get(PROGRESS_IN, sink.progress_topic)) != sink.progress_topic:
        raise SourceError(
            f"{sink.name}: publish.progress_topic: found '{sink.progress_topic}', expected '{was}', which has"
            f" the progress of {files.path}. Undo the change, and make it once no micro-batch is in flight:"
            f" {sink.command('publish_stream', '--once')}, then, with the new topic,"
            f" {reset_to_checkpoint(sink, files)}"
        )


def refuse_other_partitions(
    sink: TransactionalSink, known: int | None, partitions: int, accept: str = "add --accept-partitions"
) -> None:
    """Make sure that a topic has the partitions that it had, where no checkpoint of a stream says so.

    Args:
        sink: Whose topic.
        known: How many it had when it was published to; None if nobody knows.
        partitions: How many it has.
        accept: How others are accepted.

    Raises:
        SourceError: It has others.
    """
    if known is not None and known != partitions:
        raise SourceError(
            f"{sink.name}: topic '{sink.topic}': found {partitions} partitions, expected the {known} that it"
            f" had when it was published to. {KEYS_MOVE} Nothing was sent or reset. Publish to a new topic,"
            " made with all of its partitions (publish.topic); or, if consumers can do with both records of a"
            f" key, {accept}"
        )


def apart(
    sink: TransactionalSink, gap: ProgressGap, current: ProgressBySlot, files: QueryFiles
) -> SourceError:
    """Return what is said where progress and checkpoint are at different micro-batches.

    Args:
        sink: The sink.
        gap: By which they are apart.
        current: What progress says of the slots that there are.
        files: What the checkpoint says.
    """
    positions = sorted({mark.next_batch for mark in current.values()})
    where = (
        f"{sink.name}: progress is at micro-batch {', '.join(map(str, positions))}, but the checkpoint"
        f" {files.path} is at {files.next_batch}."
    )
    said = [where]
    if gap.missing:
        said.append(
            "Progress is older than the checkpoint: the cluster of the output topic was restored from a copy,"
            f" or progress was. So topic '{sink.topic}' may lack {micro_batches_text(gap.missing)}, which the"
            f" stream does not send again. {from_the_beginning(sink, files)} If consumers have these"
            f" micro-batches, or do without them: {reset_to_checkpoint(sink, files, '--accept-missing')}."
        )
    if gap.ahead:
        said.append(
            "The checkpoint is older than progress: it was restored from a backup. If you have the newer one,"
            f" restore it. Consumers have {micro_batches_text(gap.ahead)} already; to continue from the"
            f" checkpoint, which sends these again: {reset_to_checkpoint(sink, files)}."
        )
    return SourceError(" ".join(said))


def begun_with_other_slots(sink: TransactionalSink, files: QueryFiles, slots: int) -> SourceError:
    """Return what is said where `publish.slots` has changed in the middle of a micro-batch.

    Args:
        sink: The sink.
        files: The files of the query.
        slots: How many slots the micro-batch was begun with.
    """
    finish = sink.command("publish_stream", f"--once --set publish.slots={slots}")
    return SourceError(
        f"{sink.name}: publish.slots: found {sink.slots}, but micro-batch {files.in_flight} was begun"
        f" with {slots}. Finish it with that number ({finish}), then change it"
    )


def refuse_incomplete(sink: TransactionalSink, current: ProgressBySlot) -> None:
    """Make sure that no slot was committed before all of its rows were sent.

    Raises:
        SourceError: Some were.
    """
    if begun := {slot: mark for slot, mark in current.items() if mark.is_begun}:
        raise SourceError(
            f"{sink.name}: of micro-batch {max(mark.batch for mark in begun.values())} slots"
            f" {', '.join(map(str, begun))} were committed before all of their rows were sent, and not by"
            " their producer. Readers have a part of these slots. To send all of their rows once more:"
            f" {sink.command('publish reset', '--to checkpoint --in-flight unpublished')}"
        )


def from_the_beginning(sink: TransactionalSink, files: QueryFiles) -> str:
    """Return how everything is sent once more, as a sentence."""
    aside = f"move {files.path} aside, then " if files.query is not None else ""
    return f"To send everything once more: {aside}{sink.republish_command}."


def _go_on(sink: TransactionalSink, files: QueryFiles) -> str:
    return f"To continue from the checkpoint instead: {reset_to_checkpoint(sink, files)}."


def reset_to_checkpoint(sink: TransactionalSink, files: QueryFiles, accepted: str = "") -> str:
    """Return the command that goes on from the checkpoint.

    Args:
        sink: The sink.
        files: What the checkpoint says.
        accepted: The option that names what is accepted by that.
    """
    answer = "--in-flight published|unpublished" if files.in_flight is not None else ""
    return sink.command("publish reset", " ".join(filter(None, ("--to checkpoint", answer, accepted))))
