"""What the demo's producers say they sent is what a real broker holds."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from demo.producer import Producers
from demo.replay import Plan, plan_replay
from demo.sends import split_waves
from demo.source import FlightKey, demo_days, read_flights
from demo.topic import create_topic, delete_topic
from pipelines.errors import InfrastructureError
from testbed.waiting import wait_until

pytestmark = pytest.mark.integration

PARTITIONS = 3


@pytest.fixture(scope="module")
def names(admin: AdminClient) -> Iterator[Callable[[str], str]]:
    """Makes names that no other test has; topics with such names are deleted at the end."""
    own = os.urandom(4).hex()
    yield lambda name: f"{name}-{own}"
    made = [name for name in admin.list_topics(timeout=30).topics if name.endswith(own)]
    for deleted in admin.delete_topics(made).values():
        deleted.result(30)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_replay(read_flights(demo_days(3)), seed=11, partitions=PARTITIONS)


@pytest.fixture(scope="module")
def records(broker: str, names: Callable[[str], str], plan: Plan) -> list[Message]:
    """All that the topic holds after a replay, partition by partition, in the order of offsets."""
    topic = names("replayed")
    create_topic(broker, topic, PARTITIONS)
    with Producers(broker, topic) as producers:
        assert sum(count for wave in split_waves(plan.sends, 5) for count in producers.send(wave)) == len(
            plan.sends
        )
    return list(read_all(broker, topic))


def read_all(servers: str, topic: str) -> Iterator[Message]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest"})
    try:
        for partition in range(PARTITIONS):
            at = TopicPartition(topic, partition, 0)
            _, end = consumer.get_watermark_offsets(at, timeout=10)
            found: list[Message] = []

            def full(found: list[Message] = found, end: int = end) -> bool:
                found.extend(consumer.consume(5000, timeout=0.2))
                return len(found) >= end

            consumer.assign([at])
            wait_until(full, f"{end} records of partition {partition} are read", 30)
            yield from found
    finally:
        consumer.close()


def header(record: Message, name: str) -> str | bytes | None:
    return dict(record.headers() or [])[name]


def test_each_record_arrives_once_at_its_place_in_its_order_with_its_timestamp(
    plan: Plan, records: list[Message]
) -> None:
    planned = sorted(enumerate(plan.sends), key=lambda item: (item[1].partition, item[0]))
    found = [(r.partition(), r.timestamp()[1], r.key(), r.value()) for r in records]
    by_producer: list[object] = []
    assert len(found) == len(planned)
    assert Counter(found) == Counter((s.partition, s.timestamp_ms, s.key, s.value) for _, s in planned)
    for producer in ("EWR", "JFK", "LGA"):
        sent = [(s.partition, s.timestamp_ms, s.value) for _, s in planned if s.producer == producer]
        arrived = [
            (r.partition(), r.timestamp()[1], r.value())
            for r in records
            if header(r, "producer") == producer.encode()
        ]
        assert arrived == sent
        by_producer += arrived
    assert len(by_producer) == len(found)


def test_headers_tell_first_sends_from_repeated_ones(plan: Plan, records: list[Message]) -> None:
    attempts = Counter(header(record, "attempt") for record in records)
    assert attempts == {
        b"1": len(plan.sends) - plan.truth.duplicates,
        b"2": plan.truth.duplicates,
    }


def test_the_winners_by_real_offsets_are_those_of_the_truth(plan: Plan, records: list[Message]) -> None:
    winners: dict[FlightKey, tuple[tuple[int, int, int], dict[str, Any]]] = {}
    for record in records:
        try:
            fields = json.loads(record.value() or b"")
            departure = datetime.fromisoformat(fields["scheduled_departure"])
            key = FlightKey(fields["carrier"], fields["flight"], fields["origin"], departure)
        except (ValueError, KeyError, TypeError):
            continue
        place = (record.timestamp()[1], record.partition() or 0, record.offset() or 0)
        if key in plan.truth.events and (key not in winners or place < winners[key][0]):
            winners[key] = place, fields
    assert winners.keys() == plan.truth.events.keys()
    for key, (_, fields) in winners.items():
        payload = plan.truth.events[key].winner
        assert {name: fields[name] for name in payload._fields} == payload._asdict()


def test_a_topic_that_exists_is_not_taken(broker: str, names: Callable[[str], str]) -> None:
    topic = names("taken")
    create_topic(broker, topic, 1)
    with pytest.raises(InfrastructureError, match=rf"topic {topic} at .*cannot be created"):
        create_topic(broker, topic, 1)
    delete_topic(broker, topic)


def test_a_record_for_a_partition_that_is_not_there_is_an_error_not_a_loss(
    broker: str, names: Callable[[str], str], plan: Plan
) -> None:
    topic = names("narrow")
    create_topic(broker, topic, 1)
    astray = [send for send in plan.sends if send.partition == 2][:1]
    with (
        pytest.raises(InfrastructureError, match=f"sending to topic {topic}"),
        Producers(broker, topic, flush_seconds=5) as producers,
    ):
        list(producers.send(astray))


def test_an_unreachable_broker_is_an_error_within_bounds(plan: Plan) -> None:
    with (
        pytest.raises(InfrastructureError, match=r"127\.0\.0\.1:9"),
        Producers("127.0.0.1:9", "anywhere", flush_seconds=2) as producers,
    ):
        list(producers.send(plan.sends[:3]))
