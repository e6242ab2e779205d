"""`python -m benchmarks.racks`: which share of the bytes stays in the rack, on brokers and workers in three.

Each row is one run of `oncelake rack measure`, a process of its own with an executor in each rack, and the
shares are of the bytes that the executors' Kafka clients counted.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import psutil
from rich.console import Console
from rich.table import Table

from pipelines.errors import InfrastructureError
from pipelines.runtime.processes import graceful_shutdown
from testbed.rack_cluster import RACKS, Process, RackCluster, rack_cluster, wait_for_text
from testbed.short_lived_settings import BRIEF_JAVA
from testbed.waiting import wait_until

MODES: Final = ("stock", "client", "placement")
PARTITIONS: Final = 12
# A variable that no executor has: client.rack is empty as without any of this, but bytes are counted.
_STOCK: Final = ("kafka.rack.mode=client", "kafka.rack.variable=NO_RACK")
_WITHIN_S: Final = 300
_BATCHES: Final = 20
_PAIRS: Final = 3
_ROWS: Final = 12
_ROWS_IN_FULL: Final = 29
_SEED: Final = 12
_TWO_CORES: Final = "spark.conf.spark.cores.max=2"
# One executor is there from the beginning; the others are asked for while the query runs.
_DYNAMIC: Final = (
    "spark.conf.spark.dynamicAllocation.enabled=true",
    "spark.conf.spark.dynamicAllocation.shuffleTracking.enabled=true",
    "spark.conf.spark.dynamicAllocation.initialExecutors=1",
    "spark.conf.spark.dynamicAllocation.maxExecutors=3",
)
EXECUTORS: Final = (
    "spark.cores.max=3",
    "spark.executor.cores=1",
    "spark.executor.memory=600m",
    "spark.driver.host=127.0.0.1",
    "spark.scheduler.minRegisteredResourcesRatio=1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime=60s",
)


def replicas(factor: int, partitions: int = PARTITIONS) -> list[list[int]]:
    """Return brokers of each partition for a replication factor; each leads as many partitions as any other.

    In no order: where brokers take turns, Spark's own placement, by turns as well, has all or nothing in the
    rack by chance.
    """
    order = random.Random(_SEED)  # noqa: S311 - nothing secret
    leaders = [n % len(RACKS) + 1 for n in range(partitions)]
    order.shuffle(leaders)
    others = [[n for n in range(1, len(RACKS) + 1) if n != leader] for leader in leaders]
    return [[leader, *order.sample(rest, factor - 1)] for leader, rest in zip(leaders, others, strict=True)]


def measured(
    cluster: RackCluster,
    topic: str,
    mode: str,
    records: int,
    *settings: str,
    meanwhile: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Read a topic with an executor in each rack.

    Args:
        cluster: what runs.
        topic: what is read.
        mode: `kafka.rack.mode`, or `stock`: Spark's own source and no rack, with bytes counted all the same.
        records: how many to read at most.
        settings: further settings of the pipeline.
        meanwhile: what happens between two micro-batches of the query, of which there are then many.

    Returns:
        The summary of the run, with `racks`.

    Raises:
        InfrastructureError: the run failed; the message has the end of what it said.
    """
    given = [
        f"kafka.topic={topic}",
        *(_STOCK if mode == "stock" else [f"kafka.rack.mode={mode}"]),
        *([f"kafka.max_offsets_per_trigger={records // _BATCHES}"] if meanwhile else []),
        *settings,
    ]
    out = cluster.folder / "measure.out"
    process = _start(_command(cluster, records, given), out)
    try:
        if meanwhile:
            wait_for_text(process, f"micro-batch {_BATCHES // 4}:")
            meanwhile()
        code = process.process.wait(_WITHIN_S)
    finally:
        process.kill()
    if code != 0:
        raise InfrastructureError(
            f"oncelake rack measure failed: {out.read_text()} {process.log.read_text()[-3000:]}"
        )
    found: dict[str, Any] = json.loads(out.read_text().splitlines()[-1])
    return found


def _command(cluster: RackCluster, records: int, settings: Sequence[str]) -> list[str]:
    """Return the run of `oncelake rack measure` on a cluster, with further settings."""
    given = [
        f"lake.root={cluster.folder}/lake",
        f"kafka.bootstrap_servers={cluster.bootstrap_servers}",
        f"spark.master={cluster.master}",
        *(f"spark.conf.{setting}" for setting in EXECUTORS),
        *settings,
    ]
    command = [sys.executable, "-m", "pipelines.cli", "rack", "measure", "--pipeline", "flights"]
    command += ["--log-format", "json", "--records", str(records)]
    return [*command, *(f"--set={setting}" for setting in given)]


def _start(command: Sequence[str], out: Path) -> Process:
    """Start a command that writes to a file, and to a log beside it."""
    log = out.with_suffix(".log")
    with out.open("w") as to_out, log.open("w") as to_log:
        run = psutil.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=to_out,
            stderr=to_log,
            env={**os.environ, "JDK_JAVA_OPTIONS": BRIEF_JAVA},
        )
    return Process(run, log)


@dataclass(frozen=True)
class Bench:
    """Measures one case after another.

    Attributes:
        console: where progress is told.
        cluster: what runs.
        records: of each topic.
        size: of a record, in bytes.
        out: the file that has the results so far, as JSON.
        total: how many rows there will be.
        found: the results so far.
    """

    console: Console
    cluster: RackCluster
    records: int
    size: int
    out: Path
    total: int
    found: list[dict[str, Any]] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)

    def fill(self, topic: str, factor: int) -> str:
        """Make and fill a topic."""
        self.cluster.create(topic, replicas(factor))
        self.cluster.fill(topic, PARTITIONS, self.records, self.size)
        return topic

    def row(
        self, case: str, topic: str, mode: str, *settings: str, meanwhile: Callable[[], None] | None = None
    ) -> None:
        """Measure one case in one mode, and write what was found."""
        summary = measured(self.cluster, topic, mode, self.records, *settings, meanwhile=meanwhile)
        records, racks = summary["counts"]["records"], summary["racks"]
        if records != self.records:
            raise InfrastructureError(f"{case}, {mode}: read {records} of {self.records} records")
        self.found.append({**racks, "case": case, "mode": mode, "seconds": summary["query_s"]})
        self.out.write_text(json.dumps(self.found, indent=2) + "\n", encoding="utf-8")
        done = len(self.found)
        left = (time.monotonic() - self._began) / done * (self.total - done)
        self.console.print(
            f"{done} of {self.total}: {case}, {mode}: {racks['share']:.3f}; about {left / 60:.0f} min left",
            highlight=False,
        )

    def rows(self, case: str, topic: str, *settings: str) -> None:
        """Measure one case in each mode."""
        for mode in MODES:
            self.row(case, topic, mode, *settings)


def replication(bench: Bench) -> None:
    """Measure the replication factors, and a broker that is down."""
    cluster = bench.cluster
    for factor in (3, 2, 1):
        bench.rows(f"replication {factor}", bench.fill(f"replicated-{factor}", factor))
    cluster.brokers[2].kill()
    wait_until(lambda: cluster.in_sync("replicated-3") == 2, "a follower is known to be down")
    bench.rows("replication 3, the broker of b is down", "replicated-3")
    cluster.brokers[2].again()
    wait_until(partial(_is_in_sync, cluster, "replicated-3"), "all followers are in sync again")


def time_in_turns(bench: Bench) -> None:
    """Measure again, in turns, for the time that it takes."""
    for _ in range(_PAIRS - 1):
        bench.rows("replication 3", "replicated-3")


def changes_during_the_query(bench: Bench) -> None:
    """Measure while leaders move, an executor dies, executors come one by one."""
    cluster = bench.cluster
    for mode in ("client", "placement"):
        bench.fill(f"moving-{mode}", 3)
    for mode in ("client", "placement"):
        topic = f"moving-{mode}"
        wait_until(partial(_is_in_sync, cluster, topic), "all followers are in sync again")
        bench.row(
            "replication 3, a third of the leaders move during the query", topic, mode,
            meanwhile=partial(cluster.move_leaders, topic),
        )  # fmt: skip
    for factor in (3, 1):
        bench.row(
            f"replication {factor}, the executor in c is killed during the query and replaced",
            f"replicated-{factor}", "placement", meanwhile=lambda: cluster.kill_executor("c"),
        )  # fmt: skip
    bench.row(
        "replication 3, executors by dynamic allocation", "replicated-3", "placement", *_DYNAMIC,
        meanwhile=lambda: None,
    )  # fmt: skip
    cluster.workers["c"].kill()
    for factor in (3, 1):
        bench.rows(f"replication {factor}, no executor in c", f"replicated-{factor}", _TWO_CORES)


def _is_in_sync(cluster: RackCluster, topic: str) -> bool:
    return cluster.in_sync(topic) == len(RACKS)


@click.command("rack-bench")
@click.option("--records", default=200_000, show_default=True, type=click.IntRange(min=1_000))
@click.option(
    "--size", default=1_000, show_default=True, type=click.IntRange(min=10), help="Bytes of a record."
)
@click.option(
    "--full",
    is_flag=True,
    help="Also while leaders move and executors die, and the time of the query by three runs in turns.",
)
@click.option(
    "--out",
    default=Path(__file__).parent / "out" / "racks.json",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the results go, as JSON.",
)
@graceful_shutdown()
def main(records: int, size: int, full: bool, out: Path) -> None:
    """Measure the share of bytes within the rack, by replication factor and mode, and when things break.

    What was measured is written at once, so a run that is ended keeps it.
    """
    console = Console(stderr=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    console.print("starting three brokers and three workers", highlight=False)
    with (
        tempfile.TemporaryDirectory(prefix="oncelake-racks-") as folder,
        rack_cluster(Path(folder)) as cluster,
    ):
        bench = Bench(console, cluster, records, size, out, _ROWS_IN_FULL if full else _ROWS)
        try:
            replication(bench)
            if full:
                time_in_turns(bench)
                changes_during_the_query(bench)
        finally:
            if bench.found:
                _show(bench.found)
                console.print(f"written: {out}", highlight=False, soft_wrap=True)


def _show(found: Sequence[dict[str, Any]]) -> None:
    table = Table("case", *MODES, title="share of bytes within the rack")
    for case in dict.fromkeys(row["case"] for row in found):
        cells = [
            statistics.median(shares) if shares else None
            for shares in (
                [row["share"] for row in found if (row["case"], row["mode"]) == (case, mode)]
                for mode in MODES
            )
        ]
        table.add_row(case, *("" if share is None else f"{share:.3f}" for share in cells))
    output = Console()
    output.print(table)
    seconds = {
        mode: [row["seconds"] for row in found if (row["case"], row["mode"]) == ("replication 3", mode)]
        for mode in MODES
    }
    if any(len(runs) < _PAIRS for runs in seconds.values()):
        return
    stock, *others = (statistics.median(runs) for runs in seconds.values())
    told = ", ".join(f"{mode} {median / stock:.2f}" for mode, median in zip(MODES[1:], others, strict=True))
    output.print(f"seconds of the query at replication 3, stock = 1 ({stock:.1f} s): {told}", highlight=False)


if __name__ == "__main__":
    main()
