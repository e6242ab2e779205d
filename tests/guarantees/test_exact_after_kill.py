"""Nothing is lost and nothing doubled when the streaming jobs are killed, at any point of a micro-batch."""

import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.ingest import ingest
from pipelines.steps.speed import speed
from testbed.short_lived_settings import BRIEF_SPARK
from testbed.waiting import wait_until
from tests.support.delta_rows import rows_in
from tests.support.kafka import MakeTopic, ordered_producer
from tests.support.lakes import flight
from tests.support.processes import BRIEF_SETTINGS, Job, start_job, start_program

EVENTS, COPIES, POISON = 1_200, 120, 24


class Feed:
    """A topic, and the records that it is still to get."""

    def __init__(self, broker: str, topic: str) -> None:
        self._producer, self._topic = ordered_producer(broker), topic
        self._left = iter(self._all())

    def send(self, count: int | None = None) -> None:
        """Sends as many of them; all without a number."""
        for moment, value in islice(self._left, count):
            self._producer.produce(self._topic, value, timestamp=1_357_050_000_000 + moment)
        assert self._producer.flush(60) == 0

    @staticmethod
    def _all() -> Iterator[tuple[int, bytes]]:
        for n in range(EVENTS):
            yield 0, flight(flight=n + 1)
            if n % (EVENTS // COPIES) == 0:
                yield 1, flight(flight=max(1, n - 200))
            if n % (EVENTS // POISON) == 0:
                yield 2, b"poison %d" % n


class Checkpoint:
    """Tells from the checkpoint's files where a query is."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _batches(self, folder: str) -> set[int]:
        return {int(p.name) for p in (self.path / folder).glob("[0-9]*")}

    def is_within_a_batch(self) -> bool:
        return bool(self._batches("offsets") - self._batches("commits"))

    def is_between_batches(self) -> bool:
        return bool(self._batches("commits")) and not self.is_within_a_batch()


def stop_where(job: Job, holds: Callable[[], bool]) -> bool:
    """Stops a job where something holds; otherwise it goes on."""
    if not (job.runs() and holds()):
        return False
    os.killpg(job.process.pid, signal.SIGSTOP)
    # It went on until it was stopped.
    if holds():
        return True
    os.killpg(job.process.pid, signal.SIGCONT)
    return False


@pytest.mark.timeout(900)
def test_counts_stay_exact_through_sigkill_within_and_between_micro_batches(
    spark: SparkSession,
    contract: DataContract,
    broker: str,
    topic: MakeTopic,
    tmp_path: Path,
    jobs: list[Job],
) -> None:
    feed, lake, between = Feed(broker, name := topic(partitions=3)), tmp_path / "lake", tmp_path / "between"
    settings = (
        f"kafka.topic={name}",
        f"kafka.bootstrap_servers={broker}",
        "kafka.max_offsets_per_trigger=100",
        "ingest.trigger_interval=100 milliseconds",
        "speed.trigger_interval=100 milliseconds",
    )
    queries = [Checkpoint(lake / "ops/checkpoints/flights" / query) for query in ("ingest", "speed")]
    feed.send(200)
    given = (*settings, f"lake.root={lake}", "spark.master=local[2]", *BRIEF_SPARK)
    job = start_program("tests.support.both_streams", tmp_path, *given)
    jobs.append(job)

    def is_between() -> bool:
        return all(query.is_between_batches() for query in queries)

    def is_within() -> bool:
        return all(query.is_within_a_batch() for query in queries)

    wait_until(lambda: stop_where(job, is_between), "both are between micro-batches")
    # What is on the disk now is what SIGKILL would leave.
    shutil.copytree(lake, between)
    os.killpg(job.process.pid, signal.SIGCONT)

    def feed_idle() -> None:
        if not queries[0].is_within_a_batch():
            feed.send(10)

    wait_until(lambda: stop_where(job, is_within), "both are within a micro-batch", meanwhile=feed_idle)
    job.kill()
    feed.send()

    for root in (lake, between):
        config = load_config("flights", environ={}, settings=(*settings[:2], f"lake.root={root}"))
        # What the dead process left is all that the living one has.
        ingest(Pipeline(spark, config, contract), once=True)
        speed(Pipeline(spark, config, contract), once=True)
        has_each_record_once(config)


def has_each_record_once(config: PipelineConfig) -> None:
    coordinates = Counter(rows_in(config.table("bronze"), "_partition", "_offset"))
    assert set(coordinates.values()) == {1}
    assert len(coordinates) == EVENTS + COPIES + POISON
    numbers = Counter(number for (number,) in rows_in(config.table("speed"), "flight"))
    assert set(numbers.values()) == {1}
    assert set(numbers) == set(range(1, EVENTS + 1))
    assert len(rows_in(config.table("quarantine"), "_offset")) == POISON


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
