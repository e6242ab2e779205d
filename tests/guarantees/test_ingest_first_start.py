"""A first start at the latest offsets skips what the topic holds then, and nothing that comes later."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from pipelines.delta.table_properties import WHOLE_FROM, table_property
from pipelines.kafka.topics import find_topic
from pipelines.steps.ingest import ingest
from testbed.waiting import wait_until
from tests.support.accidents import start_ingest_that_dies
from tests.support.kafka import MakeTopic, ordered_producer
from tests.support.lakes import Lake
from tests.support.nights import on

pytestmark = [pytest.mark.spark, pytest.mark.integration]


def send(broker: str, name: str, times: int, partition: int = 0) -> None:
    producer, at = ordered_producer(broker), int(datetime(2013, 1, 1, 12, tzinfo=UTC).timestamp() * 1000)
    for number in range(times):
        producer.produce(name, on(1, number).value, partition=partition, timestamp=at)
    assert producer.flush(30) == 0


@pytest.fixture
def started(broker: str, topic: MakeTopic, make_lake: Callable[..., Lake]) -> tuple[Lake, str]:
    """A lake, and its topic of three records; the first start of ingest has died before its query began."""
    name = topic(partitions=1)
    settings = ("kafka.starting_offsets=latest", "accept_risks=[starting_offsets_latest]")
    lake = make_lake(f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}", *settings)
    send(broker, name, 3)
    start_ingest_that_dies(lake)
    return lake, name


def whole_from(lake: Lake) -> str | None:
    return table_property(lake.spark, lake.config.table("bronze"), WHOLE_FROM)


def test_what_comes_after_a_first_start_that_died_is_read(
    started: tuple[Lake, str], broker: str, admin: AdminClient
) -> None:
    lake, name = started
    send(broker, name, 2)
    admin.create_partitions([NewPartitions(name, 2)])[name].result(30)
    kafka = lake.config.kafka
    wait_until(lambda: find_topic(lake.spark, kafka).partitions == 2, "it has a second partition", 30)
    send(broker, name, 4, partition=1)
    assert ingest(lake.pipeline, once=True).records == 6
    assert whole_from(lake) is None
    send(broker, name, 1)
    assert ingest(lake.pipeline, once=True).records == 1


def test_what_kafka_deletes_after_a_first_start_that_died_is_a_loss(
    started: tuple[Lake, str], broker: str, admin: AdminClient
) -> None:
    lake, name = started
    send(broker, name, 2)
    position = TopicPartition(name, 0, 4)
    admin.delete_records([position])[position].result(30)
    assert ingest(lake.pipeline, once=True).records == 1
    # Its event may be dated a day ahead (`decode.max_future`), so the second day may lack some as well.
    assert whole_from(lake) == "2013-01-03"
