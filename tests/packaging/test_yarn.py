"""Jobs in YARN's cluster mode, shipped as docs/deploy.md says: the driver is in a container as well."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from testbed.rack_cluster import RackCluster, rack_cluster
from testbed.waiting import wait_until
from tests.support.kafka import ordered_producer
from tests.support.lakes import flight
from tests.support.readers import messages_of
from tests.support.yarn import EXECUTORS, Yarn, yarn

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
SPARK_JARS = Path(pyspark.__file__).parent / "jars"
RACKS = ("a", "b")
RECORDS, FLIGHTS, PARTITIONS = 4_000, 1_000, 4
WITHIN_S = 300


@dataclass
class Jobs:
    """The jobs of a pipeline on YARN."""

    cluster: RackCluster
    yarn: Yarn
    submit: Start
    python: Path
    folder: Path

    def start(self, name: str, *arguments: str) -> "subprocess.Popen[str]":
        conf = (
            *EXECUTORS,
            "spark.ui.enabled=false",
            "spark.yarn.maxAppAttempts=1",
            # Spark's own jars are on each node, and are not shipped.
            f"spark.yarn.jars=local:{SPARK_JARS}/*",
            f"spark.yarn.stagingDir={self.folder}/staging",
            f"spark.yarn.appMasterEnv.PYSPARK_PYTHON={self.python}",
            f"spark.executorEnv.PYSPARK_PYTHON={self.python}",
        )
        return self.submit(
            "yarn",
            ROOT / "jobs" / f"{name}.py",
            *("--pipeline", "flights", "--log-format", "json"),
            *("--conf-dir", "settings/conf", "--contracts-dir", "settings/data_contracts"),
            *("--set", f"kafka.bootstrap_servers={self.cluster.bootstrap_servers}"),
            *("--set", "kafka.topic=flights", "--set", "kafka.rack.mode=placement"),
            *("--set", "publish.topic=events"),
            *("--set", f"lake.root={self.folder / 'lake'}"),
            *arguments,
            options=[
                *("--deploy-mode", "cluster"),
                *("--archives", f"{self.folder / 'settings.zip'}#settings"),
                *(word for setting in conf for word in ("--conf", setting)),
            ],
            HADOOP_CONF_DIR=str(self.yarn.conf),
        )

    def ended(self, job: "subprocess.Popen[str]") -> dict[str, Any]:
        """The summary of a job, which is in the output of its driver, in a container."""
        code = job.wait(WITHIN_S)
        drivers = sorted(self.yarn.logs.rglob("container_*_000001"), key=lambda each: each.stat().st_mtime)
        said, log = ((drivers[-1] / name).read_text() if drivers else "" for name in ("stdout", "stderr"))
        assert code == 0, f"{(self.folder / 'stderr').read_text()[-2000:]} {said} {log[-3000:]}"
        summary: dict[str, Any] = json.loads(said.splitlines()[-1])
        assert (summary["status"], summary["exit_code"]) == ("done", 0)
        return summary

    def run(self, name: str, *arguments: str) -> dict[str, Any]:
        return self.ended(self.start(name, *arguments))


@pytest.fixture
def jobs(submit: Start, clean_python: Path, tmp_path: Path) -> Iterator[Jobs]:
    packing = [
        sys.executable,
        "-m",
        "zipfile",
        "-c",
        str(tmp_path / "settings.zip"),
        "conf",
        "data_contracts",
    ]
    subprocess.run(packing, check=True, cwd=ROOT)
    with (
        rack_cluster(tmp_path, brokers=RACKS, workers=(), replicas=2) as cluster,
        yarn(tmp_path, RACKS) as running,
    ):
        for topic in ("flights", "events"):
            cluster.create(topic, [[1, 2], [2, 1]] * (PARTITIONS // 2))
        yield Jobs(cluster, running, submit, clean_python, tmp_path)


def test_a_driver_in_a_container_has_all_that_it_needs_and_an_executor_is_killed(
    jobs: Jobs, spark: SparkSession
) -> None:
    producer = ordered_producer(jobs.cluster.bootstrap_servers)
    for number in range(RECORDS):
        producer.produce("flights", flight(flight=1 + number % FLIGHTS), partition=number % PARTITIONS)
    assert producer.flush(60) == 0

    ingest = jobs.start("ingest_stream", "--once", "--set", "kafka.max_offsets_per_trigger=400")
    commits = jobs.folder / "lake/ops/checkpoints/flights/ingest/commits"
    wait_until(lambda: ingest.poll() is not None or (commits / "1").exists(), "micro-batches are done")
    assert ingest.poll() is None, (jobs.folder / "stderr").read_text()[-3000:]
    for rack in RACKS:
        assert len(jobs.yarn.executors(rack)) == 1
    jobs.yarn.executors("b")[0].kill()
    summary = jobs.ended(ingest)
    assert summary["counts"]["records"] == RECORDS
    assert set(summary["racks"]["bytes"]) == set(RACKS)
    assert summary["racks"]["share"] > 0.99
    # Spark gives executors on YARN no attributes of ours, so their racks have come another way.
    assert int(summary["racks"]["placement"]["rackBatchesPlaced"]) > 0

    jobs.run("speed_stream", "--once")
    # A stream that starts after a day was certified does not send its rows.
    jobs.run("publish_stream", "--once")
    assert jobs.run("nightly_batch", "--date", "2013-01-01")["days"] == {"2013-01-01": "certified"}

    def rows(layer: str) -> Any:
        return spark.read.format("delta").load(str(jobs.folder / "lake" / layer / "flights"))

    places = Counter((row["_partition"], row["_offset"]) for row in rows("bronze").collect())
    per_partition = RECORDS // PARTITIONS
    assert places == Counter((n, offset) for n in range(PARTITIONS) for offset in range(per_partition))
    expected = [*range(1, FLIGHTS + 1)]
    for layer in ("speed", "batch"):
        assert sorted(row["flight"] for row in rows(layer).collect()) == expected, layer
    published = messages_of(jobs.cluster.bootstrap_servers, "events")
    assert sorted(json.loads(each.value or b"")["flight"] for each in published) == expected
