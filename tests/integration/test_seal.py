"""A day is sealed when bronze has what Kafka had, and not before."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from pipelines.config_files import load_config
from pipelines.contract import DataContract
from pipelines.errors import InfrastructureError, SourceError
from pipelines.layers.ingest import ingest
from pipelines.ops.seal import committed_offsets, seal
from tests.support.kafka import MakeTopic
from tests.support.lakes import FLIGHT
from tests.support.nights import ONE, TWO

SENT = int(datetime(2013, 1, 1, 12, tzinfo=UTC).timestamp() * 1000)


def test_a_day_is_sealed_once_bronze_has_what_kafka_had(
    spark: SparkSession, contract: DataContract, broker: str, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    config = load_config(
        "flights",
        environ={},
        settings=[
            f"lake.root={tmp_path}/lake",
            f"kafka.bootstrap_servers={broker}",
            f"kafka.topic={name}",
            "kafka.connect_timeout=5 seconds",
            "batch.seal_wait=0 seconds",
        ],
    )
    producer = Producer({"bootstrap.servers": broker, "transactional.id": f"seal-{name}"})
    producer.init_transactions()

    def send(*, commit: bool, partition: int = 0) -> None:
        producer.begin_transaction()
        producer.produce(name, json.dumps(FLIGHT).encode(), partition=partition, timestamp=SENT)
        producer.flush()
        (producer.commit_transaction if commit else producer.abort_transaction)()

    send(commit=True)
    ingest(spark, config, once=True)
    send(commit=True)
    with pytest.raises(
        SourceError,
        match=rf"2013-01-01 cannot be sealed yet: {name}-0 has been read up to offset 2, needed 4;",
    ):
        seal(spark, config, contract, ONE)
    # An aborted transaction leaves no record, only offsets that ingest has passed.
    send(commit=False)
    send(commit=False, partition=1)
    ingest(spark, config, once=True)
    assert committed_offsets(spark, config) == {0: 6, 1: 2}
    index = seal(spark, config, contract, TWO)
    assert [(row["partition"], row["last"], row["records"]) for row in index.offsets()] == [
        (0, 0, 1),
        (0, 2, 1),
    ]

    away = config.model_copy(
        update={"kafka": config.kafka.model_copy(update={"bootstrap_servers": "localhost:1"})}
    )
    with pytest.raises(InfrastructureError, match="no answer within"):
        seal(spark, away, contract, ONE)
