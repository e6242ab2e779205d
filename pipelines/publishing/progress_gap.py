"""By which micro-batches progress and checkpoint are apart, since one of the two was restored from a copy."""

from dataclasses import dataclass

from pipelines.publishing.cluster import ProgressBySlot
from pipelines.publishing.slots import SlotProgress
from pipelines.spark.checkpoints import QueryFiles


@dataclass(frozen=True)
class ProgressGap:
    """Micro-batches that one of the two has and the other has not.

    Attributes:
        missing: Those that are done by the checkpoint, and not by the progress of some slot: the topic may
            lack them, and the stream does not send them again.
        ahead: Those of which some slot has progress, and which the checkpoint does not know to be done: the
            stream would send them again.
    """

    missing: range = range(0)
    ahead: range = range(0)

    def __bool__(self) -> bool:
        """Return whether the two are apart."""
        return bool(self.missing or self.ahead)


def progress_gap(marks: ProgressBySlot, ours: SlotProgress, files: QueryFiles) -> ProgressGap:
    """Return by which micro-batches progress and checkpoint are apart.

    Args:
        marks: What progress says; that of other checkpoints and topics is left out.
        ours: What it says of a slot of which nothing newer than the checkpoint was published.
        files: What the checkpoint says.
    """
    own = [
        mark
        for mark in current_marks(marks).values()
        if mark.source in ("", ours.source) and mark.topic_id == ours.topic_id
    ]
    following = files.next_batch
    first = min((mark.next_batch for mark in own), default=following)
    # A micro-batch of which parts are done is one that was published, for this.
    end = max((mark.next_batch + bool(mark.part) for mark in own), default=following)
    known = following + (files.in_flight is not None)
    return ProgressGap(range(first, following), range(following, end) if end > known else range(0))


def current_marks(marks: ProgressBySlot) -> ProgressBySlot:
    """Return the progress without that of slots that no longer exist."""
    slots = marks[min(marks)].slots if marks else 0
    return {slot: mark for slot, mark in marks.items() if slot < slots}


def micro_batches_text(numbers: range) -> str:
    """Return micro-batches in words."""
    first, last = numbers[0], numbers[-1]
    return f"micro-batch {first}" if first == last else f"micro-batches {first} to {last}"
