"""What a night changes gets out, however much it is, however short a transaction and slow the brokers."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from pipelines.config.loader import load_config
from pipelines.contracts.contract import DataContract
from pipelines.delta.io import append
from pipelines.delta.record_tables import BRONZE
from pipelines.delta.tables import shape
from pipelines.runtime.jars import ensure_jars
from pipelines.runtime.java import find_java
from pipelines.runtime.local_broker import broker
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.publish import publish
from tests.support.kafka import make_topic
from tests.support.lakes import FLIGHT, Lake
from tests.support.nights import ONE, on, run, stream

MILLION = 1_000_000
FEW = 10
PRODUCED_A_SECOND = 4 << 20
OUTPUT = "corrected"


@pytest.fixture
def slow_broker() -> Iterator[str]:
    """A cluster that takes four megabytes a second of each client, and makes it wait for more."""
    with broker() as running:
        class_path = os.pathsep.join(map(str, ensure_jars("broker")))
        quota = f"producer_byte_rate={PRODUCED_A_SECOND}"
        change = ("--alter", "--entity-type", "clients", "--entity-default", "--add-config", quota)
        subprocess.run(
            [
                *(find_java().executable, "-cp", class_path, "kafka.admin.ConfigCommand"),
                *("--bootstrap-server", running.bootstrap_servers, *change),
            ],
            check=True,
            capture_output=True,
        )
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        make_topic(admin, NewTopic(OUTPUT, 2, 1))
        yield running.bootstrap_servers


@pytest.fixture
def lake(spark: SparkSession, contract: DataContract, slow_broker: str, tmp_path: Path) -> Lake:
    settings = (
        f"lake.root={tmp_path}/lake",
        "batch.seal_by=bronze",
        f"kafka.bootstrap_servers={slow_broker}",
        f"publish.topic={OUTPUT}",
        "publish.slots=2",
        "publish.transaction_timeout=10 seconds",
        "publish.max_bytes_per_trigger=8m",
    )
    return Lake(
        Pipeline(
            spark, load_config("flights", environ={}, settings=settings), replace(contract, day_rules=())
        )
    )


def add_a_million(lake: Lake) -> None:
    """Records of the first of January that the speed layer never gets to see."""
    departs = "date_format(TIMESTAMP'2013-01-01T06:00:00' + make_dt_interval(0, 0, 0, id % 60000), {})"
    fields = {
        **{name: F.lit(value) for name, value in FLIGHT.items()},
        "flight": F.expr("10000 + id div 60000"),
        "scheduled_departure": F.expr(departs.format("\"yyyy-MM-dd'T'HH:mm:ss'-05:00'\"")),
    }
    like = lake.envelopes([on(1, FEW + 1)])
    values = lake.spark.range(0, MILLION, 1, 8).select(
        F.encode(F.to_json(F.struct(*(value.alias(name) for name, value in fields.items()))), "UTF-8").alias(
            "value"
        ),
        (F.col("id") + FEW).alias("_offset"),
    )
    rest = like.drop("value", "_offset")
    append(values.crossJoin(F.broadcast(rest)).select(*shape(BRONZE).names), lake.config.table("bronze"))


def on_the_topic(lake: Lake) -> Row:
    """Records that a reader of committed ones gets, their keys, and those that are corrections."""
    why = F.expr("exists(headers, header -> header.key = 'oncelake.correction')")
    settings = {
        "kafka.bootstrap.servers": lake.config.kafka.bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        "subscribe": OUTPUT,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }
    found = (
        lake.spark.read.format("kafka")
        .options(**settings)
        .load()
        .agg(F.count(F.lit(1)), F.count_distinct("key"), F.count_if(why))
        .first()
    )
    assert found is not None
    return found


@pytest.mark.long
@pytest.mark.timeout(timedelta(hours=1).total_seconds())
def test_a_million_corrections_with_ten_seconds_for_a_transaction(lake: Lake) -> None:
    def send() -> int:
        return publish(lake.pipeline, once=True).rows

    lake.ingest([on(1, number) for number in range(1, FEW + 1)])
    stream(lake)
    assert send() == FEW
    add_a_million(lake)
    run(lake, ONE)
    assert send() == MILLION
    assert tuple(on_the_topic(lake)) == (FEW + MILLION, FEW + MILLION, MILLION)
    assert send() == 0
