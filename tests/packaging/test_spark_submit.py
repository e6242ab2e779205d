"""The zip serves a cluster: a driver and executors of which none can see the checkout."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pipelines.ops.broker import broker
from pipelines.ops.jars import ensure_jars
from pipelines.ops.java import find_java

Run = Callable[..., "subprocess.CompletedProcess[str]"]
pytestmark = [
    pytest.mark.packaging,
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

ROOT = Path(__file__).resolve().parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
RECORDS = 300

ON_EXECUTORS = """
from pyspark.sql import SparkSession
def where(_):
    import os, pipelines.resources
    return os.getpid(), pipelines.resources.__file__, pipelines.resources.resource("conf/ivy.xml").exists()
session = SparkSession.builder.getOrCreate()
for line in session.sparkContext.parallelize(range(8), 8).map(where).distinct().collect():
    print("seen", *line)
"""


@pytest.fixture
def submit(run: Run, clean_python: Path, packed: Path, tmp_path: Path) -> Run:
    """spark-submit on two workers with a core each."""
    jars = ",".join(map(str, ensure_jars("spark")))

    def submit_job(script: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return run(
            SPARK_HOME / "bin" / "spark-submit",
            *("--master", "local-cluster[2,1,1024]"),
            *("--properties-file", str(ROOT / "conf" / "spark-defaults.conf")),
            *("--conf", "spark.ui.enabled=false"),
            *("--conf", "spark.driver.host=127.0.0.1"),
            *("--jars", jars),
            *("--py-files", str(packed)),
            script,
            *arguments,
            cwd=tmp_path,
            SPARK_HOME=str(SPARK_HOME),
            SPARK_SCALA_VERSION="2.13",
            JAVA_HOME=str(find_java().home),
            PYSPARK_PYTHON=str(clean_python),
        )

    return submit_job


def test_executors_import_the_package_and_its_files_from_the_zip(submit: Run, tmp_path: Path) -> None:
    script = tmp_path / "on_executors.py"
    script.write_text(ON_EXECUTORS)
    done = submit(script)
    seen = [line.split()[2:] for line in done.stdout.splitlines() if line.startswith("seen ")]
    assert seen, done.stderr[-3000:]
    for file, has_resources in seen:
        assert "oncelake-0.1.0.zip/pipelines/" in file
        assert has_resources == "True"


def test_a_job_of_the_zip_copies_a_topic_into_bronze_on_two_workers(submit: Run, tmp_path: Path) -> None:
    for folder in ("jobs", "conf", "data_contracts"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    with broker() as running:
        topic = f"flights-{tmp_path.name}"
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(30)
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for number in range(RECORDS):
            producer.produce(topic, b"{}", str(number))
        assert producer.flush(60) == 0
        done = submit(
            tmp_path / "jobs" / "ingest_stream.py",
            *("--pipeline", "flights", "--once", "--log-format", "json"),
            *("--set", f"kafka.bootstrap_servers={running.bootstrap_servers}"),
            *("--set", f"kafka.topic={topic}"),
            *("--set", f"lake.root={tmp_path / 'lake'}"),
        )
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["status"], summary["counts"]["records"]) == ("done", RECORDS)
    assert _rows(tmp_path / "lake" / "bronze" / "flights") == RECORDS


def _rows(table: Path) -> int:
    """Rows of a Delta table to which rows were only ever added, from the statistics in its log."""
    return sum(
        json.loads(action["add"]["stats"])["numRecords"]
        for commit in (table / "_delta_log").glob("*.json")
        for action in map(json.loads, commit.read_text().splitlines())
        if "add" in action
    )
