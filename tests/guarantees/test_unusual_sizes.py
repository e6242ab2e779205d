"""A thousand partitions, records of ten megabytes, a million broken records: nothing is lost."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.delta.io import append
from pipelines.delta.record_tables import BRONZE
from pipelines.delta.tables import shape
from pipelines.ledger.quarantine import Selection
from pipelines.steps.ingest import ingest
from tests.support.kafka import MakeTopic
from tests.support.lakes import Lake, flight
from tests.support.nights import ONE, on, run, stream
from tests.support.replays import replay

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1200)]

PARTITIONS = 1_000
LARGE = 10_000_000
MILLION = 1_000_000
SENT_MS = int(datetime(2013, 1, 1, 12, tzinfo=UTC).timestamp() * 1000)
Make = Callable[..., Lake]


@pytest.fixture
def plain(contract: DataContract) -> DataContract:
    """The contract without rules on whole days, which few flights do not keep."""
    return replace(contract, day_rules=())


def is_certified(lake: Lake) -> bool:
    return [verdict.status for verdict in run(lake, ONE).verdicts] == ["certified"]


def test_a_topic_of_a_thousand_partitions_is_read_and_certified(
    make_lake: Make, plain: DataContract, broker: str, topic: MakeTopic
) -> None:
    name = topic(partitions=PARTITIONS)
    lake = make_lake(f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}", contract=plain)
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for copy in range(2):
        for number in range(2 * PARTITIONS):
            # The second copy comes by another partition.
            partition = (number + copy) % PARTITIONS
            producer.produce(name, flight(flight=1 + number), partition=partition, timestamp=SENT_MS + copy)
    assert producer.flush(120) == 0
    assert ingest(lake.pipeline, once=True).records == 4 * PARTITIONS
    stream(lake)
    assert (lake.count("bronze"), lake.count("speed")) == (4 * PARTITIONS, 2 * PARTITIONS)
    assert is_certified(lake)
    assert lake.count("batch") == 2 * PARTITIONS
    # A start compares all of them with what Kafka has.
    assert ingest(lake.pipeline, once=True).records == 0


def test_records_of_ten_megabytes_arrive_whether_they_are_broken_or_not(
    make_lake: Make, plain: DataContract, broker: str, topic: MakeTopic
) -> None:
    name = topic(partitions=1, **{"max.message.bytes": str(LARGE + 1_000_000)})
    lake = make_lake(f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}", contract=plain)
    producer = Producer(
        {"bootstrap.servers": broker, "enable.idempotence": True, "message.max.bytes": LARGE + 1_000_000}
    )
    long, broken = "x" * LARGE, b"{" + b'"a":' * (LARGE // 4)
    for value in (flight(flight=1), flight(flight=2, tailnum=long), broken, flight(flight=3)):
        producer.produce(name, value, timestamp=SENT_MS)
    assert producer.flush(120) == 0
    assert ingest(lake.pipeline, once=True).records == 4
    stream(lake)
    lengths = lake.table("speed").select("flight", F.length("tailnum")).collect()
    assert sorted(map(tuple, lengths)) == [(1, 6), (2, LARGE), (3, 6)]
    (kept,) = lake.table("quarantine").select("value", "_reason").collect()
    assert (bytes(kept["value"]), kept["_reason"]) == (broken, "malformed_json")
    assert is_certified(lake)
    assert lake.count("batch") == 3


def test_a_million_broken_records_are_quarantined_accounted_for_and_tried_again(
    make_lake: Make, plain: DataContract
) -> None:
    lake = make_lake("quarantine.max_share=1", contract=plain)
    lake.ingest([on(1, 1)])
    like = lake.envelopes([on(1, 2)]).drop("value", "_offset")
    values = lake.spark.range(1, MILLION + 1, 1, 8).select(
        F.encode(F.concat(F.lit('{"carrier": '), "id"), "UTF-8").alias("value"), F.col("id").alias("_offset")
    )
    append(values.crossJoin(F.broadcast(like)).select(*shape(BRONZE).names), lake.config.table("bronze"))
    stream(lake)
    assert (lake.count("speed"), lake.count("quarantine")) == (1, MILLION)
    assert lake.table("quarantine").select("_offset").distinct().count() == MILLION
    assert is_certified(lake)
    # With the same contract none of them passes.
    done = replay(lake.pipeline, "again", Selection(), dry_run=False)
    assert (done.counts.records, done.counts.still_broken) == (MILLION, MILLION)
    assert lake.count("quarantine") == MILLION
