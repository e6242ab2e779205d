"""A source that is missing, away or not what it was is named, and nothing is lost or mixed up."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from pipelines.errors import ConfigError, InfrastructureError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.kafka.topic_watch import topic_watch
from pipelines.kafka.topics import find_topic
from pipelines.steps.ingest import ingest
from testbed.waiting import wait_until
from tests.support.kafka import MakeTopic, make_anew, ordered_producer
from tests.support.lakes import Lake, flight

MakeLake = Callable[..., Lake]


def send(broker: str, topic: str, count: int) -> None:
    producer = ordered_producer(broker)
    for n in range(count):
        producer.produce(topic, flight(flight=n + 1), headers=[("attempt", b"1")])
    assert producer.flush(60) == 0


def run(lake: Lake) -> int:
    records: int = ingest(lake.pipeline, once=True).records
    return records


def test_an_unreachable_broker_is_named_within_a_bounded_wait(make_lake: MakeLake) -> None:
    lake = make_lake("kafka.bootstrap_servers=127.0.0.1:9", "kafka.connect_timeout=1 second")
    began = time.monotonic()
    with pytest.raises(InfrastructureError, match=r"127\.0\.0\.1:9: no answer within 1 s"):
        run(lake)
    assert time.monotonic() - began < 60


def test_an_address_that_does_not_exist_is_named(make_lake: MakeLake) -> None:
    lake = make_lake("kafka.bootstrap_servers=no-such-host.invalid:9092")
    with pytest.raises(InfrastructureError, match=r"no-such-host\.invalid:9092: the Kafka client refuses"):
        run(lake)


def test_a_missing_topic_is_refused_not_made(broker: str, admin: AdminClient, make_lake: MakeLake) -> None:
    lake = make_lake(f"kafka.bootstrap_servers={broker}", "kafka.topic=never-made")
    with pytest.raises(ConfigError, match=r"there is no topic 'never-made' at .*; create it"):
        run(lake)
    assert "never-made" not in admin.list_topics(timeout=10).topics


def test_records_arrive_whole_and_once_and_neither_other_nor_deleted_ones_are_mixed_with_them(
    broker: str, admin: AdminClient, topic: MakeTopic, make_lake: MakeLake
) -> None:
    name = topic(partitions=1)
    lake = make_lake(f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}")
    send(broker, name, 30)
    assert run(lake) == 30
    send(broker, name, 5)
    assert run(lake) == 5
    assert run(lake) == 0
    bronze = lake.table("bronze")
    assert bronze.count() == 35
    row = bronze.where("_offset = 0").first()
    assert row is not None
    assert (row["_topic"], row["headers"][0]["key"]) == (name, "attempt")
    assert bytes(row["value"]).startswith(b'{"carrier": "UA"')

    # Offsets that are gone stop the stream instead of being skipped.
    send(broker, name, 10)
    position = TopicPartition(name, 0, 40)
    admin.delete_records([position])[position].result(30)
    with pytest.raises(SourceError, match="records were deleted from Kafka before they were read") as refused:
        run(lake)
    assert (refused.value.exit_code, lake.count("bronze")) == (4, 35)

    # A topic made anew under its old name is not taken for the old one.
    make_anew(admin, name, 1)
    send(broker, name, 45)
    with pytest.raises(SourceError, match=r"is not the topic that .* was filled from") as refused:
        run(lake)
    assert (refused.value.exit_code, lake.count("bronze")) == (4, 35)


def test_a_topic_that_is_recreated_while_it_is_read_leaves_nothing_in_bronze(
    broker: str, admin: AdminClient, topic: MakeTopic, make_lake: MakeLake
) -> None:
    name = topic(partitions=1)
    lake = make_lake(f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}")
    send(broker, name, 30)
    assert run(lake) == 30
    send(broker, name, 5)

    def recreate() -> None:
        make_anew(admin, name, 1)
        send(broker, name, 45)

    with (
        armed(Point.BATCH_LOOKED_FOR, recreate),
        pytest.raises(SourceError, match=r"is not the topic that .* was filled from") as refused,
    ):
        run(lake)
    assert (refused.value.exit_code, lake.count("bronze")) == (4, 30)


def test_a_topic_that_is_deleted_while_it_is_read_is_told_so_and_a_cluster_without_an_answer_is_not(
    broker: str,
    admin: AdminClient,
    topic: MakeTopic,
    make_lake: MakeLake,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = topic(partitions=1)
    lake = make_lake(f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}")
    found = find_topic(lake.spark, lake.config.kafka)
    with topic_watch(lake.spark, lake.config, found) as watch:
        watch.require_same()
        admin.delete_topics([name])[name].result(30)
        wait_until(lambda: name not in admin.list_topics(timeout=10).topics, "the topic is gone", 30)
        with pytest.raises(SourceError, match=f"topic '{name}' was deleted while it was read") as refused:
            watch.require_same()
        assert refused.value.exit_code == 4
        watch.admin.client.close()
        watch.require_same()
    assert f"topic {name}: whether it was recreated is unknown" in caplog.text
