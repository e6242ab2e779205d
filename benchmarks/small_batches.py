"""`python -m benchmarks.small_batches`: what a micro-batch of few records costs each stream, when it is warm.

Its events are few, so this is the fixed part of the cost: planning, jobs, checkpoints and commits.
"""

import shutil
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from benchmarks.meter import Meter
from benchmarks.topic import fill_topic
from benchmarks.work import loaded
from demo.topic import create_topic, delete_topic
from pipelines.runtime.local_broker import broker
from pipelines.runtime.processes import graceful_shutdown
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.query_listener import QueryListener, listening
from pipelines.spark.session import spark_session
from pipelines.steps.ingest import ingest
from pipelines.steps.speed import speed

_OUT: Final = Path(__file__).parent / "out"
_PARTITIONS: Final = 8
_COSTS: Final = ("wall s", "CPU s", "without compilers", "Spark: s (median)")


@dataclass
class _Ends(QueryListener):
    """When micro-batches with records have ended, in seconds since the epoch; what they took, and read."""

    at: list[float] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    records: list[int] = field(default_factory=list)

    def progressed(self, progress: dict[str, Any]) -> None:
        """Note a micro-batch."""
        if progress["numInputRows"]:
            self.at.append(time.time())
            self.took_s.append(progress["batchDuration"] / 1000)
            self.records.append(progress["numInputRows"])


@click.command("small_batches")
@click.option("--records", default=40, show_default=True, help="Of each micro-batch of ingest.")
@click.option(
    "--warm", default=100, show_default=True, help="Micro-batches before the first that is measured."
)
@click.option("--measured", default=60, show_default=True, help="Micro-batches that are measured.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting. Repeatable.")
@graceful_shutdown()
def main(records: int, warm: int, measured: int, settings: tuple[str, ...]) -> None:
    """Run ingest and speed in many small micro-batches, and show what one of the last ones costs."""
    _OUT.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="small-", dir=_OUT))
    table = Table("stream", "micro-batches", "records of each", *_COSTS)
    with broker(folder / "broker") as running:
        topic = f"oncelake-small-{uuid.uuid4().hex[:8]}"
        create_topic(running.bootstrap_servers, topic, _PARTITIONS)
        fill_topic(running.bootstrap_servers, topic, records, 1)
        given = (
            f"lake.root={folder / 'lake'}",
            "spark.master=local[2]",
            f"kafka.bootstrap_servers={running.bootstrap_servers}",
            f"kafka.topic={topic}",
            f"kafka.max_offsets_per_trigger={records}",
            # About what one micro-batch of ingest writes: a file of 5 kB for each partition.
            "speed.max_bytes_per_trigger=40k",
            *settings,
        )
        config, contract = loaded(given)
        spark = spark_session(config, "small_batches")
        pipeline = Pipeline(spark, config, contract)
        # A new query begins with the files of bronze; from its second run on, speed reads the log, as it
        # does in production.
        ingest(pipeline, once=True)
        speed(pipeline, once=True)
        fill_topic(running.bootstrap_servers, topic, records * (warm + measured), 2)
        for name, step in (("ingest", ingest), ("speed", speed)):
            ends = _Ends()
            with listening(spark, ends), Meter() as meter:
                step(pipeline, once=True)
            cells = _cells(ends, meter, measured)
            print(f"{name}: {', '.join(cells)}", file=sys.stderr, flush=True)
            table.add_row(name, *cells)
        spark.stop()
        delete_topic(running.bootstrap_servers, topic)
    shutil.rmtree(folder)
    Console().print(table)


def _cells(ends: _Ends, meter: Meter, measured: int) -> list[str]:
    """Return what one of the last micro-batches cost."""
    if len(ends.at) <= measured:
        raise SystemExit(f"found {len(ends.at)} micro-batches, expected more than {measured}")
    first, last = (meter.cost(until=at) for at in (ends.at[-1 - measured], ends.at[-1]))
    records = sum(ends.records[-measured:]) / measured
    wall_s, cpu_s = last.wall_s - first.wall_s, last.cpu_s - first.cpu_s
    warm_s = cpu_s - (last.compile_s - first.compile_s)
    costs = (wall_s / measured, cpu_s / measured, warm_s / measured, median(ends.took_s[-measured:]))
    return [f"{len(ends.at):,}", f"{records:.0f}", *(f"{cost:.2f}" for cost in costs)]


if __name__ == "__main__":
    main()
