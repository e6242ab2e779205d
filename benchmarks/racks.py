"""`python -m benchmarks.racks`: which share of the bytes stays in the rack, on brokers and workers in three.

Each row is one run of `oncelake rack measure`, a process of its own with an executor in each rack, and the
shares are of the bytes that the executors' Kafka clients counted.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from benchmarks.rack_cluster import RACKS, RackCluster, rack_cluster, wait_until
from demo.cast import BRIEF_JAVA
from pipelines.errors import InfrastructureError

MODES: Final = ("stock", "client", "placement")
PARTITIONS: Final = 12
# A variable that no executor has: client.rack is empty as without any of this, but bytes are counted.
_STOCK: Final = ("kafka.rack.mode=client", "kafka.rack.variable=NO_RACK")
_WITHIN_S: Final = 300
_EXECUTORS: Final = (
    "spark.cores.max=3",
    "spark.executor.cores=1",
    "spark.executor.memory=600m",
    "spark.driver.host=127.0.0.1",
    "spark.scheduler.minRegisteredResourcesRatio=1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime=60s",
)


def replicas(factor: int, partitions: int = PARTITIONS) -> list[list[int]]:
    """Brokers of each partition, in turn, for a replication factor."""
    return [[(n + each) % len(RACKS) + 1 for each in range(factor)] for n in range(partitions)]


def measured(cluster: RackCluster, topic: str, mode: str, records: int, *settings: str) -> dict[str, Any]:
    """Reads a topic with an executor in each rack.

    Args:
        cluster: what runs.
        topic: what is read.
        mode: `kafka.rack.mode`, or `stock`: Spark's own source and no rack, with bytes counted all the same.
        records: how many to read at most.
        settings: further settings of the pipeline.

    Returns:
        The summary of the run, with `racks`.
    """
    given = [
        f"lake.root={cluster.folder}/lake",
        f"kafka.bootstrap_servers={cluster.bootstrap_servers}",
        f"kafka.topic={topic}",
        f"spark.master={cluster.master}",
        *(f"spark.conf.{setting}" for setting in _EXECUTORS),
        *(_STOCK if mode == "stock" else [f"kafka.rack.mode={mode}"]),
        *settings,
    ]
    command = [sys.executable, "-m", "pipelines.cli", "rack", "measure", "--pipeline", "flights"]
    command += ["--log-format", "json", "--records", str(records)]
    done = subprocess.run(
        [*command, *(f"--set={setting}" for setting in given)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_WITHIN_S,
        check=False,
        env={**os.environ, "JDK_JAVA_OPTIONS": BRIEF_JAVA},
    )
    if done.returncode != 0:
        raise InfrastructureError(f"oncelake rack measure failed: {done.stdout[-500:]} {done.stderr[-3000:]}")
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return summary


@click.command("rack-bench")
@click.option("--records", default=200_000, show_default=True, type=click.IntRange(min=1_000))
@click.option(
    "--size", default=1_000, show_default=True, type=click.IntRange(min=10), help="Bytes of a record."
)
@click.option(
    "--out",
    default=Path(__file__).parent / "out" / "racks.json",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the results go, as JSON.",
)
def main(records: int, size: int, out: Path) -> None:
    """Measure the share of bytes within the rack, by replication factor and mode, and when things break."""
    console = Console(stderr=True)
    found: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory(prefix="oncelake-racks-") as folder,
        rack_cluster(Path(folder)) as cluster,
    ):
        for factor in (3, 2, 1):
            topic = f"replicated-{factor}"
            cluster.create(topic, replicas(factor))
            cluster.fill(topic, PARTITIONS, records, size)
            for mode in MODES:
                found.append(_row(console, cluster, f"replication {factor}", topic, mode, records))
        cluster.brokers[2].kill()
        wait_until(lambda: _in_sync(cluster, "replicated-3") == 2, "a follower is known to be down")
        found += [
            _row(console, cluster, "replication 3, the broker of b down", "replicated-3", mode, records)
            for mode in MODES
        ]
        cluster.workers["c"].kill()
        found += [
            _row(
                console, cluster, "and no executor in c", "replicated-3", mode, records,
                "spark.conf.spark.cores.max=2",
            )
            for mode in MODES
        ]  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    _show(found)
    console.print(f"written: {out}", highlight=False, soft_wrap=True)


def _row(
    console: Console, cluster: RackCluster, case: str, topic: str, mode: str, records: int, *settings: str
) -> dict[str, Any]:
    console.print(f"{case}, {mode} ...", highlight=False)
    summary = measured(cluster, topic, mode, records, *settings)
    return {"case": case, "mode": mode, "records": summary["counts"]["records"], **summary["racks"]}


def _in_sync(cluster: RackCluster, topic: str) -> int:
    partitions = cluster.admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
    return max(len(partition.isrs) for partition in partitions)


def _show(found: Sequence[dict[str, Any]]) -> None:
    table = Table("case", *MODES, title="share of bytes within the rack")
    for case in dict.fromkeys(row["case"] for row in found):
        shares = {row["mode"]: row["share"] for row in found if row["case"] == case}
        table.add_row(case, *(f"{shares[mode]:.3f}" for mode in MODES))
    Console().print(table)


if __name__ == "__main__":
    main()
