"""Certified days that a stream does not send are told, and sent as a whole, once, whatever goes wrong."""

import itertools
import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.cli.publish import summary_of_status, summary_of_stream
from pipelines.contracts.contract import DataContract
from pipelines.contracts.event_days import days_of
from pipelines.delta.io import small_rows
from pipelines.delta.tables import version
from pipelines.errors import ConfigError, InfrastructureError, OncelakeError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.ledger.leases import Lease
from pipelines.ledger.ops_tables import BEGUN_PUBLICATIONS
from pipelines.publishing.cluster import asking, fence_slots, read_slot_progress, write_slot_progress
from pipelines.publishing.published_days import settled_so_far
from pipelines.publishing.settings import sink_of
from pipelines.publishing.slots import ProgressError, SlotProgress, Written
from pipelines.publishing.transactional_sink import TransactionalSink
from pipelines.publishing.unsent_days import UnsentDays
from pipelines.steps import publish_days as whole_days
from pipelines.steps.publish import publish, publishing_status
from pipelines.steps.publish_days import publish_days
from pipelines.steps.publish_reset import reset_publishing
from testbed.waiting import wait_until
from tests.support.accidents import dying
from tests.support.certified_days import certify
from tests.support.kafka import MakeTopic
from tests.support.lake_copies import continued, copied, put_back
from tests.support.lakes import Lake, lake_that_publishes
from tests.support.nights import ONE, THREE, TWO, on
from tests.support.publish_faults import Fault, striking
from tests.support.published import is_what_readers_find, send, told
from tests.support.readers import is_open, messages_of

FLIGHTS = range(1, 21)
FAULT = RuntimeError("a fault of the test")


@pytest.fixture(scope="module")
def certified(
    spark: SparkSession, broker: str, small_by_flight: DataContract, tmp_path_factory: pytest.TempPathFactory
) -> Lake:
    """A lake with two certified days, which nobody has published."""
    folder = tmp_path_factory.mktemp("certified")
    lake = lake_that_publishes(spark, broker, folder, small_by_flight, "nowhere")
    lake.ingest_and_enter([*(on(1, number) for number in FLIGHTS), on(2, 101)])
    certify(lake, ONE, TWO)
    return lake


@pytest.fixture
def make(
    certified: Lake, publishing_lake: Callable[..., Lake], small_by_flight: DataContract, topic: MakeTopic
) -> Callable[..., Lake]:
    """A copy of it, published to a topic of this test alone, with some settings."""
    output = topic(partitions=2, name="whole")
    lake = continued(certified, publishing_lake(small_by_flight, output))

    def made(*settings: str) -> Lake:
        return lake.variant(config=publishing_lake(small_by_flight, output, *settings).config)

    return made


def whole(lake: Lake, *days: date) -> dict[date, int | None]:
    return publish_days(lake.pipeline, "run", days or [ONE], again=False).rows


def sent(lake: Lake) -> Counter[bytes | None]:
    assert lake.config.publish
    found = messages_of(lake.config.kafka.bootstrap_servers, lake.config.publish.topic)
    return Counter(message.key for message in found)


def sink_of_the_day(lake: Lake) -> TransactionalSink:
    """The sink by which a day was begun last: its name has the day, a version and more."""
    *_, begun = small_rows(BEGUN_PUBLICATIONS.rows(lake.pipeline).orderBy("begun_at"))
    return replace(sink_of(lake.config), name=begun["sink"])


def progress(sink: TransactionalSink) -> dict[int, SlotProgress]:
    with asking(sink) as cluster:
        return read_slot_progress(cluster, sink, is_stable=True)


def send_a_slot(lake: Lake, fault: Path) -> None:
    """Let a run die that has sent one of two slots of a day."""
    with striking(Fault(0, 1, Point.SLOT_SENT, "task", str(fault))), pytest.raises(InfrastructureError):
        publish_days(lake.pipeline, "run", [ONE], again=True)
    sink = sink_of_the_day(lake)
    wait_until(lambda: progress(sink)[0].next_batch == 1, "slot 0 is done", 30)


def rebuild_otherwise(lake: Lake, without: int, changed: int) -> None:
    """Certify the day without one of its flights, and with another delay of another one."""
    delay = F.when(F.col("flight") == changed, 99.0).otherwise(F.col("departure_delay"))
    certify(
        lake,
        ONE,
        changed=lambda rows: rows.where(f"flight != {without}").withColumn("departure_delay", delay),
    )


def named_as_before(lake: Lake, sink: TransactionalSink, admin: AdminClient) -> str:
    """Leave of a day that was begun what earlier releases left; return the name of its progress.

    They did not record that it was begun, and the name had no commit.
    """
    DeltaTable.forPath(lake.spark, BEGUN_PUBLICATIONS.path(lake.pipeline)).delete()
    name = re.sub(r"(\.day\.[-0-9]+\.\d+)-[0-9a-f]{8}\.", r"\1.", sink.name)
    assert name != sink.name
    earlier = replace(sink, name=name)
    write_slot_progress(earlier, fence_slots(earlier, {}), progress(sink))
    admin.delete_consumer_groups([sink.name])[sink.name].result(30)
    producer = Producer(dict(sink.client))
    for slot in range(sink.slots):
        producer.produce(sink.progress_topic, None, sink.name.encode(), slot)
    assert producer.flush(30) == 0
    return name


@pytest.mark.thorough
def test_a_task_that_fails_is_told_and_leaves_no_transaction_open(
    make: Callable[..., Lake], admin: AdminClient, tmp_path: Path
) -> None:
    lake = make()
    assert lake.config.publish
    servers, output = lake.config.kafka.bootstrap_servers, lake.config.publish.topic
    fails = Fault(0, 1, Point.SLOT_SENT, "task", f"{tmp_path}/fault")
    told = r"RuntimeError: a fault of the test\. What .*: fix the cause"
    with striking(fails), pytest.raises(InfrastructureError, match=told):
        whole(lake)
    assert Path(fails.marker).exists()
    wait_until(lambda: not is_open(servers, output), "readers wait for nobody", 30)
    sink = sink_of_the_day(lake)
    wait_until(lambda: progress(sink)[0].next_batch == 1, "slot 0 is done", 30)
    some = sent(lake)
    assert 0 < len(some) < len(FLIGHTS)
    # The rest has to be made of what was sent by then.
    other = make("publish.retraction=record")
    with pytest.raises(
        SourceError,
        match=r"slot 0 .* by other rules.*found record.*\(oncelake publish .*--date 2013",
    ):
        whole(other)
    true = progress(sink)[0]
    assert true.written
    wrong = Written(true.written.rows + 1, true.written.digest, true.written.rules)
    write_slot_progress(sink, fence_slots(sink, {}), {0: replace(true, written=wrong)})
    with pytest.raises(SourceError, match=r"slot 0 of micro-batch 0 was published with \d+ rows"):
        whole(lake)
    assert sent(lake) == some
    write_slot_progress(sink, fence_slots(sink, {}), {0: true})
    # The group has no members, so its offsets expire; records do not.
    name = named_as_before(lake, sink, admin)
    admin.delete_consumer_groups([name])[name].result(30)
    assert whole(lake) == {ONE: len(FLIGHTS)}
    assert set(sent(lake).values()) == {1}
    assert len(sent(lake)) == len(FLIGHTS)


@pytest.mark.thorough
def test_what_goes_wrong_is_told_in_words_and_nothing_is_sent(
    make: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make()
    ended: list[str] = []
    monkeypatch.setattr(whole_days, "end_transactions", lambda sink, run: ended.append(sink.name))

    def refused(told: type[OncelakeError], said: str) -> None:
        with pytest.raises(told, match=said):
            whole(lake)
        assert not sent(lake)

    with armed(Point.PART_DUE, dying(KafkaException(KafkaError(KafkaError._FENCED)))):
        refused(InfrastructureError, "Kafka refused, or did not")
    with armed(Point.PART_DUE, dying(ProgressError("another has them"))):
        refused(SourceError, r"another has them\. Does another deployment")
    assert len(ended) == 2
    assert all(f".day.{ONE}." in name for name in ended)
    with monkeypatch.context() as patched:
        patched.setattr(whole_days, "read_kept", lambda *words: None)
        refused(SourceError, rf"version \d+, by which {ONE} is certified, is gone: rebuild")

    def lost(lease: Lease) -> None:
        raise InfrastructureError("this run lost its lease")

    with monkeypatch.context() as patched:
        patched.setattr(Lease, "require", lost)
        refused(InfrastructureError, "lost its lease")


def test_a_whole_day_is_published_once_however_often_it_is_asked_for(
    make: Callable[..., Lake], admin: AdminClient
) -> None:
    lake = make("publish.max_bytes_per_trigger=4k")
    with pytest.raises(ConfigError, match=r"2013-01-03 is not certified; run first: .* --date 2013-01-03"):
        whole(lake, THREE)
    with armed(Point.PART_DUE, dying(FAULT, time=2)), pytest.raises(RuntimeError):
        whole(lake)
    assert 0 < sum(told(lake).values()) < len(FLIGHTS)
    with pytest.raises(ConfigError, match=r"with these: --set publish\.slots=2 --set publish\.max_bytes"):
        whole(make("publish.slots=3"))
    name = sink_of_the_day(lake).name
    admin.delete_consumer_groups([name])[name].result(30)
    assert whole(lake, ONE, TWO) == {ONE: len(FLIGHTS), TWO: 1}
    assert told(lake) == Counter((number, "day") for number in (*FLIGHTS, 101))
    assert whole(lake, ONE, TWO) == {ONE: None, TWO: None}
    is_what_readers_find(lake)
    # A stream that begins then sends what is rebuilt from then on.
    assert send(lake) == 0
    settled = settled_so_far(lake.pipeline)
    assert settled is not None
    assert settled.days == (ONE, TWO)


def test_a_day_of_a_restored_lake_is_sent_though_a_build_with_its_version_was_sent(
    make: Callable[..., Lake], tmp_path: Path
) -> None:
    lake = make()
    backup = copied(lake, tmp_path / "backup")
    certify(lake, ONE)
    batch = lake.config.table("batch")
    sent_at = version(lake.spark, batch)
    assert whole(lake) == {ONE: len(FLIGHTS)}
    # The lake forgets that it was sent, and the cluster does not.
    put_back(lake, backup, *(place.name for place in Path(backup.config.root).iterdir()))
    lake.enter([on(1, 21)])
    certify(lake, ONE)
    assert version(lake.spark, batch) == sent_at
    assert whole(lake) == {ONE: len(FLIGHTS) + 1}
    assert told(lake)[(21, "day")] == 1


@pytest.mark.thorough
def test_a_day_that_the_stream_has_corrected_on_one_topic_is_not_believed_to_be_on_another(
    make: Callable[..., Lake], topic: MakeTopic
) -> None:
    lake = make()
    elsewhere = make(f"publish.topic={topic(partitions=2, name='another')}")
    assert send(lake) == 0
    assert whole(elsewhere, ONE, TWO) == {ONE: len(FLIGHTS), TWO: 1}
    rebuild_otherwise(lake, without=1, changed=2)
    assert send(lake) == 2
    with pytest.raises(
        ConfigError, match=f"{ONE} was published at version .* and was rebuilt since.*--again"
    ):
        whole(elsewhere)
    assert publish_days(elsewhere.pipeline, "run", [ONE], again=True).rows == {ONE: len(FLIGHTS) - 1}
    is_what_readers_find(elsewhere)


@pytest.mark.parametrize("is_stream_first", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_what_a_run_that_died_has_sent_of_an_earlier_build_is_taken_back(
    make: Callable[..., Lake], tmp_path: Path, is_stream_first: bool
) -> None:
    lake = make()
    send_a_slot(lake, tmp_path / "fault")
    some = sorted(number for number, _ in told(lake))
    assert len(some) < len(FLIGHTS)
    gone, changed, *_ = some
    rebuild_otherwise(lake, gone, changed)
    if is_stream_first:
        # It sends no more of the day than what corrects it: nobody has sent all of it.
        assert send(lake) == 2
        assert told(lake)[(gone, "removed")] == told(lake)[(changed, "changed")] == 1
    assert whole(lake, ONE, TWO) == {ONE: len(FLIGHTS) - 1, TWO: 1}
    is_what_readers_find(lake)
    # All of that is done.
    before = told(lake)
    assert whole(lake, ONE, TWO) == {ONE: None, TWO: None}
    assert told(lake) == before


@pytest.mark.thorough
def test_a_day_that_is_begun_and_whose_neighbour_is_rebuilt_is_sent_when_it_is_rebuilt_too(
    make: Callable[..., Lake], tmp_path: Path
) -> None:
    lake, moved = make(), "flight <= 10"
    whole(lake, ONE, TWO)
    speed = DeltaTable.forPath(lake.spark, lake.config.table("speed"))
    speed.update(moved, {"_event_date": f"DATE'{TWO}'"})
    certify(lake, ONE, TWO)
    # Of a flight that is of the next day now, the row of that day is sent in place of a retraction.
    send_a_slot(lake, tmp_path / "fault")
    assert sum(count for (_, why), count in told(lake).items() if why == "changed") > 0
    speed.delete(moved)
    certify(lake, TWO)
    told_what_to_do = rf"neighbouring day was rebuilt .*nightly_batch .*--date {ONE}\).*--date {ONE} --again"
    with pytest.raises(SourceError, match=told_what_to_do):
        publish_days(lake.pipeline, "run", [ONE], again=True)
    certify(lake, ONE)
    publish_days(lake.pipeline, "run", [ONE, TWO], again=True)
    is_what_readers_find(lake)


def overtaken(lake: Lake) -> tuple[int, int]:
    """Take the lease away, rebuild the day otherwise, and let a stream begin; return what has changed."""
    DeltaTable.forPath(lake.spark, lake.config.ops_table("leases")).delete()
    unsent = {*FLIGHTS} - {number for number, _ in told(lake)}
    assert len(unsent) < len(FLIGHTS)
    gone, changed, *_ = sorted(unsent)
    rebuild_otherwise(lake, gone, changed)
    assert send(lake) == 2
    return gone, changed


def is_corrected(lake: Lake, gone: int, changed: int) -> None:
    """Assert that nothing came behind what corrects the day, and that the rest can be sent."""
    last = {number: why for number, why in told(lake) if number in {gone, changed}}
    assert last == {gone: "removed", changed: "changed"}
    assert whole(lake, ONE, TWO) == {ONE: len(FLIGHTS) - 1, TWO: 1}
    is_what_readers_find(lake)


def test_a_run_that_stood_still_between_two_parts_sends_nothing_behind_what_corrects_its_day(
    make: Callable[..., Lake],
) -> None:
    lake = make("publish.max_bytes_per_trigger=4k")
    changes, parts = list[int](), itertools.count(1)

    def stand_still() -> None:
        if next(parts) == 2:
            changes.extend(overtaken(lake))

    with (
        armed(Point.PART_DUE, stand_still),
        pytest.raises(
            InfrastructureError, match=f"{ONE}: the day may be published in part: .* lost its lease"
        ),
    ):
        whole(lake)
    is_corrected(lake, *changes)


@pytest.mark.thorough
def test_a_run_that_stood_still_before_a_commit_commits_nothing_behind_what_corrects_its_day(
    make: Callable[..., Lake], tmp_path: Path
) -> None:
    lake = make()
    slow = Fault(0, 1, Point.SLOT_SENT, "straggler", f"{tmp_path}/fault")
    with striking(slow), ThreadPoolExecutor(1) as beside:
        publishing = beside.submit(whole, lake)
        try:
            wait_until(Path(slow.marker).exists, "slot 1 waits before its commit")
            wait_until(lambda: bool(told(lake)), "slot 0 is on the topic")
            changes = overtaken(lake)
        finally:
            Path(f"{slow.marker}.done").touch()
        with pytest.raises(InfrastructureError):
            publishing.result(120)
    assert Path(f"{slow.marker}.refused").exists()
    is_corrected(lake, *changes)


@pytest.mark.thorough
def test_a_stream_that_begins_after_nights_says_what_it_leaves_and_how_it_is_sent(
    make: Callable[..., Lake], caplog: pytest.LogCaptureFixture
) -> None:
    lake = make()
    with caplog.at_level("WARNING"):
        begun = publish(lake.pipeline, once=True)
    assert begun.rows == 0
    assert begun.unsent == UnsentDays(never=(ONE, TWO))
    (line,) = summary_of_stream(lake.config, begun)["lines"]
    assert line in caplog.text
    command = re.search(r"oncelake publish --pipeline flights --env (\S+) --from (\S+) --to (\S+)", line)
    assert command
    assert command[1] == lake.config.env
    # Until somebody has sent them, in each summary.
    lake.ingest_and_enter([on(3, 201)])
    again = publish(lake.pipeline, once=True)
    assert again.rows == 1
    assert summary_of_stream(lake.config, again)["lines"] == [line]
    assert line in summary_of_status(lake.config, publishing_status(lake.pipeline))["lines"]
    days = days_of(date.fromisoformat(command[2]), date.fromisoformat(command[3]))
    publish_days(lake.pipeline, "run", days, again=False)
    assert publishing_status(lake.pipeline).unsent == UnsentDays()
    assert summary_of_stream(lake.config, publish(lake.pipeline, once=True))["lines"] == []


def test_a_stream_that_begins_anew_says_which_days_the_topic_has_of_the_one_before(
    make: Callable[..., Lake],
) -> None:
    lake = make()
    lake.ingest_and_enter([on(3, 201), on(4, 301)])
    send(lake)
    certify(lake, THREE)
    send(lake)
    # What follows is certified while nobody publishes.
    lake.enter([on(5, 401)])
    four, five = (date(2013, 1, day) for day in (4, 5))
    certify(lake, four)
    checkpoint = Path(lake.config.checkpoint("publish"))
    checkpoint.rename(checkpoint.with_name("aside"))
    reset_publishing(lake.pipeline, "beginning", None)
    send(lake)
    told_of = UnsentDays(never=(ONE, TWO), partly=(four,))
    assert publishing_status(lake.pipeline).unsent == told_of
    # A micro-batch that was not published any more has settled nothing.
    certify(lake, five)
    with armed(Point.BATCH_SETTLED, dying(FAULT)), pytest.raises(InfrastructureError):
        send(lake)
    checkpoint.rename(checkpoint.with_name("aside-too"))
    reset_publishing(lake.pipeline, "beginning", None)
    send(lake)
    assert publishing_status(lake.pipeline).unsent == UnsentDays(never=(ONE, TWO), partly=(four, five))


def test_partitions_that_the_topic_got_are_noticed_without_a_checkpoint_too(
    make: Callable[..., Lake], admin: AdminClient
) -> None:
    lake = make()
    assert lake.config.publish
    topic = lake.config.publish.topic
    refused = r"found {} partitions, expected the {} that it had .* add --accept-partitions"
    whole(lake, TWO)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    with pytest.raises(SourceError, match=refused.format(3, 2)) as no:
        whole(lake, ONE)
    assert no.value.exit_code == 4
    assert sum(sent(lake).values()) == 1
    publish_days(lake.pipeline, "run", [ONE], again=False, accept_partitions=True)
    # Whoever has accepted it need not do so again.
    publish_days(lake.pipeline, "run", [TWO], again=True)
    assert sum(sent(lake).values()) == len(FLIGHTS) + 2
    send(lake)
    checkpoint = Path(lake.config.checkpoint("publish"))
    checkpoint.rename(checkpoint.with_name("aside"))
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(30)
    with pytest.raises(SourceError, match=refused.format(4, 3)):
        reset_publishing(lake.pipeline, "beginning", None)
    reset_publishing(lake.pipeline, "beginning", None, accept_partitions=True)
    assert send(lake) == 0


def test_days_that_were_built_with_another_key_are_not_sent_with_the_key_of_now(
    make: Callable[..., Lake],
) -> None:
    lake = make()
    other = lake.variant(contract=replace(lake.contract, key=("carrier", "flight")))
    with pytest.raises(ConfigError, match="its days were built by another rule than the contract has now"):
        whole(other)
    assert not sent(lake)
    assert not BEGUN_PUBLICATIONS.exists(lake.pipeline)
