"""What is written beside the checkpoint of a stream that publishes: to which sink and topic it belongs."""

from collections.abc import Mapping
from typing import Any, Final

from pipelines.publishing.transactional_sink import TransactionalSink

PARTITIONS: Final = "partitions"
"""The word, beside a checkpoint, for how many partitions the topic had."""
SINK: Final = "sink"
"""The word, beside a checkpoint, for the name under which it has published."""
PROGRESS_IN: Final = "progress_topic"
"""The word, beside a checkpoint, for the topic that keeps its progress."""
SETTLED: Final = "settled"
"""The word, beside a checkpoint, for the last two micro-batches that settled days: `QUERY N VERSION; …`."""

FIRST_START: Final = "first_start"
"""The word, beside a checkpoint, for what was certified when it was first used: `VERSION COMMIT QUERY`."""


def partitions_in(note: Mapping[str, Any]) -> int | None:
    """Return how many partitions the topic had by a note; None if it does not say."""
    return int(note[PARTITIONS]) if PARTITIONS in note else None


def note_of(
    sink: TransactionalSink, topic: str, partitions: int, before: Mapping[str, Any]
) -> dict[str, str]:
    """Return what is written beside a checkpoint: what it belongs to, began with and has settled.

    Args:
        sink: Where the stream goes.
        topic: The id of the topic.
        partitions: How many partitions the topic has.
        before: What was written there.
    """
    return {
        **{word: str(before[word]) for word in (SETTLED, FIRST_START) if word in before},
        "topic_id": topic,
        PARTITIONS: str(partitions),
        SINK: sink.name,
        PROGRESS_IN: sink.progress_topic,
    }
