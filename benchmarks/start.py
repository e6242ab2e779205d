"""`python -m benchmarks.start`: how long the streams take that a scheduler starts with `--once`, idle.

Bronze and the speed layer have everything that the topic has, so this is the start of Java and Spark, and the
comparison of checkpoint, tables and Kafka.
"""

import json
import subprocess
import sys
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from benchmarks.events import PARTITIONS
from benchmarks.topic import fill_topic
from benchmarks.work import PIPELINE
from demo.topic import create_topic
from pipelines.runtime.local_broker import broker
from pipelines.runtime.processes import graceful_shutdown

_HERE: Final = Path(__file__).parent
_JOBS: Final = ("ingest_stream", "speed_stream")
_SHORT: Final = "spark.conf.spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What docs/performance.md names for short runs."""


@dataclass(frozen=True)
class Starts:
    """A lake, and how its jobs are started.

    Attributes:
        settings: `key=value` pairs of the configuration.
    """

    settings: tuple[str, ...]

    def once(self, job: str, settings: tuple[str, ...]) -> float:
        """Run a job with `--once`, and return the seconds that it says it took."""
        command = [sys.executable, "-m", "pipelines.cli", job, "--once", "--pipeline", PIPELINE]
        places = ["--conf-dir", str(_HERE / "conf"), "--contracts-dir", str(_HERE / "contracts")]
        given = (f"--set={setting}" for setting in (*self.settings, *settings))
        done = subprocess.run(
            [*command, *places, "--log-format=json", *given],
            cwd=_HERE.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise click.ClickException(f"{job} ended with exit code {done.returncode}: {done.stderr}")
        return float(json.loads(done.stdout.splitlines()[-1])["duration_s"])

    def measured(self, job: str, settings: tuple[str, ...], repeat: int) -> str:
        """Return the median of the seconds that a job took."""
        found = [self.once(job, settings) for _ in range(repeat)]
        print(f"{job} {' '.join(settings)}: {found} s", file=sys.stderr, flush=True)
        return f"{median(found):.1f}"


@click.command("start")
@click.option("--events", default=4_000_000, show_default=True, help="That bronze has.")
@click.option("--repeat", default=3, show_default=True, help="Starts of each kind; the median is shown.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting. Repeatable.")
@graceful_shutdown()
def main(events: int, repeat: int, settings: tuple[str, ...]) -> None:
    """Fill a lake, and measure jobs that find nothing to do, with two sets of Java's options."""
    table = Table("job", "wall s", "with Java's options for short runs, wall s")
    with (
        tempfile.TemporaryDirectory(prefix="oncelake-start-") as folder,
        broker(Path(folder) / "broker") as running,
    ):
        topic = f"start-{uuid.uuid4().hex[:8]}"
        create_topic(running.bootstrap_servers, topic, PARTITIONS)
        print(f"sending and storing {events:,} events", file=sys.stderr, flush=True)
        fill_topic(running.bootstrap_servers, topic, events, 1)
        of_lake = (
            f"lake.root={Path(folder) / 'lake'}",
            "spark.master=local[2]",
            f"kafka.bootstrap_servers={running.bootstrap_servers}",
            f"kafka.topic={topic}",
        )
        starts = Starts((*of_lake, *settings))
        for job in _JOBS:
            starts.once(job, ())
        for job in _JOBS:
            table.add_row(job, *(starts.measured(job, given, repeat) for given in ((), (_SHORT,))))
    Console().print(table)


if __name__ == "__main__":
    main()
