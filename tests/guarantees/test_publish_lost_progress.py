"""Progress that the cluster has lost is found again: in its records, or from the output topic itself."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_END, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from pipelines.contracts.contract import DataContract
from pipelines.delta.reader_position_check import require_not_read_ahead
from pipelines.errors import ConfigError, InfrastructureError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.publishing.cluster import asking, fence_slots, read_slot_progress, write_slot_progress
from pipelines.publishing.progress_check import publisher
from pipelines.publishing.settings import sink_of
from pipelines.publishing.unsent_days import UnsentDays
from pipelines.spark.checkpoints import note_beside, write_note
from pipelines.steps.publish import PublishedStream, publish, publishing_status
from pipelines.steps.publish_reset import reset_publishing
from tests.support.accidents import dying
from tests.support.kafka import MakeTopic, make_anew, make_topic, ordered_producer
from tests.support.lakes import Lake, flight
from tests.support.publish_faults import Fault
from tests.support.publish_stops import stop_in_the_middle
from tests.support.readers import messages_of


@pytest.fixture
def output(topic: MakeTopic) -> str:
    return topic(partitions=4, name="lost")


@pytest.fixture
def make(publishing_lake: Callable[..., Lake], contract: DataContract, output: str) -> Callable[..., Lake]:
    return partial(publishing_lake, contract, output, f"publish.progress_topic={output}-progress")


def enter(lake: Lake, *numbers: int) -> None:
    lake.enter([flight(flight=number) for number in numbers])


def send(lake: Lake) -> PublishedStream:
    return publish(lake.pipeline, once=True)


def forget(admin: AdminClient, output: str, *, records: bool) -> None:
    """Deletes the group, and the progress topic."""
    group = f"oncelake.{output}.flights"
    admin.delete_consumer_groups([group])[group].result(30)
    if records:
        admin.delete_topics([f"{output}-progress"])[f"{output}-progress"].result(30)


def under_way(lake: Lake, batch: int) -> None:
    """Makes a micro-batch that is done one that was under way."""
    for name in (f"{batch}", f".{batch}.crc"):
        Path(lake.config.checkpoint("publish"), "commits", name).unlink()


def each_once(broker: str, output: str, count: int) -> None:
    times = Counter(message.key for message in messages_of(broker, output))
    assert (len(times), {*times.values()}) == (count, {1})


def test_offsets_that_expired_are_known_from_records(
    make: Callable[..., Lake], admin: AdminClient, broker: str, output: str
) -> None:
    lake, progress = make(), f"{output}-progress"
    # As earlier versions made it.
    make_topic(admin, NewTopic(progress, 2, 1))
    enter(lake, 1, 2)
    send(lake)
    asked = ConfigResource(ConfigResource.Type.TOPIC, progress)
    assert admin.describe_configs([asked])[asked].result(30)["cleanup.policy"].value == "compact"
    forget(admin, output, records=False)
    enter(lake, 3, 4)
    assert send(lake).rows == 2
    forget(admin, output, records=False)
    under_way(lake, 1)
    assert publishing_status(lake.pipeline).slots == {0: 2, 1: 2}
    # What is done in all slots is not even read.
    assert send(lake) == PublishedStream(rows=2, slots_done_before=2, batches=0, unsent=UnsentDays())
    each_once(broker, output, 4)
    forget(admin, output, records=False)
    producer = ordered_producer(broker)
    producer.produce(progress, None, sink_of(lake.config).name.encode(), 1)
    assert not producer.flush(30)
    assert publishing_status(lake.pipeline).slots == {0: 2}
    # The topic's id is known beside the checkpoint, too.
    admin.delete_topics([progress])[progress].result(30)
    make_anew(admin, output, 4)
    with pytest.raises(SourceError, match="was recreated, or is another"):
        send(lake)


@pytest.mark.parametrize("done", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_a_slot_of_which_the_topic_has_rows_is_done_and_another_is_not(
    make: Callable[..., Lake], admin: AdminClient, broker: str, output: str, tmp_path: Path, done: int
) -> None:
    lake = make()
    enter(lake, *range(1, 9))
    if done == 1:
        slow = Fault(0, 1, Point.SLOT_SENT, "straggler", f"{tmp_path}/fault")
        # One slot is published, and the other waits before its commit.
        waits = Path(slow.marker).exists
        stop_in_the_middle(lake, slow, lambda: waits() and bool(messages_of(broker, output)))
    else:
        send(lake)
        under_way(lake, 0)
    forget(admin, output, records=True)
    # One who dies before he has looked leaves no progress that looks like any.
    publisher(lake.spark, sink_of(lake.config), lake.config.checkpoint("publish"))
    assert send(lake) == PublishedStream(rows=8, slots_done_before=done, batches=1, unsent=UnsentDays())
    each_once(broker, output, 8)
    # Where nothing was under way there is nothing to find out.
    forget(admin, output, records=True)
    enter(lake, 9)
    assert send(lake).rows == 1
    each_once(broker, output, 9)


def test_offsets_that_another_program_has_set_are_told_and_a_reset_goes_by_the_records(
    make: Callable[..., Lake], admin: AdminClient, broker: str, output: str
) -> None:
    lake, progress = make(), f"{output}-progress"
    # Two of its partitions are of slots that the sink has not.
    make_topic(admin, NewTopic(progress, 4, 1))
    enter(lake, 1, 2, 3, 4)
    send(lake)
    group = Consumer({"bootstrap.servers": broker, "group.id": sink_of(lake.config).name})
    group.commit(offsets=[TopicPartition(progress, slot, 7) for slot in range(4)], asynchronous=False)
    group.close()
    enter(lake, 5)
    to_repair = r"is no progress: found ''.*oncelake publish reset .*--to checkpoint"
    for refused in (send, lambda lake: publishing_status(lake.pipeline)):
        with pytest.raises(SourceError, match=to_repair):
            refused(lake)
    assert reset_publishing(lake.pipeline, "checkpoint", None).next_batch == 1
    told = publishing_status(lake.pipeline)
    assert (told.problem, {slot: told.slots[slot] for slot in range(2)}) == (None, {0: 1, 1: 1})
    assert send(lake).rows == 1
    each_once(broker, output, 5)


def test_progress_of_a_restored_cluster_is_passed_over_only_if_somebody_accepts_what_the_topic_lacks(
    make: Callable[..., Lake],
) -> None:
    lake = make("publish.max_bytes_per_trigger=1b")
    for number in (1, 2, 3):
        enter(lake, number)
    assert send(lake).batches == 3
    sink = sink_of(lake.config)
    with asking(sink) as cluster:
        known = read_slot_progress(cluster, sink, is_stable=True)
    earlier = {slot: replace(mark, next_batch=1) for slot, mark in known.items()}
    write_slot_progress(sink, fence_slots(sink, {}), earlier)
    with pytest.raises(SourceError, match=r"may lack micro-batches 1 to 2, .*--accept-missing"):
        send(lake)
    with pytest.raises(ConfigError, match=r"may lack micro-batches 1 to 2, .*add --accept-missing"):
        reset_publishing(lake.pipeline, "checkpoint", None)
    assert publishing_status(lake.pipeline).slots == {0: 1, 1: 1}
    done = reset_publishing(lake.pipeline, "checkpoint", None, accept_missing=True)
    assert (done.next_batch, done.missing, done.again) == (3, range(1, 3), range(0))
    enter(lake, 4)
    assert send(lake).rows == 1


def test_a_torn_plan_of_which_nothing_is_published_is_moved_aside_alone(
    make: Callable[..., Lake], broker: str, output: str
) -> None:
    lake = make()
    enter(lake, 1, 2)
    send(lake)
    enter(lake, 3)
    died = RuntimeError("a fault of the test")
    with armed(Point.PART_DUE, dying(died)), pytest.raises(InfrastructureError):
        send(lake)
    plans = Path(lake.config.checkpoint("publish"), "offsets")
    plans.joinpath("1").write_text("")
    for refused in (send, lambda lake: require_not_read_ahead(lake.pipeline, "speed")):
        with pytest.raises(
            SourceError, match=r"offsets/1: .*\.1\.crc out .*publish reset .*--to beginning"
        ) as no:
            refused(lake)
        assert no.value.exit_code == 4
    told = publishing_status(lake.pipeline)
    assert (told.checkpoint.next_batch, told.slots) == (1, {0: 1, 1: 1})
    for name in ("1", ".1.crc"):
        plans.joinpath(name).unlink()
    enter(lake, 4)
    assert send(lake).rows == 2
    each_once(broker, output, 4)


def test_progress_is_looked_for_where_it_was_written(
    make: Callable[..., Lake], broker: str, output: str
) -> None:
    lake, other = make(), make(f"publish.progress_topic={output}-other")
    enter(lake, 1)
    send(lake)
    enter(lake, 2)
    with pytest.raises(SourceError, match=f"found '{output}-other', expected '{output}-progress', which has"):
        send(other)
    assert publishing_status(other.pipeline).problem
    send(lake)
    reset_publishing(other.pipeline, "checkpoint", None)
    enter(other, 3)
    send(other)
    with pytest.raises(SourceError, match=f"found '{output}-progress', expected '{output}-other', which has"):
        send(lake)
    # Earlier releases did not note it.
    checkpoint = lake.config.checkpoint("publish")
    note = note_beside(lake.spark, checkpoint)
    assert note["sink"] == sink_of(lake.config).name
    for name in ("sink", "progress_topic"):
        write_note(lake.spark, checkpoint, {word: said for word, said in note.items() if word != name})
        send(other)
        assert note_beside(lake.spark, checkpoint) == note
    each_once(broker, output, 3)


@pytest.mark.thorough
def test_a_topic_that_begins_too_late_decides_nothing(
    make: Callable[..., Lake], admin: AdminClient, output: str
) -> None:
    lake = make()
    enter(lake, 1, 2, 3, 4)
    send(lake)
    under_way(lake, 0)
    forget(admin, output, records=True)
    gone = [TopicPartition(output, number, OFFSET_END) for number in range(4)]
    for deleted in admin.delete_records(gone).values():
        deleted.result(30)
    with pytest.raises(
        SourceError, match=r"begins later than it was sent.*--in-flight published\|unpublished"
    ):
        send(lake)
