"""Publishing sends what is certified since its first start, however late its first micro-batch comes."""

from collections import Counter
from collections.abc import Callable
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError, InfrastructureError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.publishing.unsent_days import UnsentDays
from pipelines.steps.publish import publishing_status
from pipelines.steps.publish_reset import reset_publishing
from tests.support.accidents import dying
from tests.support.certified_days import late_night as night
from tests.support.kafka import MakeTopic
from tests.support.lakes import Lake
from tests.support.nights import EARLIER, LATER, ONE, THREE, TWO, on, stream
from tests.support.published import checkpoint_of_query, is_what_readers_find, send, told, whole_day

FAULT = RuntimeError("a fault of the test")
MANY = range(101, 121)


@pytest.fixture
def make(
    publishing_lake: Callable[..., Lake], small_by_flight: DataContract, topic: MakeTopic
) -> Callable[..., Lake]:
    """A lake whose key leaves the event time out: copies of a flight may lie on two days."""
    return partial(publishing_lake, small_by_flight, topic(partitions=2, name="begun"))


def die_before_the_first_micro_batch(lake: Lake) -> None:
    with armed(Point.FIRST_START_NOTED, dying(FAULT)), pytest.raises(RuntimeError, match=str(FAULT)):
        send(lake)


def unsent(lake: Lake) -> UnsentDays:
    return publishing_status(lake.pipeline).unsent


def checkpoint_aside(lake: Lake) -> None:
    checkpoint = Path(lake.config.checkpoint("publish"))
    checkpoint.rename(checkpoint.with_name("aside"))


def test_days_certified_between_the_first_start_and_the_first_micro_batch_are_sent(
    make: Callable[..., Lake],
) -> None:
    lake = make()
    lake.ingest([on(1, 1), on(2, 2), on(2, 3), on(3, 4)])
    stream(lake)
    night(lake, ONE)
    die_before_the_first_micro_batch(lake)
    # Of what was certified before only changes are sent, which were made since.
    lake.ingest([on(1, 5, sent=LATER)])
    night(lake, ONE, TWO)
    with pytest.raises(InfrastructureError, match="has not sent the changes of 2013-01-01 yet"):
        whole_day(lake)
    assert told(lake) == Counter()
    # Nor does it matter what dies, or is certified, before the first micro-batch is done.
    with armed(Point.BATCH_SETTLED, dying(FAULT)), pytest.raises(InfrastructureError):
        send(lake)
    night(lake, THREE)
    send(lake)
    sent = Counter([(2, "added"), (3, "added"), (5, "added"), (4, None)])
    assert told(lake) == sent
    assert unsent(lake) == UnsentDays(never=(ONE,))
    assert whole_day(lake) == 2
    is_what_readers_find(lake)
    # A stream that begins anew is started for the first time then.
    checkpoint_aside(lake)
    reset_publishing(lake.pipeline, "beginning", None)
    lake.enter([on(4, 6)])
    night(lake, date(2013, 1, 4))
    send(lake)
    assert told(lake) == sent + Counter([(1, "day"), (5, "day")])


@pytest.mark.parametrize("is_reset", [False, True])
def test_what_a_first_micro_batch_had_settled_and_not_sent_is_listed_by_the_next_stream(
    make: Callable[..., Lake], is_reset: bool
) -> None:
    lake = make()
    lake.ingest([on(1, 1), on(2, 2), on(3, 3)])
    stream(lake)
    night(lake, ONE)
    die_before_the_first_micro_batch(lake)
    night(lake, TWO)
    with armed(Point.BATCH_SETTLED, dying(FAULT)), pytest.raises(InfrastructureError):
        send(lake)
    checkpoint_aside(lake)
    if is_reset:
        reset_publishing(lake.pipeline, "beginning", None)
    send(lake)
    assert told(lake) == Counter([(3, None)])
    # Nobody can tell whether the micro-batch was sent before its checkpoint was gone.
    assert unsent(lake) == UnsentDays(never=(ONE,), partly=(TWO,))


@pytest.mark.thorough
def test_a_whole_day_does_not_change_a_first_micro_batch_that_is_sent_in_part(
    make: Callable[..., Lake],
) -> None:
    lake = make()
    lake.ingest([on(1, number) for number in MANY])
    night(lake, ONE)
    whole_day(lake)
    lake.ingest([on(1, number, sent=EARLIER, departure_delay=7.0) for number in MANY])
    night(lake, ONE)
    in_parts = make("publish.max_bytes_per_trigger=1k")
    with armed(Point.PART_DUE, dying(FAULT, time=2)), pytest.raises(InfrastructureError):
        send(in_parts)
    # It would count as published at the version to which the stream is on its way.
    with pytest.raises(InfrastructureError, match="has not sent the changes of 2013-01-01 yet"):
        whole_day(lake, again=True)
    send(lake)
    is_what_readers_find(lake)
    assert told(lake) == Counter((number, why) for number in MANY for why in ("day", "changed"))


@pytest.mark.thorough
def test_a_stream_that_has_sent_nothing_has_not_retracted_what_a_whole_day_has_lost(
    make: Callable[..., Lake],
) -> None:
    lake = make()
    lake.ingest([on(1, 1), on(1, 2)])
    night(lake, ONE)
    whole_day(lake)
    lake.ingest([on(2, 2, sent=EARLIER), on(3, 3)])
    night(lake, ONE, TWO)
    stream(lake)
    die_before_the_first_micro_batch(lake)
    with pytest.raises(ConfigError, match=r"was rebuilt since, at version \d+\..*--again"):
        whole_day(lake)
    whole_day(lake, again=True)
    send(lake)
    is_what_readers_find(lake)


@pytest.mark.thorough
def test_a_stream_without_a_note_is_started_first_when_one_is_written(make: Callable[..., Lake]) -> None:
    lake = make()
    lake.ingest([on(1, 1), on(2, 2)])
    stream(lake)
    # An earlier release has died before its first micro-batch was planned.
    checkpoint_of_query(lake, str(uuid4()))
    night(lake, ONE)
    die_before_the_first_micro_batch(lake)
    night(lake, TWO)
    send(lake)
    assert told(lake) == Counter([(2, "added")])
    assert unsent(lake) == UnsentDays(never=(ONE,))


@pytest.mark.thorough
def test_a_first_start_notices_partitions_that_the_topic_got_since_a_day_was_sent(
    make: Callable[..., Lake], admin: AdminClient
) -> None:
    lake = make()
    assert lake.config.publish
    topic = lake.config.publish.topic
    lake.ingest([on(1, 1)])
    stream(lake)
    night(lake, ONE)
    die_before_the_first_micro_batch(lake)
    whole_day(lake)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    refused = "found 3 partitions, expected the 2 that it had .* reset .*--to beginning --accept-partitions"
    for _ in range(2):
        with pytest.raises(SourceError, match=refused) as no:
            send(lake)
        assert no.value.exit_code == 4
    reset_publishing(lake.pipeline, "beginning", None, accept_partitions=True)
    # Whoever has accepted it need not do so again.
    for _ in range(2):
        die_before_the_first_micro_batch(lake)
    send(lake)


@pytest.mark.thorough
def test_an_event_that_the_first_micro_batch_has_not_come_to_is_not_sent_in_place_of_one_that_is_gone(
    make: Callable[..., Lake],
) -> None:
    # The speed layer is read file by file, and the file with the second flight is the last.
    lake = make("publish.max_bytes_per_trigger=1b")
    for day, number in ((1, 1), (2, 3), (2, 2)):
        lake.ingest_and_enter([on(day, number)])
    lake.ingest([on(1, 2, sent=EARLIER)])
    night(lake, ONE)
    die_before_the_first_micro_batch(lake)
    lake.ingest([on(2, 2, sent=EARLIER - timedelta(minutes=30))])
    night(lake, ONE)
    send(lake)
    assert told(lake) == Counter([(2, "removed"), (3, None), (2, None)])
