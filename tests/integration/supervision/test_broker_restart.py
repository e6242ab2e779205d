"""A broker that is gone needs nobody: `oncelake run` brings the streams back, and nothing is lost."""

import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from pipelines.runtime.local_broker import EmbeddedBroker, start_broker
from testbed.waiting import wait_until
from tests.support.kafka import make_topic, ordered_producer
from tests.support.lakes import flight
from tests.support.processes import BRIEF_SETTINGS, Job, start_job

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.thorough]
TOPIC = "flights"


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker that only this test stops and starts."""
    started = start_broker(tmp_path / "broker")
    try:
        make_topic(AdminClient({"bootstrap.servers": started.bootstrap_servers}), NewTopic(TOPIC, 2, 1))
        yield started
    finally:
        start_broker(tmp_path / "broker").stop()


def send(broker: EmbeddedBroker, numbers: range) -> None:
    producer = ordered_producer(broker.bootstrap_servers)
    for number in numbers:
        producer.produce(TOPIC, flight(flight=number))
    assert producer.flush(60) == 0


def child(job: Job, stream: str) -> psutil.Process | None:
    """The process of a stream."""
    for each in psutil.Process(job.process.pid).children():
        with suppress(psutil.Error):
            if f"{stream}_stream" in each.cmdline():
                return each
    return None


def test_streams_survive_a_broker_that_is_gone_and_a_kill_meanwhile(
    own_broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path, jobs: list[Job]
) -> None:
    lake, servers = tmp_path / "lake", own_broker.bootstrap_servers
    words = ("--pipeline=flights", "--streams=ingest,speed", f"--set=lake.root={lake}")
    cluster = (f"--set=kafka.bootstrap_servers={servers}", f"--set=kafka.topic={TOPIC}")
    job = start_job(
        "run", tmp_path, *words, *cluster, "--set=kafka.connect_timeout=2 seconds", *BRIEF_SETTINGS
    )
    jobs.append(job)

    def said(text: str) -> bool:
        return job.runs() and text in job.log.read_text()

    def rows(layer: str) -> int:
        table = lake / layer / "flights"
        return spark.read.format("delta").load(str(table)).count() if (table / "_delta_log").exists() else 0

    send(own_broker, range(1, 21))
    wait_until(lambda: job.runs() and rows("speed") == 20, "the speed layer has the first records")
    own_broker.stop()
    ingest = child(job, "ingest")
    assert ingest is not None
    ingest.kill()
    wait_until(lambda: said("flights/ingest: exit code 1: "), "ingest has not found the broker")
    assert child(job, "speed") is not None
    again = start_broker(tmp_path / "broker")
    assert again.bootstrap_servers == servers
    send(again, range(21, 41))
    wait_until(lambda: job.runs() and rows("speed") == 40, "the speed layer has all records")
    assert rows("bronze") == 40
    assert job.send(signal.SIGTERM) == 0
    summary = job.summary()
    assert (summary["status"], summary["exit_code"]) == ("stopped", 0)
    assert {each["stream"]: each["restarts"] > 1 for each in summary["streams"]} == {
        "ingest": True,
        "speed": False,
    }
