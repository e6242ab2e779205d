"""The output topic, compacted by key, is what readers of the lake find; each correction comes once."""

import json
from collections import Counter
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.config_files import load_config
from pipelines.contract import DataContract
from pipelines.errors import InfrastructureError
from pipelines.layers.batch import nightly
from pipelines.layers.publish import publish
from pipelines.layers.serving import read_serving
from pipelines.messages import messages
from pipelines.quality.facts import days_of
from tests.support.kafka import MakeTopic
from tests.support.lakes import EPOCH, Lake
from tests.support.nights import LATER, ONE, THREE, TWO, on, stream
from tests.support.readers import Message, messages_of

EARLIER = EPOCH - timedelta(hours=1)


@pytest.fixture
def make(
    spark: SparkSession, small_by_flight: DataContract, broker: str, topic: MakeTopic, tmp_path: Path
) -> Callable[..., Lake]:
    """A lake whose key leaves the event time out: copies of a flight may lie on two days."""
    output = topic(partitions=2, name="corrected")

    def made(*settings: str) -> Lake:
        given = (
            f"lake.root={tmp_path}/lake",
            "batch.seal_by=bronze",
            f"kafka.bootstrap_servers={broker}",
            f"publish.topic={output}",
            "publish.slots=2",
            *settings,
        )
        config = load_config("flights", environ={}, settings=given).model_copy(
            update={"env": f"env-{output}"}
        )
        return Lake(spark, config, small_by_flight)

    return made


def night(lake: Lake, first: date, last: date | None = None) -> None:
    nightly(lake.spark, lake.config, lake.contract, "run", days_of(first, last or first), "late")


def send(lake: Lake) -> int:
    return int(publish(lake.spark, lake.config, lake.contract, once=True)["counts"]["rows"])


def sent_by(lake: Lake) -> list[Message]:
    assert lake.config.publish
    return messages_of(lake.config.kafka.bootstrap_servers, lake.config.publish.topic)


def is_what_readers_find(lake: Lake) -> None:
    """Asserts that the compacted topic holds what the lake serves."""
    # All records of a key are in one partition, so their order is that of the topic.
    compacted = {message.key: message.value for message in sent_by(lake)}
    served = messages(read_serving(lake.spark, lake.config), lake.contract).toLocalIterator()
    expected = {bytes(row["key"]): bytes(row["value"]) for row in served}
    assert {key: value for key, value in compacted.items() if value is not None} == expected


def told(lake: Lake) -> Counter[tuple[int, str | None]]:
    """How often each flight was sent, and why."""
    return Counter(
        (
            json.loads(message.key or b"")["flight"],
            message.headers.get("oncelake.correction", b"").decode() or None,
        )
        for message in sent_by(lake)
    )


@pytest.mark.parametrize("bytes_at_once", ["64m", "1b"])
def test_what_the_rebuild_adds_changes_and_removes_is_published_once(
    make: Callable[..., Lake], bytes_at_once: str
) -> None:
    lake = make(f"publish.max_bytes_per_trigger={bytes_at_once}")
    lake.ingest([on(1, 1), on(1, 2, departure_delay=5.0), on(1, 3), on(1, 4)])
    stream(lake)
    assert send(lake) == 4
    # A copy that was sent before changes what is certified, or the day on which it is.
    lake.ingest([on(1, 2, sent=EARLIER, departure_delay=7.0), on(2, 3, sent=EARLIER), on(1, 4), on(2, 5)])
    stream(lake)
    # What nobody has streamed yet is found by the rebuild alone.
    lake.ingest([on(1, 6)])
    night(lake, ONE)
    send(lake)
    is_what_readers_find(lake)
    first = Counter({(number, None): 1 for number in (1, 2, 3, 4, 5)})
    first += Counter([(2, "changed"), (3, "removed"), (6, "added")])
    assert told(lake) == first
    assert send(lake) == 0
    stream(lake)
    night(lake, TWO)
    lake.ingest([on(1, 7, sent=LATER), on(3, 8)])
    stream(lake)
    send(lake)
    is_what_readers_find(lake)
    second = first + Counter([(3, "added"), (8, None)])
    assert told(lake) == second
    # A copy for the day before takes an event away from a day that was certified with it.
    lake.ingest([on(1, 5, sent=EARLIER)])
    night(lake, THREE)
    send(lake)
    is_what_readers_find(lake)
    assert told(lake) == second + Counter([(7, "added"), (5, "changed")])


def test_a_settled_day_is_settled_once_whatever_is_certified_before_the_next_try(
    make: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make()
    lake.ingest([on(1, 1), on(2, 2)])
    stream(lake)
    send(lake)
    lake.ingest([on(1, 3)])
    night(lake, ONE)

    def dies(*words: Any) -> Any:
        raise RuntimeError("a fault of the test")

    monkeypatch.setattr("pipelines.layers.publish.messages", dies)
    with pytest.raises(InfrastructureError):
        send(lake)
    monkeypatch.undo()
    lake.ingest([on(1, 4, sent=LATER), on(2, 5)])
    night(lake, TWO)
    send(lake)
    is_what_readers_find(lake)
    kinds = {(number, None): 1 for number in (1, 2)} | {(number, "added"): 1 for number in (3, 4, 5)}
    assert told(lake) == Counter(kinds)


def test_publishing_begins_with_the_days_that_are_not_certified(make: Callable[..., Lake]) -> None:
    lake = make("publish.retraction=record")
    lake.ingest([on(1, 1), on(2, 2)])
    stream(lake)
    night(lake, ONE)
    assert send(lake) == 1
    # From then on its days are followed, too.
    lake.ingest([on(1, 3, sent=LATER), on(1, 2, sent=EARLIER)])
    night(lake, TWO)
    send(lake)
    kinds = [(2, None), (3, "added"), (2, "changed")]
    assert told(lake) == Counter(kinds)
