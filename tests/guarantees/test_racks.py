"""Bytes stay in the rack, on three brokers in three racks and an executor in each."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.racks import EXECUTORS, measured, replicas
from pipelines.config.kafka import KafkaConfig
from pipelines.config.loader import load_config
from pipelines.kafka.admin import admin_client
from pipelines.racks.advice import advise
from pipelines.racks.topology import describe_racks
from testbed.rack_cluster import RackCluster, rack_cluster
from testbed.short_lived_settings import BRIEF_JAVA, BRIEF_SPARK
from testbed.waiting import wait_until
from tests.support.processes import BRIEF_ENVIRONMENT

RECORDS, SIZE, PARTITIONS = 24_000, 1_000, 12
BRIEF_EXECUTORS = (*BRIEF_SPARK, f"spark.conf.spark.executor.extraJavaOptions={BRIEF_JAVA}")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RackCluster]:
    with rack_cluster(tmp_path_factory.mktemp("racks")) as running:
        yield running


@pytest.fixture(scope="module")
def filled(cluster: RackCluster) -> Callable[[int], str]:
    """Makes and fills a topic with so many replicas, and tells its name."""

    @cache
    def fill(factor: int) -> str:
        topic = f"replicated-{factor}"
        cluster.create(topic, replicas(factor))
        cluster.fill(topic, PARTITIONS, RECORDS, SIZE)
        return topic

    return fill


@pytest.mark.thorough
def test_the_client_s_rack_keeps_bytes_where_all_racks_have_a_replica(
    cluster: RackCluster, filled: Callable[[int], str]
) -> None:
    told = cluster.folder / "metrics"
    told.mkdir()
    sink = "spark.conf.spark.metrics.conf.executor.sink.csv"
    done = measured(
        *(cluster, filled(3), "client", RECORDS),
        *(f"{sink}.class=org.apache.spark.metrics.sink.CsvSink", f"{sink}.directory={told}"),
        *(f"{sink}.period=1", f"{sink}.unit=seconds"),
    )
    # Executors tell Spark's own metrics the same when they end, each of the broker in its rack.
    assert {int(path.stem[-1]) for path in told.glob("*.bytesFromBroker?.csv")} == {1, 2, 3}
    assert done["counts"]["records"] == RECORDS
    assert done["racks"]["share"] > 0.99
    assert set(done["racks"]["bytes"]) == {"a", "b", "c"}


BATCH_READ = """
import json, sys
from pipelines.config.loader import load_config
from pipelines.spark.session import spark_session
from pipelines.kafka.source import offsets_between
from testbed.waiting import wait_until

topic, *settings = sys.argv[1:]
settings = [f"kafka.topic={topic}", *settings]
config = load_config("flights", environ={}, settings=settings)
spark = spark_session(config, "batch")
# An executor that has not come yet is given nothing; the driver is counted with them.
wait_until(lambda: spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() == 4, "all are there")
read = offsets_between(spark, config.kafka, {number: range(100) for number in range(12)})
plan = read._jdf.queryExecution().toRdd()
# What is made of the source does not know where the source's partitions are to be read.
while plan.dependencies().length():
    plan = plan.dependencies().apply(0).rdd()
chosen = {}
for partition in plan.partitions():
    listed = plan.preferredLocations(partition)
    chosen[partition.index()] = [listed.apply(n) for n in range(listed.length())]
print(json.dumps({"chosen": chosen, "records": read.count()}), flush=True)
"""


def batch_read(cluster: RackCluster, topic: str) -> dict[str, Any]:
    """Where a batch read is to take place, and how many records it has."""
    given = [
        *(f"lake.root={cluster.folder}/lake", f"kafka.bootstrap_servers={cluster.bootstrap_servers}"),
        *(f"spark.master={cluster.master}", "kafka.rack.mode=placement", *BRIEF_EXECUTORS),
        *(f"spark.conf.{setting}" for setting in EXECUTORS),
    ]
    done = subprocess.run(
        [sys.executable, "-c", BATCH_READ, topic, *given],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **BRIEF_ENVIRONMENT},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def is_placed(done: dict[str, Any]) -> None:
    assert done["counts"]["records"] == RECORDS
    assert done["racks"]["share"] > 0.99
    placement = done["racks"]["placement"]
    assert placement["rackBatchesLeft"] == "0"
    assert (placement["rackRecordsLocal"], placement["rackRecordsRemote"]) == (str(RECORDS), "0")
    assert float(placement["rackSkew"]) == pytest.approx(1, abs=0.05)


def test_placement_keeps_bytes_in_the_rack_with_fewer_replicas_than_racks(
    cluster: RackCluster, filled: Callable[[int], str]
) -> None:
    is_placed(measured(cluster, filled(2), "placement", RECORDS, *BRIEF_EXECUTORS))


@pytest.mark.thorough
def test_placement_keeps_bytes_in_the_rack_with_one_replica(
    cluster: RackCluster, filled: Callable[[int], str]
) -> None:
    is_placed(measured(cluster, filled(1), "placement", RECORDS))


@pytest.mark.thorough
def test_a_batch_read_is_placed_too(cluster: RackCluster, filled: Callable[[int], str]) -> None:
    found = batch_read(cluster, filled(2))
    assert found["records"] == 12 * 100
    executors = {locations[0] for locations in found["chosen"].values()}
    assert len(found["chosen"]) == PARTITIONS
    assert len(executors) == 3, found["chosen"]
    assert all(name.startswith("executor_") for name in executors)


@pytest.mark.thorough
def test_what_is_lost_moved_or_replaced_changes_the_share_and_nothing_else(
    cluster: RackCluster, filled: Callable[[int], str]
) -> None:
    # While all brokers run.
    single, double = filled(1), filled(2)
    cluster.workers["c"].kill()
    done = measured(cluster, single, "placement", RECORDS, "spark.conf.spark.cores.max=2")
    assert done["counts"]["records"] == RECORDS
    placement = done["racks"]["placement"]
    assert int(placement["rackRecordsRemote"]) == RECORDS / 3
    assert placement["rackReason"] == "no executor runs where these replicas are: c"
    # Clients fetch ahead, and bytes that were fetched and then not read are counted too: near, not exact.
    assert done["racks"]["share"] == pytest.approx(2 / 3, abs=0.1)

    cluster.brokers[2].kill()

    wait_until(lambda: set(cluster.leaders(double)) == {1, 3}, "other brokers lead")
    done = measured(cluster, double, "placement", RECORDS, "spark.conf.spark.cores.max=2")
    assert done["counts"]["records"] == RECORDS
    # No task fails and no batch is left to Spark; both executors that there are take part.
    assert done["racks"]["placement"]["rackBatchesLeft"] == "0"
    assert set(done["racks"]["bytes"]) == {"a", "b"}

    cluster.brokers[2].again()
    cluster.workers["c"].again()
    wait_until(lambda: cluster.in_sync(double) == 2, "the broker has what it missed")

    def meanwhile() -> None:
        cluster.move_leaders(double)
        cluster.kill_executor("a")

    done = measured(cluster, double, "placement", RECORDS, meanwhile=meanwhile)
    assert set(cluster.leaders(double)) == {1, 2, 3}
    assert done["counts"] == {"records": RECORDS, "batches": 20}
    placement = done["racks"]["placement"]
    assert (placement["rackBatchesPlaced"], placement["rackBatchesLeft"]) == ("20", "0")
    # What was read again after the executor had died is counted, and may come from elsewhere.
    assert done["racks"]["share"] > 0.8


@pytest.fixture
def uneven(tmp_path: Path) -> Iterator[RackCluster]:
    """Two brokers in one rack, and one in another."""
    with rack_cluster(tmp_path, brokers=("a", "a", "b"), workers=()) as running:
        yield running


@pytest.mark.thorough
def test_the_doctor_names_shares_and_bill_and_the_moves_it_plans_are_taken_by_the_cluster(
    uneven: RackCluster, spark: SparkSession, tmp_path: Path
) -> None:
    uneven.create("crowded", [[1, 2], [2, 1], [3, 1]])
    settings = {"kafka.topic": "crowded", "kafka.bootstrap_servers": uneven.bootstrap_servers}
    settings["lake.root"] = str(tmp_path / "lake")

    def said(*words: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "pipelines.cli", "rack", *words, "--pipeline=flights"]
        given = [f"--set={key}={value}" for key, value in settings.items()]
        done = subprocess.run([*command, "--format=json", *given], capture_output=True, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    found = said("doctor", "--executors=b", "--gigabytes=300")
    assert found["shares"] == {"off": 0.3333, "client": 0.3333, "placement": 0.3333}
    assert found["bill"]["off"] == {"gigabytes": 200.0, "price": 4.0}
    assert "2 of 3 partitions have replicas in fewer than 2 racks" in "".join(found["hints"])

    plan = tmp_path / "plan.json"
    assert said("moves", f"--out={plan}")["moves"] == 2
    config = load_config(
        "flights", environ={}, settings=[f"{key}={value}" for key, value in settings.items()]
    )
    carry_out(spark, config.kafka, json.loads(plan.read_text()))
    wait_until(
        lambda: all(3 in partition.in_sync for partition in describe_racks(spark, config.kafka).partitions),
        "the moves are done",
    )
    moved = describe_racks(spark, config.kafka)
    assert [partition.replicas for partition in moved.partitions] == [(1, 3), (2, 3), (3, 1)]
    assert advise(moved, ["b"], "client").shares["client"] == 1


def carry_out(spark: SparkSession, kafka: KafkaConfig, plan: dict[str, Any]) -> None:
    """What `kafka-reassign-partitions --execute` asks of a cluster."""
    with admin_client(spark, kafka) as admin:
        asked = admin.jvm.java.util.HashMap()
        for each in plan["partitions"]:
            brokers = admin.jvm.java.util.ArrayList()
            for broker in each["replicas"]:
                brokers.add(broker)
            partition = admin.jvm.org.apache.kafka.common.TopicPartition(each["topic"], each["partition"])
            move = admin.jvm.org.apache.kafka.clients.admin.NewPartitionReassignment(brokers)
            asked.put(partition, admin.jvm.java.util.Optional.of(move))
        admin.get(admin.client.alterPartitionReassignments(asked).all())
