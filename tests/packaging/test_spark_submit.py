"""The zip serves a cluster: a driver and executors of which none can see the checkout."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from testbed.waiting import wait_until
from tests.support.kafka import brief_broker, make_topic, ordered_producer
from tests.support.lakes import flight
from tests.support.readers import messages_of

Start = Callable[..., "subprocess.Popen[str]"]
pytestmark = [
    pytest.mark.packaging,
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

ROOT = Path(__file__).resolve().parents[2]
ONE_WORKER, TWO_WORKERS = (f"local-cluster[{workers},1,1024]" for workers in (1, 2))
ON_ONE_MACHINE = ("--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1")
RECORDS, FLIGHTS = 300, 100
WITHIN_S = 240

ON_EXECUTORS = """
from pyspark.sql import SparkSession
def where(_):
    import os, pipelines.resources
    return os.getpid(), pipelines.resources.__file__, pipelines.resources.resource("conf/ivy.xml").exists()
session = SparkSession.builder.getOrCreate()
for line in session.sparkContext.parallelize(range(2), 2).map(where).distinct().collect():
    print("seen", *line)
"""


def test_executors_import_the_package_and_its_files_from_the_zip(submit: Start, tmp_path: Path) -> None:
    script = tmp_path / "on_executors.py"
    script.write_text(ON_EXECUTORS)
    submit(ONE_WORKER, script, options=ON_ONE_MACHINE).wait(WITHIN_S)
    seen = [line.split()[2:] for line in said(tmp_path) if line.startswith("seen ")]
    assert seen, (tmp_path / "stderr").read_text()[-3000:]
    for file, has_resources in seen:
        assert "oncelake-0.1.0.zip/pipelines/" in file
        assert has_resources == "True"


@pytest.mark.thorough
def test_jobs_of_the_zip_copy_a_topic_until_told_to_stop_and_publish_it_on_two_workers(
    submit: Start, tmp_path: Path
) -> None:
    for folder in ("jobs", "conf", "data_contracts"):
        shutil.copytree(ROOT / folder, tmp_path / folder)

    def start(name: str, *arguments: str) -> "subprocess.Popen[str]":
        return submit(
            TWO_WORKERS,
            tmp_path / "jobs" / f"{name}.py",
            *("--pipeline", "flights", "--log-format", "json"),
            *("--set", f"kafka.bootstrap_servers={servers}"),
            *("--set", f"kafka.topic={source}"),
            *("--set", f"publish.topic={output}"),
            *("--set", f"lake.root={tmp_path / 'lake'}"),
            *arguments,
            options=ON_ONE_MACHINE,
        )

    def ended(job: "subprocess.Popen[str]") -> dict[str, Any]:
        assert job.wait(WITHIN_S) == 0, (tmp_path / "stderr").read_text()[-3000:]
        summary = json.loads(said(tmp_path)[-1])
        assert (summary["status"], summary["exit_code"]) == ("done", 0)
        counts: dict[str, Any] = summary["counts"]
        return counts

    with brief_broker() as servers:
        source, output = f"flights-{tmp_path.name}", f"events-{tmp_path.name}"
        admin = AdminClient({"bootstrap.servers": servers})
        for fresh in (NewTopic(source, 4, 1), NewTopic(output, 4, 1)):
            make_topic(admin, fresh)
        producer = ordered_producer(servers)
        for number in range(RECORDS):
            producer.produce(source, flight(flight=1 + number % FLIGHTS), str(number))
        assert producer.flush(60) == 0
        job = start("ingest_stream")
        commits = tmp_path / "lake/ops/checkpoints/flights/ingest/commits"
        wait_until(lambda: job.poll() is not None or (commits / "0").exists(), "a micro-batch is done")
        # A scheduler ends the process that it started, which is the JVM: Python is its child.
        job.terminate()
        assert ended(job)["records"] == RECORDS
        assert _rows(tmp_path / "lake" / "bronze" / "flights") == RECORDS
        ended(start("speed_stream", "--once"))
        assert ended(start("publish_stream", "--once"))["rows"] == FLIGHTS
        found = messages_of(servers, output)
    assert sorted(json.loads(each.value or b"")["flight"] for each in found) == list(range(1, FLIGHTS + 1))


def said(folder: Path) -> list[str]:
    return (folder / "stdout").read_text().splitlines()


def _rows(table: Path) -> int:
    """Rows of a Delta table to which rows were only ever added, from the statistics in its log."""
    return sum(
        json.loads(action["add"]["stats"])["numRecords"]
        for commit in (table / "_delta_log").glob("*.json")
        for action in map(json.loads, commit.read_text().splitlines())
        if "add" in action
    )
