"""A task that takes long is seen to work while it runs."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from testbed.waiting import wait_until
from tests.support.kafka import MakeTopic, ordered_producer

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.thorough]
RECORDS = 200


@pytest.fixture
def meter(spark: SparkSession) -> Iterator[Any]:
    """What counts the signs of tasks, in Java."""
    jvm: Any = spark.sparkContext._jvm
    listeners: Any = spark.sparkContext._jsc.sc()
    meter = jvm.oncelake.watch.TaskMeter()
    listeners.addSparkListener(meter)
    yield meter
    listeners.removeSparkListener(meter)


def test_a_running_task_that_takes_records_gives_signs_before_it_has_ended(
    spark: SparkSession, broker: str, topic: MakeTopic, meter: Any
) -> None:
    name, producer = topic(partitions=1), ordered_producer(broker)
    for _ in range(RECORDS):
        producer.produce(name, b"record")
    assert producer.flush(60) == 0
    source = {"kafka.bootstrap.servers": broker, "subscribe": name}
    records = spark.read.format("kafka").options(**source).load()
    # Each record takes half a second: a minute and a half in all.
    slow = records.selectExpr("java_method('java.lang.Thread', 'sleep', 500L) AS slept")

    def work() -> None:
        spark.sparkContext.setJobGroup("slow", "slow", interruptOnCancel=True)
        with suppress(PySparkException, Py4JJavaError):
            slow.write.format("noop").mode("overwrite").save()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    wait_until(lambda: meter.signs()[1] == 1, "its task runs")
    before = meter.signs()[0]
    # Of its first heartbeat, and of two more.
    wait_until(lambda: meter.signs()[0] >= before + 3, "it gives signs")
    assert (meter.signs()[1], meter.ended()) == (1, 0)
    spark.sparkContext.cancelJobGroup("slow")
    thread.join()
    wait_until(lambda: meter.signs()[1] == 0, "it has ended")
