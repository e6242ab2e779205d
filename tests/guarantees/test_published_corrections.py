"""The output topic, compacted by key, is what readers of the lake find; each correction comes once."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from pipelines.cli.maintain import summary_of
from pipelines.contracts.contract import DataContract
from pipelines.delta.tables import version
from pipelines.delta.upkeep import compact
from pipelines.errors import ConfigError, InfrastructureError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.ledger.leases import lease
from pipelines.lineage.key_filter import asked_key
from pipelines.lineage.searches import OfKey
from pipelines.publishing.cluster import asking, read_slot_progress
from pipelines.publishing.published_days import waiting
from pipelines.publishing.settings import sink_of
from pipelines.retention.upkeep_run import KeptFiles
from pipelines.spark.session import forget_tables
from pipelines.steps.forget import forget_and_rebuild
from pipelines.steps.maintain import maintain
from pipelines.steps.publish_days import publish_days
from pipelines.steps.publish_reset import reset_publishing
from tests.support.accidents import dying
from tests.support.certified_days import late_night as night
from tests.support.kafka import MakeTopic, fresh_topics
from tests.support.lakes import Lake, compact_and_vacuum, lake_that_publishes
from tests.support.nights import EARLIER, LATER, ONE, THREE, TWO, on, stream
from tests.support.published import Told, differences, is_what_readers_find, send, told, whole_day

FAULT = RuntimeError("a fault of the test")
MANY = range(101, 121)


@pytest.fixture
def make(
    publishing_lake: Callable[..., Lake], small_by_flight: DataContract, topic: MakeTopic
) -> Callable[..., Lake]:
    """A lake whose key leaves the event time out: copies of a flight may lie on two days."""
    return partial(publishing_lake, small_by_flight, topic(partitions=2, name="corrected"))


@dataclass(frozen=True)
class Seen:
    """What readers of the topic had found at some moment, and where readers of the lake found otherwise."""

    sent: Told
    differs: Mapping[bytes | None, object]

    @classmethod
    def of(cls, lake: Lake) -> Self:
        return cls(told(lake), differences(lake))


@dataclass(frozen=True)
class FirstNight:
    """What was sent when days were certified of which some was sent before.

    Attributes:
        parts: that each slot had done when publishing died.
        died: what was sent by then.
        seen: when publishing had been started again.
        whole: rows of the first day when it was sent as a whole.
    """

    parts: list[int]
    died: Told
    seen: Seen
    whole: int | None


@dataclass(frozen=True)
class SecondNight:
    """What was sent when certified days were rebuilt.

    Attributes:
        late: what was sent of records of a certified day before that was rebuilt.
        refused: why the first day was not sent as a whole before the stream had sent what has changed.
        seen: when the stream had.
        lake: the lake. One test goes on with it, since a topic cannot be copied.
    """

    late: Told
    refused: str
    seen: Seen
    lake: Lake


def first_night(make: Callable[..., Lake], lake: Lake) -> FirstNight:
    first = [on(1, 1), on(1, 2, departure_delay=5.0), on(1, 4), on(2, 3), on(2, 5)]
    lake.ingest_and_enter([*first, *(on(1, number) for number in MANY)])
    assert send(lake) == 5 + len(MANY)
    # A copy that was sent before changes what is certified, or the day on which it is.
    copies = [on(1, number, sent=EARLIER, departure_delay=7.0) for number in (2, *MANY)]
    lake.ingest([*copies, on(1, 4), on(3, 3, sent=EARLIER + timedelta(days=1))])
    lake.ingest_and_enter([on(3, 9)])
    # What nobody has streamed yet is found by the rebuild alone.
    lake.ingest([on(1, 6)])
    night(lake, ONE, TWO)
    in_parts = make("publish.max_bytes_per_trigger=2k", "publish.transaction_timeout=10 seconds")
    with armed(Point.PART_DUE, dying(FAULT, time=3)), pytest.raises(InfrastructureError):
        send(in_parts)
    sink = sink_of(in_parts.config)
    with asking(sink) as cluster:
        known = read_slot_progress(cluster, sink, is_stable=True)
    parts, died = [mark.part for mark in known.values()], told(lake)
    # What was begun is finished in as many parts, whatever is asked for now.
    send(make("publish.max_bytes_per_trigger=1k"))
    return FirstNight(parts, died, Seen.of(lake), whole_day(lake))


def second_night(lake: Lake) -> SecondNight:
    lake.ingest_and_enter([on(1, 7, sent=LATER), on(4, 8)])
    send(lake)
    late = told(lake)
    # A copy for the day before takes an event away from a day that was certified with it.
    lake.ingest([on(1, 5, sent=EARLIER)])
    night(lake, THREE)
    with pytest.raises(InfrastructureError) as refused:
        whole_day(lake)
    send(lake)
    return SecondNight(late, str(refused.value), Seen.of(lake), lake)


@pytest.fixture(scope="module")
def nights(
    spark: SparkSession,
    broker: str,
    admin: AdminClient,
    small_by_flight: DataContract,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[FirstNight, SecondNight]]:
    """Two nights of one lake."""
    with fresh_topics(admin) as topic:
        output, folder = topic(partitions=2, name="corrected"), tmp_path_factory.mktemp("corrected")
        make = partial(lake_that_publishes, spark, broker, folder, small_by_flight, output)
        lake = make()
        yield first_night(make, lake), second_night(lake)


NEW: Told = Counter((number, None) for number in (1, 2, 3, 4, 5, 9, *MANY))
AFTER_ONE: Told = NEW + Counter(
    [(2, "changed"), (3, "removed"), (6, "added"), *((number, "changed") for number in MANY)]
)
WHOLE: Told = Counter((number, "day") for number in (1, 2, 4, 6, *MANY))
LATE: Told = AFTER_ONE + WHOLE + Counter([(8, None)])
AFTER_TWO: Told = LATE + Counter([(3, "added"), (7, "added"), (5, "changed")])
Nights = tuple[FirstNight, SecondNight]


def test_what_the_rebuild_adds_changes_and_removes_is_published_once(nights: Nights) -> None:
    first, second = nights
    assert first.seen == Seen(AFTER_ONE, {})
    # The next run sends none of it again. What comes late for a certified day waits for its rebuild.
    assert second.late == LATE
    assert second.seen == Seen(AFTER_TWO, {})


def test_what_a_night_changes_is_sent_in_parts_however_much_it_is(nights: Nights) -> None:
    first, _ = nights
    assert first.parts == [2, 2]
    some = sum(count for (number, why), count in first.died.items() if number in MANY and why)
    assert 0 < some < len(MANY)
    assert first.seen.sent == AFTER_ONE


@pytest.mark.thorough
def test_a_whole_day_does_not_overtake_what_the_stream_has_to_send(nights: Nights) -> None:
    first, second = nights
    assert first.whole == WHOLE.total()
    assert "publish_stream has not sent the changes of 2013-01-01" in second.refused
    # What the stream has sent by then need not come once more, unless somebody wants it.
    assert [whole_day(second.lake), whole_day(second.lake, again=True)] == [None, WHOLE.total() + 2]
    again = WHOLE + Counter([(5, "day"), (7, "day")])
    assert Seen.of(second.lake) == Seen(AFTER_TWO + again, {})


@pytest.mark.parametrize(
    ("bytes_at_once", "sent"),
    [
        # Certified, streamed and sent together: the one is right as it is, the other comes too late.
        ("64m", [(4, "added")]),
        # Sent before the end of a commit, when no day is settled.
        ("1b", [(4, None), (7, None), (7, "removed")]),
    ],
)
@pytest.mark.thorough
def test_what_comes_for_a_day_while_it_is_settled_waits_for_the_next_night(
    make: Callable[..., Lake], bytes_at_once: str, sent: list[tuple[int, str | None]]
) -> None:
    lake = make(f"publish.max_bytes_per_trigger={bytes_at_once}")
    lake.ingest([on(1, 1), on(2, 2), on(2, 3)])
    stream(lake)
    send(lake)
    lake.ingest([on(1, 4), on(2, 5, sent=LATER), on(3, 6)])
    night(lake, ONE)
    lake.ingest([on(1, 7, sent=LATER), on(1, 2, sent=EARLIER)])
    stream(lake)
    send(lake)
    is_what_readers_find(lake)
    new: list[tuple[int, str | None]] = [(number, None) for number in (1, 2, 3, 5, 6)]
    assert told(lake) == Counter([*new, *sent])
    # The copy of the day before stands for one that the next day loses, and comes once.
    night(lake, TWO)
    send(lake)
    is_what_readers_find(lake)
    assert told(lake)[(2, "changed")] == 1
    assert told(lake)[(7, "added")] == 1


@pytest.mark.thorough
def test_a_settled_day_is_settled_once_whatever_is_certified_before_the_next_try(
    make: Callable[..., Lake],
) -> None:
    lake = make()
    lake.ingest_and_enter([on(1, 1), on(2, 2)])
    lake.ingest_and_enter([on(1, 6)])
    send(lake)
    lake.ingest([on(1, 3)])
    night(lake, ONE)
    with armed(Point.BATCH_SETTLED, dying(FAULT)), pytest.raises(InfrastructureError):
        send(lake)
    # Nothing of it was sent, so upkeep still waits for it.
    assert [verdict.day for verdict in waiting(lake.pipeline)] == [ONE]
    # Nor do the small files go that it reads, when upkeep has put them together.
    assert compact(lake.spark, lake.config.table("speed")).count == 2
    upkeep = lake.config.maintain.model_copy(update={"vacuum_after": timedelta()})
    at_once = replace(lake.pipeline, config=lake.config.model_copy(update={"maintain": upkeep}))
    assert {KeptFiles("speed"), KeptFiles("batch")} <= {*maintain(at_once, "upkeep", dry_run=True).findings}
    lake.ingest([on(1, 4, sent=LATER), on(2, 5)])
    night(lake, TWO)
    send(lake)
    is_what_readers_find(lake)
    new: list[tuple[int, str | None]] = [(1, None), (2, None), (6, None)]
    assert told(lake) == Counter([*new, (3, "added"), (4, "added"), (5, "added")])


@pytest.mark.thorough
def test_after_a_checkpoint_was_restored_the_topic_comes_to_the_same(make: Callable[..., Lake]) -> None:
    lake = make()
    checkpoint, backup = Path(lake.config.checkpoint("publish")), Path(f"{lake.config.root}/backup")
    lake.ingest([on(1, 1), on(2, 2)])
    stream(lake)
    send(lake)
    shutil.copytree(checkpoint, backup)
    lake.ingest([on(1, 3)])
    night(lake, ONE)
    send(lake)
    shutil.rmtree(checkpoint)
    backup.rename(checkpoint)
    with pytest.raises(SourceError, match="was restored from a backup"):
        send(lake)
    assert reset_publishing(lake.pipeline, "checkpoint", None).again == range(1, 2)
    lake.ingest([on(1, 1, sent=EARLIER, departure_delay=9.0), on(2, 4)])
    stream(lake)
    night(lake, ONE)
    send(lake)
    is_what_readers_find(lake)
    assert told(lake)[(1, "changed")] == 1


@pytest.mark.thorough
def test_after_the_ledger_of_verdicts_was_restored_the_topic_comes_to_the_same(
    make: Callable[..., Lake],
) -> None:
    lake = make()
    ledger, backup = Path(lake.config.ops_table("certifications")), Path(f"{lake.config.root}/backup")
    lake.ingest_and_enter([on(1, 1), on(2, 2), on(3, 3)])
    send(lake)

    def claim(times: int) -> None:
        """Commits to the ledger, as runs of all pipelines do."""
        for _ in range(times):
            with lease(lake.pipeline, "run"):
                pass

    # A night makes two commits. The new ledger comes to fewer than were read of the old one, or as many.
    for day, number, claims in ((ONE, 4, 0), (TWO, 5, 1)):
        shutil.copytree(ledger, backup)
        claim(3)
        send(lake)
        read = version(lake.spark, str(ledger))
        shutil.rmtree(ledger)
        backup.rename(ledger)
        forget_tables()
        lake.ingest([on(day.day, number)])
        night(lake, day)
        claim(claims)
        assert version(lake.spark, str(ledger)) == read - 1 + claims
        assert send(lake) == 1
        is_what_readers_find(lake)
    assert told(lake) == Counter([(1, None), (2, None), (3, None), (4, "added"), (5, "added")])


@pytest.mark.thorough
def test_days_that_were_sent_as_a_whole_are_followed_when_the_stream_begins(
    make: Callable[..., Lake],
) -> None:
    lake = make()
    lake.ingest([on(1, 1), on(1, 2), on(2, 3)])
    night(lake, ONE)
    whole = partial(publish_days, lake.pipeline, "run", [ONE])
    whole(again=False)
    lake.ingest([on(1, 4, sent=LATER), on(2, 2, sent=EARLIER)])
    night(lake, TWO)
    lake.ingest([on(1, 5, sent=LATER)])
    sent = [(1, "day"), (2, "day")]
    with pytest.raises(ConfigError, match=r"was rebuilt since, at version \d+\..*--again"):
        whole(again=False)
    assert told(lake) == Counter(sent)
    send(lake)
    # Flight 2 is of the next day now, which nobody has sent.
    assert told(lake) == Counter([*sent, (4, "added"), (2, "changed")])
    whole(again=True)
    assert told(lake) == Counter([*sent, (4, "added"), (2, "changed"), (1, "day"), (4, "day")])


@pytest.mark.thorough
def test_an_event_that_moves_between_days_sent_as_a_whole_stays_on_the_topic(
    make: Callable[..., Lake], spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    lake = make()
    whole = partial(publish_days, lake.pipeline, "run", [ONE, TWO])
    lake.ingest([on(1, 1), on(2, 2), on(2, 3)])
    night(lake, ONE, TWO)
    whole(again=False)
    lake.ingest([on(1, 2, sent=EARLIER)])
    night(lake, ONE, TWO)
    # No stream tells what has become of it.
    whole(again=True)
    is_what_readers_find(lake)
    lake.ingest([on(2, 2, sent=EARLIER - timedelta(minutes=30))])
    night(lake, ONE, TWO)
    send(lake)
    is_what_readers_find(lake)
    # Publishing begins anew, and days are sent anew, when nobody has the old versions any more.
    compact_and_vacuum(spark, lake.config.table("batch"))
    checkpoint = lake.config.checkpoint("publish")
    with caplog.at_level("WARNING"):
        shutil.rmtree(checkpoint)
        reset_publishing(lake.pipeline, "beginning", None)
        send(lake)
        shutil.rmtree(checkpoint)
        whole(again=True)
    assert caplog.text.count("is not retracted") == 3
    is_what_readers_find(lake)


@pytest.mark.thorough
def test_an_event_that_leaves_a_day_sent_as_a_whole_for_an_uncertified_one_stays_on_the_topic(
    make: Callable[..., Lake],
) -> None:
    lake = make()
    lake.ingest([on(1, 1), on(2, 2)])
    stream(lake)
    lake.ingest([on(1, 2, sent=EARLIER)])
    night(lake, ONE)
    publish_days(lake.pipeline, "run", [ONE], again=False)
    lake.ingest([on(2, 2, sent=EARLIER - timedelta(minutes=30))])
    night(lake, ONE)
    send(lake)
    is_what_readers_find(lake)
    assert told(lake) == Counter([(1, "day"), (2, "day"), (2, "changed")])


@pytest.mark.thorough
def test_publishing_begins_with_the_days_that_are_not_certified(make: Callable[..., Lake]) -> None:
    lake = make("publish.retraction=record")
    lake.ingest([on(1, 1), on(2, 2)])
    stream(lake)
    night(lake, ONE)
    assert send(lake) == 1
    # What it has not come to stays.
    kept = {"vacuum_after": timedelta(), "speed_retention": timedelta(), "compact": False}
    config = lake.config.model_copy(update={"maintain": lake.config.maintain.model_copy(update=kept)})

    def upkeep() -> tuple[int, str]:
        done = maintain(replace(lake.pipeline, config=config), "upkeep", dry_run=True)
        told = summary_of(done, vacuum_now=False)
        return told["counts"]["speed_rows"], "\n".join(told["lines"])

    assert upkeep()[0] == 0
    # From then on its days are followed, too.
    lake.ingest([on(1, 3, sent=LATER), on(1, 2, sent=EARLIER), on(3, 4)])
    night(lake, TWO, THREE)
    rows, lines = upkeep()
    assert rows == 0
    assert "publish_stream has not sent the changes of 2013-01-01 yet" in lines
    assert "batch: no file removed" in lines
    send(lake)
    rows, lines = upkeep()
    assert rows == 2
    assert "publish_stream" not in lines
    assert told(lake) == Counter([(2, None), (3, "added"), (2, "changed"), (4, "added")])


def forget_carrier(lake: Lake, carrier: str) -> None:
    asked = asked_key(lake.contract, [f"carrier={carrier}"])
    done = forget_and_rebuild(lake.pipeline, "forget", OfKey(lake.pipeline, asked), dry_run=False)
    assert done.rebuild.failure is None


@pytest.mark.thorough
def test_what_is_forgotten_is_taken_back_from_the_topic(make: Callable[..., Lake]) -> None:
    lake = make()
    lake.ingest([on(1, 1, carrier="B6"), on(1, 2), on(2, 3), on(2, 4, carrier="B6"), on(2, 5, carrier="DL")])
    stream(lake)
    send(lake)
    night(lake, ONE)
    # What was never sent is not taken back either.
    lake.ingest([on(2, 6, carrier="B6"), on(2, 7)])
    stream(lake)
    forget_carrier(lake, "B6")
    send(lake)
    is_what_readers_find(lake)
    new: list[tuple[int, str | None]] = [(number, None) for number in (1, 2, 3, 4, 5, 7)]
    sent = Counter([*new, (1, "removed"), (4, "removed")])
    assert told(lake) == sent
    # Of an uncertified day it is taken back at once, also where nothing else has come.
    forget_carrier(lake, "DL")
    assert send(lake) == 1
    lake.ingest([on(2, 8), on(2, 9, carrier="AA"), on(2, 5, carrier="DL", sent=LATER)])
    stream(lake)
    send(lake)
    is_what_readers_find(lake)
    sent += Counter([(5, "removed"), (8, None), (9, None)])
    assert told(lake) == sent
    # One that comes again for another day, when the speed stream has let its key go, stands for it.
    forget_carrier(lake, "AA")
    lake.ingest_and_enter([on(3, 9, carrier="AA"), on(3, 10)])
    send(lake)
    is_what_readers_find(lake)
    assert told(lake) == sent + Counter([(9, "changed"), (10, None)])
