"""The source `rack-aware-kafka` is Spark's own in all but where ranges are read."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.config.loader import load_config
from pipelines.contracts.contract import DataContract
from pipelines.delta.io import read
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.ingest import IngestResult, ingest
from testbed.waiting import wait_until
from tests.support.kafka import MakeTopic, ordered_producer
from tests.support.lakes import flight


def send(broker: str, topic: str, records: int) -> None:
    producer = ordered_producer(broker)
    for number in range(records):
        producer.produce(topic, flight(flight=number), partition=number % 3)
    assert producer.flush(60) == 0


@pytest.mark.thorough
def test_a_checkpoint_goes_from_one_source_to_the_other_and_back(
    spark: SparkSession, contract: DataContract, broker: str, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic(partitions=3)

    def take(mode: str) -> IngestResult:
        settings = {
            "lake.root": tmp_path / "lake",
            "kafka.topic": name,
            "kafka.bootstrap_servers": broker,
            "kafka.max_offsets_per_trigger": 6,
            "kafka.rack.mode": mode,
        }
        given = [f"{key}={value}" for key, value in settings.items()]
        config = load_config("flights", environ={}, settings=given)
        return ingest(Pipeline(spark, config, contract), once=True)

    for mode in ("off", "placement", "client", "placement"):
        send(broker, name, 15)
        done = take(mode)
        assert (done.records, done.batches) == (15, 3)
        if mode == "placement":
            assert done.racks is not None
            placement = done.racks.placement
            assert (placement["rackBatchesLeft"], placement["rackBatchesPlaced"]) == ("3", "0")
            assert placement["rackReason"] == "there are no executors but the driver"
        else:
            assert done.racks is None or not done.racks.placement
    bronze = read(spark, f"{tmp_path}/lake/bronze/flights").select("_partition", "_offset")
    coordinates = Counter(tuple(row) for row in bronze.collect())
    assert set(coordinates.values()) == {1}
    assert len(coordinates) == 4 * 15


def test_options_columns_and_batch_reads_are_those_of_kafka(
    spark: SparkSession, broker: str, topic: MakeTopic
) -> None:
    name = topic(partitions=3)
    send(broker, name, 9)
    options = {"kafka.bootstrap.servers": broker, "subscribePattern": f"{name}.*", "minPartitions": "6"}
    frames = [
        spark.read.format(source).options(**options, includeHeaders="true").load()
        for source in ("kafka", "rack-aware-kafka")
    ]
    assert frames[0].schema == frames[1].schema
    assert {frame.count() for frame in frames} == {9}
    assert frames[1].rdd.getNumPartitions() == frames[0].rdd.getNumPartitions()


def test_a_stopped_query_has_not_failed(
    spark: SparkSession, contract: DataContract, broker: str, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic(partitions=3)
    send(broker, name, 9)
    source = spark.readStream.format("rack-aware-kafka").option("kafka.bootstrap.servers", broker)
    rows = source.option("subscribe", name).option("startingOffsets", "earliest").load()
    for number in range(1, 13):
        writer = rows.writeStream.format("noop").option("checkpointLocation", f"{tmp_path}/{number}")
        # Its type knows whole seconds only.
        query: Any = writer.start()
        # At another moment of its beginning each time.
        query.awaitTermination(number / 40)
        query.stop()
        assert query.exception() is None, f"stopped after {number / 40} s"
    # While their topic exists: a task that asks for one that is deleted keeps its slot for a minute.
    status = spark.sparkContext._jsc.sc().statusTracker()
    wait_until(
        lambda: not sum(executor.numRunningTasks() for executor in status.getExecutorInfos()),
        "the tasks of the queries end",
        60,
    )
