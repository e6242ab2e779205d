"""The slots of a sink that sends one whole day: each run that sends the day takes them for itself first."""

from collections.abc import Mapping
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
from pipelines.publishing.slots import SlotProducer, SlotProgress
from pipelines.publishing.transactional_sink import TransactionalSink


def take_slots(sink: TransactionalSink, done: SlotProgress) -> dict[int, SlotProgress]:
    """Take all slots for a run that sends a day, and say so in their progress, which is returned.

    Whoever had them before can commit nothing from now on. Progress is written in any case: tasks look at the
    group's offsets first, and those expire.

    Args:
        sink: where the day goes, under a name of this day alone.
        done: what progress says of each slot once all is sent. Parts count as micro-batches in it.

    Raises:
        ConfigError: an earlier run has sent a part of the day with other settings, or refused by the cluster.
        InfrastructureError: the cluster does not answer.
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
