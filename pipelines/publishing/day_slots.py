"""The slots of a sink that sends one whole day: taken by each run that sends it, and by who corrects it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pipelines.errors import ConfigError
from pipelines.publishing.cluster import (
    Cluster,
    asking,
    fence_slots,
    read_slot_progress,
    slots_to_take,
    write_slot_progress,
)
from pipelines.publishing.progress_check import former_slots
from pipelines.publishing.publications import Begun
from pipelines.publishing.slots import OVERTAKEN, SlotProducer, SlotProgress
from pipelines.publishing.transactional_sink import TransactionalSink


def take_slots(sink: TransactionalSink, done: SlotProgress) -> dict[int, SlotProgress]:
    """Take all slots for a run that sends a day, and say so in their progress, which is returned.

    Whoever had them before can commit nothing from now on. Progress is written in any case: tasks look at the
    group's offsets first, and those expire.

    Args:
        sink: Where the day goes, under a name of this day alone.
        done: What progress says of each slot once all is sent. Parts count as micro-batches in it.

    Raises:
        ConfigError: An earlier run has sent a part of the day with other settings, or refused by the cluster.
        InfrastructureError: The cluster does not answer.
    """
    with asking(sink) as cluster:
        taken, marks = _fence(cluster, sink)
        begun = {slot: mark for slot, mark in marks.items() if mark.next_batch}
        _refuse_other_settings(sink, begun, done)
        fresh = replace(done, next_batch=0, source="")
        current = {slot: replace(begun.get(slot, fresh), run=done.run) for slot in range(sink.slots)}
        if former := former_slots(marks, sink.slots, done.run):
            write_slot_progress(sink, taken, former)
        write_slot_progress(sink, taken, current)
    return current


def overtake(sink: TransactionalSink, runs: Iterable[Begun], topic_id: str) -> None:
    """Let runs that have begun to send whole days send nothing more, before what corrects them is sent.

    One that stood still since others took its lease over may go on at any moment. A run looks at its lease
    after it has recorded that it begins and has taken its slots. So one that goes on in spite of that is
    among `runs`, and has its slots until now.

    Args:
        sink: The pipeline's sink.
        runs: What they have begun.
        topic_id: The cluster's identifier of the topic.

    Raises:
        InfrastructureError: The cluster does not answer, or refuses.
    """
    for name in sorted({each.sink for each in runs}):
        _overtake(replace(sink, name=name), topic_id)


def _overtake(sink: TransactionalSink, topic_id: str) -> None:
    with asking(sink) as cluster:
        marks = read_slot_progress(cluster, sink)
        if marks and all(mark.run == OVERTAKEN for mark in marks.values()):
            return
        taken, marks = _fence(cluster, sink)
        fresh = SlotProgress(0, "", topic_id, sink.slots)
        write_slot_progress(
            sink, taken, {slot: replace(marks.get(slot, fresh), run=OVERTAKEN) for slot in taken}
        )


def _fence(
    cluster: Cluster, sink: TransactionalSink
) -> tuple[dict[int, SlotProducer], dict[int, SlotProgress]]:
    """Take all slots, those that an earlier run had among them; return what progress says from then on."""
    marks = read_slot_progress(cluster, sink)
    while True:
        taken = fence_slots(sink, marks)
        marks = read_slot_progress(cluster, sink, is_stable=True)
        if {*slots_to_take(sink.slots, marks)} <= taken.keys():
            return taken, marks


def _refuse_other_settings(
    sink: TransactionalSink, begun: Mapping[int, SlotProgress], done: SlotProgress
) -> None:
    for mark in begun.values():
        if (mark.source, mark.topic_id, mark.slots) != (done.source, done.topic_id, done.slots):
            raise ConfigError(
                f"{sink.name}: an earlier run began to send it with other settings; finish it with these:"
                f" --set publish.slots={mark.slots} --set publish.max_bytes_per_trigger={mark.source}"
            )
