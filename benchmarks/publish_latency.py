"""`python -m benchmarks.publish_latency`: how long rows take to Kafka, and what transactions add."""

import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from pipelines.config.loader import load_config
from pipelines.publishing.progress_check import publisher
from pipelines.publishing.transactional_sink import TransactionalSink
from pipelines.runtime.local_broker import broker
from pipelines.runtime.processes import graceful_shutdown
from pipelines.spark.query_listener import QueryListener, listening
from pipelines.spark.session import spark_session

_PARTITIONS: Final = 4
_SLOTS: Final = 4
_WARM_UP: Final = 5
"""How many appends are not counted: Spark compiles its plans meanwhile."""
_WITHIN_S: Final = 60.0

Start = Callable[[DataFrame, str, str], Any]


class Reader:
    """Reads a topic from its beginning, and keeps when the last row of each append was seen."""

    def __init__(self, servers: str, topic: str, level: str) -> None:
        self.seen: dict[int, float] = {}
        self._rows: dict[int, int] = {}
        self._stopped = threading.Event()
        self._consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": level, "isolation.level": level}
            | {"enable.auto.commit": False, "fetch.wait.max.ms": 5}
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def wait(self, appends: int, rows: int) -> None:
        """Wait until all rows of all appends were seen, then stop."""
        until = time.monotonic() + _WITHIN_S
        while any(self._rows.get(number, 0) < rows for number in range(appends)):
            if time.monotonic() > until:
                raise TimeoutError(f"rows are missing: {self._rows}")
            time.sleep(0.05)
        self._stopped.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._stopped.is_set():
            for message in self._consumer.consume(10_000, 0.02):
                if message.error() is None:
                    number = int((message.value() or b"").split(b"/")[0])
                    self.seen[number] = time.time()
                    self._rows[number] = self._rows.get(number, 0) + 1


class Durations(QueryListener):
    """Keeps how long each micro-batch took that had rows; a query itself remembers only the last 100."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._ended = threading.Event()

    def progressed(self, progress: dict[str, Any]) -> None:
        """Add a micro-batch."""
        if progress["numInputRows"]:
            self._seconds.append(progress["durationMs"]["triggerExecution"] / 1000)

    def ended(self, run_id: str) -> None:
        """Take notice that all were told."""
        self._ended.set()

    def all(self) -> list[float]:
        """Return the seconds of each micro-batch of a query that was stopped.

        Raises:
            TimeoutError: Nothing was told of its end.
        """
        if not self._ended.wait(_WITHIN_S):
            raise TimeoutError("Spark does not tell of the end of the query")
        return self._seconds


def by_spark(rows: DataFrame, servers: str, topic: str, checkpoint: str) -> Any:
    """Start a query that publishes by Spark's own sink."""
    writer = (
        rows.writeStream.format("kafka").option("topic", topic).option("kafka.bootstrap.servers", servers)
    )
    return writer.option("checkpointLocation", checkpoint).trigger(processingTime="1 second").start()


def by_us(rows: DataFrame, servers: str, topic: str, checkpoint: str) -> Any:
    """Start a query that publishes by our sink."""
    sink = TransactionalSink(topic, topic, _SLOTS, {"bootstrap.servers": servers})
    publish = publisher(rows.sparkSession, sink, checkpoint)

    def write(batch: DataFrame, number: int) -> None:
        publish(batch, number)

    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    return writer.trigger(processingTime="1 second").start()


@dataclass(frozen=True)
class Commits:
    """What is appended to a table.

    Attributes:
        number: How many times, once each second.
        rows: Of each commit.
    """

    number: int
    rows: int


def measure(name: str, start: Any, appends: Commits, servers: str, folder: Path) -> dict[str, float]:
    """Append rows to a table, one commit each second, and see when readers of the topic have them.

    Args:
        name: of the sink.
        start: starts the query that publishes the table.
        appends: what is appended.
        servers: the broker.
        folder: where table and checkpoint are.

    Returns:
        Seconds, each as the median over the appends, and what nine of ten do not exceed: from the end of an
        append's commit to the last of its rows, for readers of all and of committed records; how
        much later the latter see the last row; and how long a micro-batch took.
    """
    spark = SparkSession.active()
    topic, source = f"latency-{name}", str(folder / name)
    client = AdminClient({"bootstrap.servers": servers})
    client.create_topics([NewTopic(topic, _PARTITIONS, 1)])[topic].result(30)

    spark.range(0).selectExpr("CAST(id AS STRING) AS key", "'' AS value").write.format("delta").save(source)
    readers = {level: Reader(servers, topic, level) for level in ("read_uncommitted", "read_committed")}
    durations = Durations()
    rows = spark.readStream.format("delta").load(source)
    with listening(spark, durations):
        query = start(rows, servers, topic, str(folder / f"{name}-checkpoint"))
        ended = _appended(source, appends)
        for reader in readers.values():
            reader.wait(appends.number, appends.rows)
        query.processAllAvailable()
        query.stop()
        took = durations.all()
    counted = range(_WARM_UP, appends.number)
    every, committed = readers["read_uncommitted"].seen, readers["read_committed"].seen
    return {
        **_two("to readers of all", [every[n] - ended[n] for n in counted]),
        **_two("to readers of committed", [committed[n] - ended[n] for n in counted]),
        **_two("transactions add", [committed[n] - every[n] for n in counted]),
        **_two("a micro-batch takes", took[_WARM_UP:]),
    }


def _appended(table: str, appends: Commits) -> list[float]:
    """Append rows, a commit each second; return when each has ended."""
    ended = []
    for number in range(appends.number):
        begun = time.monotonic()
        ended.append(_append(table, number, appends.rows))
        time.sleep(max(0.0, 1 - (time.monotonic() - begun)))
    return ended


def _append(table: str, number: int, rows: int) -> float:
    frame = (
        SparkSession.active()
        .range(rows)
        .selectExpr("CAST(id AS STRING) AS key", f"concat('{number}/', repeat('x', 240)) AS value")
    )
    frame.coalesce(1).write.format("delta").mode("append").save(table)
    return time.time()


def _two(name: str, values: list[float]) -> dict[str, float]:
    ninth = statistics.quantiles(values, n=10)[8]
    return {f"{name}, median s": round(statistics.median(values), 3), f"{name}, 90 % s": round(ninth, 3)}


@contextmanager
def _session() -> Iterator[SparkSession]:
    spark = spark_session(load_config("flights", environ={}, settings=["spark.master=local[2]"]), "latency")
    try:
        yield spark
    finally:
        spark.stop()


@click.command("publish_latency")
@click.option("--appends", default=40, show_default=True, type=click.IntRange(min=_WARM_UP + 10))
@click.option("--rows", default=1_000, show_default=True, type=click.IntRange(min=1), help="Of one append.")
@graceful_shutdown()
def main(appends: int, rows: int) -> None:
    """Measure both sinks one after the other, and print JSON."""
    with (
        tempfile.TemporaryDirectory(prefix="oncelake-latency-") as folder,
        broker() as running,
        _session(),
    ):
        told = {}
        for name, start in (("spark", by_spark), ("oncelake", by_us)):
            print(f"==> {name}: {appends} appends of {rows} rows", file=sys.stderr)
            told[name] = measure(name, start, Commits(appends, rows), running.bootstrap_servers, Path(folder))
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
