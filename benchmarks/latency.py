"""`python -m benchmarks.latency`: how long after its Kafka timestamp an event is a row of the speed layer.

Both streams run as processes of their own, as their users run them. First they take a flood, which shows how
many events a second they sustain; then events come at half that rate, and each one's delay is measured.
"""

import json
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.events import PARTITIONS, Chunk, chunks
from benchmarks.results import machine
from benchmarks.work import PIPELINE
from demo.processes import Job
from demo.topic import create_topic
from pipelines.errors import InfrastructureError
from pipelines.runtime.local_broker import broker
from pipelines.runtime.processes import graceful_shutdown
from testbed.waiting import wait_until

_HERE: Final = Path(__file__).parent
_TICKS_PER_S: Final = 20
_WAITING: Final = 500_000
_FIGURES: Final = (50, 95, 99)
_WITHIN_S: Final = 600.0
_WARM_UP: Final = 100_000

Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class Streams:
    """A topic and the two streams that read it.

    Attributes:
        servers: the broker.
        topic: the topic.
        root: of the lake.
    """

    servers: str
    topic: str
    root: Path
    _jobs: list[Job] = field(default_factory=list)

    @property
    def speed(self) -> Path:
        """The table of the speed layer."""
        return self.root / "speed" / PIPELINE

    def wait_for(self, rows: int) -> None:
        """Wait until the speed layer has so many rows."""
        self.wait_until(
            lambda: sum(commit.rows for commit in commits(self.speed)) >= rows,
            f"the speed layer has {rows:,} rows",
        )

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition while the streams run.

        Raises:
            InfrastructureError: One of them has ended, or it did not come true in time.
        """
        logs = f"see the logs in {self.root.parent}"
        wait_until(condition, f"{what}; {logs}", _WITHIN_S, lambda: self._require_at_work(logs))

    def _require_at_work(self, logs: str) -> None:
        for job in self._jobs:
            if (code := job.exit_code()) is not None:
                raise InfrastructureError(f"{job.name} has ended with exit code {code}; {logs}")

    def job(self, name: str, settings: Sequence[str], *options: str) -> Job:
        """Return a command on this topic and lake, as a process of its own."""
        given = (
            f"kafka.bootstrap_servers={self.servers}",
            f"kafka.topic={self.topic}",
            f"lake.root={self.root}",
            "spark.master=local[2]",
            *settings,
        )
        arguments = ["--pipeline", PIPELINE, "--conf-dir", str(_HERE / "conf")]
        arguments += ["--contracts-dir", str(_HERE / "contracts"), *(f"--set={one}" for one in given)]
        command = [sys.executable, "-m", "pipelines.cli", name, *arguments, *options]
        return Job(name, command, _HERE.parent, self.root.parent)

    @contextmanager
    def running(self, settings: Sequence[str]) -> Iterator[None]:
        """Run both streams while the block runs, and expect that they end well."""
        self._jobs[:] = [self.job(name, settings) for name in ("ingest_stream", "speed_stream")]
        try:
            for job in self._jobs:
                job.start()
            yield
            for job in self._jobs:
                job.stop()
        finally:
            for job in self._jobs:
                job.end()


@dataclass(frozen=True)
class Commit:
    """A commit that added rows to a Delta table.

    Attributes:
        at_ms: when it was made, in milliseconds since 1970.
        rows: how many rows it added.
        files: the files that have them.
    """

    at_ms: int
    rows: int
    files: tuple[Path, ...]


def commits(table: Path) -> list[Commit]:
    """Return the commits that added rows to a table, by its log."""
    found = []
    for path in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        files = [action["add"] for action in actions if "add" in action]
        at = next((action["commitInfo"]["timestamp"] for action in actions if "commitInfo" in action), 0)
        if files:
            rows = sum(json.loads(file["stats"])["numRecords"] for file in files)
            found.append(Commit(at, rows, tuple(table / unquote(file["path"]) for file in files)))
    return found


def delays(table: Path, after_ms: int) -> Seconds:
    """Return the seconds from Kafka's timestamp to the commit, for each row that came after a moment."""
    found = [np.empty(0)]
    for commit in commits(table):
        for file in commit.files:
            sent = pq.read_table(file, columns=["_kafka_timestamp"]).column(0).cast(pa.timestamp("ms", "UTC"))
            sent_ms = sent.cast(pa.int64()).to_numpy()
            found.append((commit.at_ms - sent_ms[sent_ms >= after_ms]) / 1000)
    return np.concatenate(found)


class Feed:
    """Hands out generated records, in pieces of any size.

    Attributes:
        rows: how many rows the speed layer will have of what was handed out.
    """

    def __init__(self, records: int, seed: int) -> None:
        self._chunks = chunks(records, seed)
        self._chunk = next(self._chunks)
        self._place = 0
        self.rows = 0

    def take(self, most: int) -> tuple[Chunk, range]:
        """Return the next records, at most so many: a chunk, and the places of these in it."""
        if self._place == len(self._chunk.values):
            self._chunk, self._place = next(self._chunks), 0
        places = range(self._place, min(self._place + most, len(self._chunk.values)))
        self._place = places.stop
        self.rows += sum(self._chunk.is_fresh[places.start : places.stop])
        return self._chunk, places


class Sender:
    """Sends generated events to a topic, now."""

    def __init__(self, streams: Streams, records: int, seed: int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": streams.servers,
                "linger.ms": 5,
                "queue.buffering.max.messages": 2 * _WAITING,
                "log_level": 0,  # the broker ends before it does
            }
        )
        self._topic = streams.topic
        self._feed = Feed(records, seed)

    @property
    def rows(self) -> int:
        """How many rows the speed layer will have of what was sent."""
        return self._feed.rows

    def flood(self, records: int) -> None:
        """Send so many records at once."""
        sent = 0
        while sent < records:
            # What waits to be sent has its limit, which is an error for whoever sends still more.
            while len(self._producer) > _WAITING:
                self._producer.poll(0.1)
            sent += self._send(records - sent)
        self._producer.flush(_WITHIN_S)

    def pace(self, records: int, per_second: float) -> None:
        """Send so many records at a rate."""
        began, sent = time.monotonic(), 0
        while sent < records:
            time.sleep(max(0.0, began + sent / per_second - time.monotonic()))
            sent += self._send(min(max(int(per_second / _TICKS_PER_S), 1), records - sent))
            self._producer.poll(0)
        self._producer.flush(_WITHIN_S)

    def _send(self, most: int) -> int:
        """Send the next records, at most so many; return how many they were."""
        chunk, places = self._feed.take(most)
        for place in places:
            self._producer.produce(
                self._topic, chunk.values[place], chunk.keys[place], partition=chunk.partitions[place]
            )
        return len(places)


@click.command("latency")
@click.option(
    "--flood",
    default=1_000_000,
    show_default=True,
    type=click.IntRange(min=_WARM_UP),
    help="Events that show what is sustained.",
)
@click.option("--rate", type=click.IntRange(min=1), help="Events a second. [default: half of that]")
@click.option("--seconds", default=60, show_default=True, help="How long events come at that rate.")
@click.option("--seed", default=1, show_default=True, help="The same seed gives the same events.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Of both streams. Repeatable.")
@graceful_shutdown()
def main(flood: int, rate: int | None, seconds: int, seed: int, settings: tuple[str, ...]) -> None:
    """Measure the delay of events from Kafka's timestamp to the commit that makes them rows; print JSON."""
    console = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="oncelake-latency-") as folder,
        broker(Path(folder) / "broker") as running,
    ):
        topic = f"latency-{uuid.uuid4().hex[:8]}"
        create_topic(running.bootstrap_servers, topic, PARTITIONS)
        streams = Streams(running.bootstrap_servers, topic, Path(folder) / "lake")
        with streams.running(settings):
            # As many as may be needed: no machine sustains a million a second here.
            sender = Sender(streams, _WARM_UP + flood + seconds * (rate or 1_000_000), seed)
            console.print(f"sending {_WARM_UP:,} events, while Spark starts and compiles", highlight=False)
            sender.flood(_WARM_UP)
            streams.wait_for(sender.rows)
            console.print(f"sending {flood:,} events at once", highlight=False)
            began = time.monotonic()
            sender.flood(flood)
            streams.wait_for(sender.rows)
            most = flood / (time.monotonic() - began)
            paced = rate or most / 2
            console.print(f"sustained: {most:,.0f} events/s; {paced:,.0f} a second for {seconds} s follow")
            since_ms = time.time_ns() // 1_000_000
            sender.pace(round(paced * seconds), paced)
            streams.wait_for(sender.rows)
        found = delays(streams.speed, since_ms)
    p50, p95, p99 = np.percentile(found, _FIGURES)
    told = {
        "machine": machine(),
        "settings": list(settings),
        "sustained_per_s": round(most),
        "rate_per_s": round(paced),
        "rows": len(found),
        "p50_s": round(float(p50), 2),
        "p95_s": round(float(p95), 2),
        "p99_s": round(float(p99), 2),
        "longest_s": round(float(found.max()), 2),
    }
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
