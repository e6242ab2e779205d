"""What was sent of a lake, and whether its readers and those of the topic find the same."""

import json
from collections import Counter
from pathlib import Path

from pipelines.publishing.kafka_records import messages
from pipelines.steps.publish import publish
from pipelines.steps.publish_days import publish_days
from pipelines.steps.serving import read_serving
from tests.support.lakes import Lake
from tests.support.nights import ONE
from tests.support.readers import Message, messages_of

Told = Counter[tuple[int, str | None]]
"""How often each flight was sent, and why."""


def send(lake: Lake) -> int:
    """Publishes what there is; returns how many rows that were."""
    return publish(lake.pipeline, once=True).rows


def whole_day(lake: Lake, *, again: bool = False) -> int | None:
    """Publishes the first day as a whole; its rows, or None if it was published before."""
    return publish_days(lake.pipeline, "run", [ONE], again=again).rows[ONE]


def sent_by(lake: Lake) -> list[Message]:
    """What committed readers find on the topic."""
    assert lake.config.publish
    return messages_of(lake.config.kafka.bootstrap_servers, lake.config.publish.topic)


def told(lake: Lake) -> Told:
    """How often each flight was sent, and why."""
    return Counter(
        (
            json.loads(message.key or b"")["flight"],
            message.headers.get("oncelake.correction", b"").decode() or None,
        )
        for message in sent_by(lake)
    )


def differences(lake: Lake) -> dict[bytes | None, tuple[bytes | None, bytes | None]]:
    """Keys of which the compacted topic holds other values than the lake serves, with both values."""
    # All records of a key are in one partition, so their order is that of the topic.
    compacted = {message.key: message.value for message in sent_by(lake)}
    rows = messages(read_serving(lake.pipeline), lake.contract).collect()
    served: dict[bytes | None, bytes] = {bytes(row["key"]): bytes(row["value"]) for row in rows}
    both = {key: (compacted.get(key), served.get(key)) for key in {*compacted, *served}}
    return {key: (sent, read) for key, (sent, read) in both.items() if sent != read}


def is_what_readers_find(lake: Lake) -> None:
    """Asserts that the compacted topic holds what the lake serves."""
    assert differences(lake) == {}


def checkpoint_of_query(lake: Lake, query: str) -> Path:
    """Makes the publishing checkpoint of a query that has not done anything yet.

    Args:
        lake: the lake.
        query: the id of the query.

    Returns:
        Its folder.
    """
    checkpoint = Path(lake.config.checkpoint("publish"))
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": query}))
    return checkpoint
