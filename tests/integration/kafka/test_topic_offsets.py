"""How many records Kafka gives within offsets: markers and what was rolled back are none."""

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from pipelines.config.loader import load_config
from pipelines.kafka import topic_offsets
from pipelines.kafka.topic_offsets import records_within
from tests.support.kafka import MakeTopic


def sent(broker: str, topic: str, partition: int, count: int, *, committed: bool = True) -> None:
    producer = Producer({"bootstrap.servers": broker, "transactional.id": f"{topic}-{partition}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, b"", str(number).encode(), partition)
    assert not producer.flush(30)
    if committed:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def test_records_are_counted_and_one_may_be_enough(
    spark: SparkSession, broker: str, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(partitions=4)
    sent(broker, name, 0, 5)
    sent(broker, name, 1, 5, committed=False)
    sent(broker, name, 2, 5, committed=False)
    sent(broker, name, 2, 3)
    given = (f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}")
    kafka = load_config("flights", environ={}, settings=given).kafka
    # Each transaction ends with a marker; partition 3 is empty, and nothing is asked of it.
    ranges = {0: range(1, 6), 1: range(6), 2: range(10), 3: range(0)}
    assert records_within(spark, kafka, ranges) == {0: 4, 2: 3}
    assert records_within(spark, kafka, {0: range(5, 6)}) == {}
    assert records_within(spark, kafka, {}) == {}
    monkeypatch.setattr(topic_offsets, "LOOKED_AT_FIRST", 2)
    monkeypatch.setattr(topic_offsets, "MORE_EACH_TIME", 3)
    # Two offsets are looked at, then six of what is left, then all.
    found = records_within(spark, kafka, ranges, stop_at_first=True)
    assert found.keys() == {0, 2}
    assert found[0] == 2
