"""`publish reset` while a micro-batch is in the middle of its parts: none is lost, and none comes twice."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame

from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError, InfrastructureError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.publishing.cluster import asking, fence_slots, read_slot_progress, write_slot_progress
from pipelines.publishing.settings import sink_of
from pipelines.publishing.slots import SlotProgress
from pipelines.publishing.transactional_sink import Published, Publisher
from pipelines.spark.stream_progress import new_run, write_progress
from pipelines.steps.publish import publish
from pipelines.steps.publish_reset import ResetTo, reset_publishing
from tests.support.accidents import dying, once
from tests.support.kafka import MakeTopic
from tests.support.lakes import Lake, flight
from tests.support.readers import messages_of

FLIGHTS, PARTS = range(1, 25), 3
FAULT = RuntimeError("a fault of the test")


@pytest.fixture
def output(topic: MakeTopic) -> str:
    return topic(partitions=4, name="parts")


@pytest.fixture
def make(
    publishing_lake: Callable[..., Lake],
    contract: DataContract,
    output: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Lake]:
    """A lake whose every micro-batch is sent in parts, as what a night changes is."""

    in_one = Publisher.__call__

    def in_parts(publishes: Publisher, rows: DataFrame, batch: int, parts: int = 1) -> Published:
        return in_one(publishes, rows, batch, PARTS)

    monkeypatch.setattr(Publisher, "__call__", in_parts)

    return partial(publishing_lake, contract, output, f"publish.progress_topic={output}-progress")


def send(lake: Lake) -> None:
    publish(lake.pipeline, once=True)


def dies_after(parts: int, lake: Lake) -> None:
    """Publishes some parts of a micro-batch of all flights."""
    lake.enter([flight(flight=number) for number in FLIGHTS])
    dies_before(parts + 1, lake)
    assert positions(lake) == {(0, parts)}


def dies_before(part: int, lake: Lake) -> None:
    """Publishes until it comes to a part, counted from the first that it sends."""
    with armed(Point.PART_DUE, dying(FAULT, time=part)), pytest.raises(InfrastructureError):
        send(lake)


def positions(lake: Lake) -> set[tuple[int, int]]:
    return {mark.position for mark in progress_of(lake).values()}


def progress_of(lake: Lake) -> dict[int, SlotProgress]:
    sink = sink_of(lake.config)
    with asking(sink) as cluster:
        return read_slot_progress(cluster, sink, is_stable=True)


def tell(lake: Lake, slot: int, **changes: Any) -> None:
    """Makes progress of a slot say something else."""
    sink, known = sink_of(lake.config), progress_of(lake)[slot]
    write_slot_progress(sink, fence_slots(sink, {}), {slot: replace(known, **changes)})


def times_sent(lake: Lake) -> Counter[int]:
    """How many flights were sent once, and how many more often."""
    assert lake.config.publish
    found = messages_of(lake.config.kafka.bootstrap_servers, lake.config.publish.topic)
    return Counter(Counter(message.key for message in found).values())


def each_once(lake: Lake) -> None:
    assert times_sent(lake) == Counter({1: len(FLIGHTS)})


def test_a_slot_committed_in_the_middle_of_a_part_goes_on_with_it_and_lost_progress_is_found_part_by_part(
    make: Callable[..., Lake], admin: AdminClient, output: str
) -> None:
    lake = make()
    dies_after(1, lake)
    tell(lake, 1, part=2, is_begun=True, written=None)
    with pytest.raises(SourceError, match=r"of micro-batch 0 slots 1 were committed before all"):
        send(lake)
    following = reset_publishing(lake.pipeline, "checkpoint", "unpublished")
    assert (following.next_batch, following.part, following.parts) == (0, 1, 3)
    dies_before(2, lake)
    assert positions(lake) == {(0, 2)}
    assert times_sent(lake).keys() == {1}
    group = sink_of(lake.config).name
    admin.delete_consumer_groups([group])[group].result(30)
    admin.delete_topics([f"{output}-progress"])[f"{output}-progress"].result(30)
    # It looks for the progress of a part before it sends it: this run dies before it looks for the second.
    dies_before(2, lake)
    assert positions(lake) == {(0, 1)}
    with pytest.raises(SourceError, match=r"slots 0, 1 .* 1 of 3 parts"):
        reset_publishing(lake.pipeline, "checkpoint", "published")
    send(lake)
    each_once(lake)


def test_a_reset_goes_by_the_checkpoint_as_it_is_once_nobody_can_publish_any_longer(
    make: Callable[..., Lake],
) -> None:
    lake = make()
    lake.enter([flight(flight=number) for number in FLIGHTS[:-1]])
    send(lake)

    def another() -> None:
        lake.enter([flight(flight=FLIGHTS[-1])])
        send(lake)

    with armed(Point.RESET_DUE, once(another)):
        assert reset_publishing(lake.pipeline, "checkpoint", None).next_batch == 2
    send(lake)
    each_once(lake)
    checkpoint = Path(lake.config.checkpoint("publish"))
    aside = checkpoint.rename(checkpoint.with_name("aside"))
    with (
        armed(Point.RESET_DUE, once(partial(aside.rename, checkpoint))),
        pytest.raises(ConfigError, match="the checkpoint exists"),
    ):
        reset_publishing(lake.pipeline, "beginning", None)
    # One that runs is not to lose its slots.
    write_progress(lake.spark, str(checkpoint), new_run("publish", 0.0, None))
    before = progress_of(lake)
    for to in ResetTo.__args__:  # type: ignore[attr-defined]
        with pytest.raises(InfrastructureError, match=r"publish_stream runs, as process .*'Stop the jobs'"):
            reset_publishing(lake.pipeline, to, None)
    assert {slot: mark.run for slot, mark in progress_of(lake).items()} == {
        slot: mark.run for slot, mark in before.items()
    }


@pytest.mark.thorough
@pytest.mark.parametrize("answer", ["published", "unpublished"])
def test_what_the_cluster_knows_of_parts_is_not_overruled(
    make: Callable[..., Lake], answer: Literal["published", "unpublished"]
) -> None:
    lake = make()
    dies_after(2, lake)
    other = make("publish.slots=3")
    with pytest.raises(SourceError, match=r"begun with 2.*publish_stream .*--once --set publish\.slots=2"):
        reset_publishing(replace(lake.pipeline, config=other.config), "checkpoint", answer)
    following = reset_publishing(lake.pipeline, "checkpoint", answer)
    assert (following.next_batch, following.part, following.parts) == (0, 2, 3)
    # Neither answer is right of a slot that has sent some parts, and nobody knows how many.
    tell(lake, 1, part=0, parts=1, is_lost=True)
    with pytest.raises(
        SourceError, match=r"slots 1 .* 2 of 3 parts.*publish reset .*--to beginning"
    ) as refused:
        reset_publishing(lake.pipeline, "checkpoint", answer)
    assert refused.value.exit_code == 4
    # The topic tells.
    send(lake)
    each_once(lake)
