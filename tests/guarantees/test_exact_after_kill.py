"""Nothing is lost and nothing doubled when the streaming jobs are killed, at any point of a micro-batch."""

import signal
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from demo.waiting import wait_until
from pipelines.config.loader import load_config
from pipelines.contracts.contract import DataContract
from pipelines.delta.io import read
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.ingest import ingest
from pipelines.steps.speed import speed
from tests.support.kafka import MakeTopic, ordered_producer
from tests.support.lakes import flight
from tests.support.processes import BRIEF_SETTINGS, Job, start_job

EVENTS, COPIES, POISON = 3_000, 300, 40


def produce(broker: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for n in range(EVENTS):
        producer.produce(topic, flight(flight=n + 1), timestamp=1_357_050_000_000)
        if n % (EVENTS // COPIES) == 0:
            producer.produce(topic, flight(flight=max(1, n - 500)), timestamp=1_357_050_000_001)
        if n % (EVENTS // POISON) == 0:
            producer.produce(topic, b"poison %d" % n, timestamp=1_357_050_000_002)
        producer.poll(0)
    assert producer.flush(60) == 0


class Checkpoint:
    """Tells from the checkpoint's files where a query is."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _batches(self, folder: str) -> set[int]:
        return {int(p.name) for p in (self.path / folder).glob("[0-9]*")}

    def done(self) -> int:
        return len(self._batches("commits"))

    def is_within_a_batch(self) -> bool:
        return bool(self._batches("offsets") - self._batches("commits"))

    def wait_within(self, job: Job) -> None:
        wait_until(lambda: job.runs() and self.is_within_a_batch(), "the query is within a micro-batch")

    def wait_between(self, after: int, job: Job) -> None:
        wait_until(
            lambda: job.runs() and self.done() > after and not self.is_within_a_batch(),
            "the query is between micro-batches",
        )


@pytest.mark.timeout(900)
def test_counts_stay_exact_through_sigkill_within_and_between_micro_batches(
    spark: SparkSession,
    contract: DataContract,
    broker: str,
    topic: MakeTopic,
    tmp_path: Path,
    jobs: list[Job],
) -> None:
    name, lake = topic(partitions=3), tmp_path / "lake"
    produce(broker, name)
    settings = {
        "lake.root": lake,
        "kafka.topic": name,
        "kafka.bootstrap_servers": broker,
        "kafka.max_offsets_per_trigger": 500,
        "ingest.trigger_interval": "100 milliseconds",
        "speed.trigger_interval": "100 milliseconds",
    }
    common = ["--pipeline", "flights", *(f"--set={key}={value}" for key, value in settings.items())]
    common += BRIEF_SETTINGS
    # The stream that reads the other's table comes first: it needs to be fed to be within a micro-batch.
    checkpoints = {
        job: Checkpoint(lake / "ops/checkpoints/flights" / query)
        for job, query in (("speed_stream", "speed"), ("ingest_stream", "ingest"))
    }

    def start_both() -> dict[str, Job]:
        running = {job: start_job(job, tmp_path, *common) for job in checkpoints}
        jobs.extend(running.values())
        return running

    for within in (True, False):
        before = {job: checkpoint.done() for job, checkpoint in checkpoints.items()}
        for job, process in start_both().items():
            if within:
                checkpoints[job].wait_within(process)
            else:
                checkpoints[job].wait_between(before[job], process)
            process.kill()

    # What the dead processes left is all that the living one has.
    config = load_config(
        "flights", environ={}, settings=[f"{key}={value}" for key, value in settings.items()]
    )
    ingest(Pipeline(spark, config, contract), once=True)
    speed(Pipeline(spark, config, contract), once=True)

    bronze = read(spark, f"{lake}/bronze/flights").select("_partition", "_offset")
    coordinates = Counter(tuple(row) for row in bronze.toLocalIterator())
    assert set(coordinates.values()) == {1}
    assert len(coordinates) == EVENTS + COPIES + POISON
    deduplicated = read(spark, f"{lake}/speed/flights")
    numbers = Counter(row["flight"] for row in deduplicated.select("flight").toLocalIterator())
    assert set(numbers.values()) == {1}
    assert set(numbers) == set(range(1, EVENTS + 1))
    quarantined = read(spark, f"{lake}/quarantine/flights").select("_partition", "_offset")
    assert Counter(map(tuple, quarantined.toLocalIterator())).total() == POISON


@pytest.mark.thorough
def test_jobs_told_to_stop_end_with_0_and_a_summary(
    broker: str, topic: MakeTopic, tmp_path: Path, jobs: list[Job]
) -> None:
    name, lake = topic(), tmp_path / "lake"
    producer = ordered_producer(broker)
    producer.produce(name, flight())
    assert producer.flush(60) == 0
    settings = (f"lake.root={lake}", f"kafka.topic={name}", f"kafka.bootstrap_servers={broker}")
    common = ("--pipeline", "flights", *(f"--set={setting}" for setting in settings), *BRIEF_SETTINGS)
    summaries = {}
    for job, query, number in (
        ("ingest_stream", "ingest", signal.SIGINT),
        ("speed_stream", "speed", signal.SIGTERM),
    ):
        running = start_job(job, tmp_path, *common)
        jobs.append(running)
        # The summary counts what the query has told of, which is after the checkpoint knows.
        told = f"{query}: micro-batch 0:"
        wait_until(lambda: running.runs() and told in running.log.read_text(), told)  # noqa: B023
        assert running.send(number) == 0
        summaries[job] = running.summary()
    for job, summary in summaries.items():
        assert (summary["job"], summary["status"], summary["exit_code"]) == (job, "done", 0)
        assert summary["counts"]["records"] == 1
    offsets = summaries["ingest_stream"]["offsets"][name]
    assert sum(last - (first or 0) for first, last in offsets.values()) == 1
