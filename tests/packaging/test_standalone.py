"""Jobs on a standalone Spark of two workers in two racks, both of which are killed: the lake is exact.

The zip and the jars are shipped as docs/deploy.md says, and no executor can see the checkout.
"""

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from testbed.rack_cluster import RackCluster, rack_cluster
from testbed.waiting import wait_until
from tests.support.kafka import ordered_producer
from tests.support.lakes import flight
from tests.support.readers import messages_of

Start = Callable[..., "subprocess.Popen[str]"]
pytestmark = [
    pytest.mark.packaging,
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.thorough,
    pytest.mark.timeout(900),
]

ROOT = Path(__file__).resolve().parents[2]
RACKS = ("a", "b")
# Each flight is sent eight times; its copies come in different micro-batches.
RECORDS, FLIGHTS, PARTITIONS = 8_000, 1_000, 4
EXECUTORS = (
    "spark.ui.enabled=false",
    "spark.driver.host=127.0.0.1",
    "spark.cores.max=2",
    "spark.executor.cores=1",
    "spark.executor.memory=700m",
    "spark.scheduler.minRegisteredResourcesRatio=1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime=60s",
)
WITHIN_S = 240


@dataclass
class Jobs:
    """The jobs of a pipeline on a cluster whose workers may be killed."""

    cluster: RackCluster
    submit: Start
    folder: Path
    topic: str
    output: str

    def start(self, name: str, *arguments: str) -> "subprocess.Popen[str]":
        return self.submit(
            self.cluster.master,
            self.folder / "jobs" / f"{name}.py",
            *("--pipeline", "flights", "--log-format", "json"),
            *("--set", f"kafka.bootstrap_servers={self.cluster.bootstrap_servers}"),
            *("--set", f"kafka.topic={self.topic}"),
            *("--set", "kafka.rack.mode=placement"),
            *("--set", f"publish.topic={self.output}"),
            *("--set", f"lake.root={self.folder / 'lake'}"),
            *arguments,
            options=[word for setting in EXECUTORS for word in ("--conf", setting)],
        )

    def ended(self, job: "subprocess.Popen[str]") -> dict[str, Any]:
        assert job.wait(WITHIN_S) == 0, (self.folder / "stderr").read_text()[-3000:]
        summary: dict[str, Any] = json.loads((self.folder / "stdout").read_text().splitlines()[-1])
        assert (summary["status"], summary["exit_code"]) == ("done", 0)
        return summary

    def run(self, name: str, *arguments: str) -> dict[str, Any]:
        return self.ended(self.start(name, *arguments))

    def disturb(self, job: "subprocess.Popen[str]", query: str) -> None:
        """Kill an executor, and then a worker, each in the midst of a micro-batch of a stream."""
        self._wait_for_micro_batch(job, query, 2)
        for executor in self._executors("a"):
            executor.kill()
        killed_in = self._newest(query, "commits")
        wait_until(lambda: bool(self._executors("a")), "the worker has started another executor")

        self._wait_for_micro_batch(job, query, killed_in + 2)
        orphans = self._executors("b")
        try:
            self.cluster.workers["b"].process.kill()
            killed_in = self._newest(query, "commits")
            wait_until(lambda: not any(map(is_alive, orphans)), "the executors of the worker have ended")
        finally:
            for each in filter(is_alive, orphans):
                each.kill()
        self._wait_for_micro_batch(job, query, killed_in + 2)

        self.cluster.workers["b"].again()
        wait_until(lambda: bool(self._executors("b")), "the worker that was started again has an executor")

    def _wait_for_micro_batch(self, job: "subprocess.Popen[str]", query: str, number: int) -> None:
        """Wait until a micro-batch with this number, or a later one, is planned and not done."""

        def is_in_the_midst() -> bool:
            assert job.poll() is None, (self.folder / "stderr").read_text()[-3000:]
            planned = self._newest(query, "offsets")
            return planned >= number and planned > self._newest(query, "commits")

        wait_until(is_in_the_midst, f"micro-batch {number} of {query} is under way")

    def _newest(self, query: str, kind: str) -> int:
        files = (self.folder / "lake/ops/checkpoints/flights" / query / kind).glob("[0-9]*")
        return max((int(file.name) for file in files), default=-1)

    def _executors(self, rack: str) -> list[psutil.Process]:
        children = self.cluster.workers[rack].process.children(recursive=True)
        return [each for each in children if is_alive(each) and is_executor(each)]


def is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def is_executor(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())
    return False


@pytest.fixture
def jobs(submit: Start, tmp_path: Path) -> Iterator[Jobs]:
    for folder in ("jobs", "conf", "data_contracts"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    with rack_cluster(tmp_path, brokers=RACKS, workers=RACKS, replicas=2) as cluster:
        found = Jobs(cluster, submit, tmp_path, "flights", "events")
        replicas = [[1, 2], [2, 1]] * (PARTITIONS // 2)
        cluster.create(found.topic, replicas)
        cluster.create(found.output, replicas)
        yield found


def test_executors_and_workers_are_killed_in_mid_stream_and_the_lake_is_exact(
    jobs: Jobs, spark: SparkSession
) -> None:
    producer = ordered_producer(jobs.cluster.bootstrap_servers)
    for number in range(RECORDS):
        producer.produce(jobs.topic, flight(flight=1 + number % FLIGHTS), partition=number % PARTITIONS)
    assert producer.flush(60) == 0

    ingest = jobs.start(
        "ingest_stream",
        *("--set", "kafka.max_offsets_per_trigger=200"),
        *("--set", "ingest.trigger_interval=100 milliseconds"),
    )
    jobs.disturb(ingest, "ingest")
    # A scheduler ends the process that it started, which is the JVM: Python is its child.
    ingest.terminate()
    racks = jobs.ended(ingest)["racks"]
    assert set(racks["bytes"]) == set(RACKS)
    assert racks["share"] > 0.99
    jobs.run("ingest_stream", "--once")

    speed = jobs.start(
        "speed_stream",
        *("--set", "speed.max_bytes_per_trigger=1b", "--set", "speed.trigger_interval=100 milliseconds"),
    )
    jobs.disturb(speed, "speed")
    speed.terminate()
    jobs.ended(speed)
    jobs.run("speed_stream", "--once")

    # A stream that starts after a day was certified does not send its rows.
    jobs.run("publish_stream", "--once")
    night = jobs.run("nightly_batch", "--date", "2013-01-01")
    assert night["days"] == {"2013-01-01": "certified"}

    def rows(layer: str) -> Any:
        return spark.read.format("delta").load(str(jobs.folder / "lake" / layer / "flights"))

    places = Counter((row["_partition"], row["_offset"]) for row in rows("bronze").collect())
    per_partition = RECORDS // PARTITIONS
    assert places == Counter((n, offset) for n in range(PARTITIONS) for offset in range(per_partition))
    expected = [*range(1, FLIGHTS + 1)]
    for layer in ("speed", "batch"):
        assert sorted(row["flight"] for row in rows(layer).collect()) == expected, layer
    published = messages_of(jobs.cluster.bootstrap_servers, jobs.output)
    assert sorted(json.loads(each.value or b"")["flight"] for each in published) == expected


def test_cluster_mode_is_refused_by_spark_as_the_page_says(submit: Start, tmp_path: Path) -> None:
    options = ("--deploy-mode", "cluster")
    # Spark refuses before it looks for a master.
    nowhere, script = "spark://127.0.0.1:1", ROOT / "jobs" / "ingest_stream.py"
    assert submit(nowhere, script, "--pipeline", "flights", options=options).wait(WITHIN_S) == 1
    said = (tmp_path / "stderr").read_text()
    refusal = "Cluster deploy mode is currently not supported for python applications on standalone clusters."
    assert refusal in said
    assert refusal in " ".join((ROOT / "docs" / "deploy.md").read_text().split())
