"""No day is certified of which Kafka had deleted records before bronze was begun."""

import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from pipelines.contracts.contract import DataContract
from pipelines.delta.table_properties import WHOLE_FROM, table_property
from pipelines.errors import ConfigError
from pipelines.steps.ingest import ingest
from tests.support.kafka import MakeTopic, ordered_producer
from tests.support.lakes import Lake
from tests.support.nights import ONE, TWO, on, run

pytestmark = [pytest.mark.spark, pytest.mark.integration]
MakeLake = Callable[..., Lake]

FOUR = date(2013, 1, 4)


def whole_from(lake: Lake) -> str | None:
    return table_property(lake.spark, lake.config.table("bronze"), WHOLE_FROM)


def delete(admin: AdminClient, *before: TopicPartition) -> None:
    for deleted in admin.delete_records([*before]).values():
        deleted.result(30)


def begin_again(lake: Lake) -> None:
    """All of the lake is lost, and ingest begins anew."""
    shutil.rmtree(lake.config.root)
    ingest(lake.pipeline, once=True)


def test_days_that_kafka_had_begun_to_delete_are_refused(
    broker: str, admin: AdminClient, topic: MakeTopic, make_lake: MakeLake, small: DataContract
) -> None:
    name = topic(partitions=2)
    producer = ordered_producer(broker)
    for partition in range(2):
        for number in (1, 1, 2, 4):
            sent = int(datetime(2013, 1, number, 12, tzinfo=UTC).timestamp() * 1000)
            producer.produce(
                name, on(number, 10 * number + partition).value, partition=partition, timestamp=sent
            )
    assert producer.flush(30) == 0
    lake = make_lake(f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}", contract=small)
    ingest(lake.pipeline, once=True)
    assert whole_from(lake) is None

    # An event may be dated a day ahead (`decode.max_future`), so the second day may lack some as well.
    delete(admin, TopicPartition(name, 0, 1))
    begin_again(lake)
    assert whole_from(lake) == "2013-01-03"
    for day in (ONE, TWO):
        with pytest.raises(ConfigError, match="Kafka had deleted them when bronze was begun"):
            run(lake, day)
    assert run(lake, FOUR).days == {FOUR: "certified"}

    # Nobody knows when the records were sent that a partition no longer has.
    delete(admin, TopicPartition(name, 0, 4))
    begin_again(lake)
    today = datetime.now(UTC).date()
    assert today <= date.fromisoformat(str(whole_from(lake))) - timedelta(days=1)
