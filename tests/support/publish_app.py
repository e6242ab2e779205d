"""`python -m tests.support.publish_app FILE MASTER`: publishes streams in turn, while faults strike.

The others do not wait for one of which a task is stopped, which survives as a zombie. A stream that was
interrupted goes on from its checkpoint when this is started again.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config.loader import load_config
from pipelines.publishing.progress_check import publisher
from pipelines.publishing.transactional_sink import TransactionalSink
from pipelines.spark.session import spark_session
from testbed.waiting import wait_until
from tests.support.publish_faults import Fault, Moment, striking

TIMES: Final = 9
"""How often a row's value repeats its key."""

_TRIES: Final = 4
# A client that has lost its broker would wait up to ten seconds before it looks for it again.
_CLIENT: Final[Mapping[str, str | int]] = {"linger.ms": 0, "reconnect.backoff.max.ms": 500}
_PORTION: Final = 5


@dataclass(frozen=True)
class Stream:
    """One stream that is published.

    Attributes:
        name: of its sink.
        topic: where it goes.
        servers: of the cluster.
        slots: how many.
        source: a folder of Parquet files, each of which is a micro-batch, with a column `id`.
        checkpoint: its path.
        faults: what happens meanwhile.
        is_blind: whether progress is not looked at.
    """

    name: str
    topic: str
    servers: str
    slots: int
    source: str
    checkpoint: str
    faults: tuple[Fault, ...] = ()
    is_blind: bool = False

    @property
    def done(self) -> Path:
        """The file that says that it is done."""
        return Path(f"{self.checkpoint}.done")


def save(streams: list[Stream], path: Path) -> None:
    """Writes what the app is to do."""
    path.write_text(json.dumps([asdict(stream) for stream in streams]))


def load(path: Path) -> list[Stream]:
    """Reads what `save` has written."""
    given: list[dict[str, Any]] = json.loads(path.read_text())
    ours = {"driver": os.getpid()}
    return [
        Stream(**{**each, "faults": tuple(Fault(**{**fault, **ours}) for fault in each["faults"])})
        for each in given
    ]


def run(spark: SparkSession, stream: Stream) -> None:
    """Publishes a stream to its end; a query that fails is started again."""

    def strike(point: Moment, batch: int) -> None:
        for fault in stream.faults:
            if (fault.point, fault.batch) == (point, batch):
                fault.strike()

    sink = TransactionalSink(
        *(stream.name, stream.topic, stream.slots, {"bootstrap.servers": stream.servers, **_CLIENT}),
        # A broker that was killed takes its time to come back, where everything runs on two cores.
        timeout=timedelta(seconds=90),
    )
    with striking(*stream.faults, is_blind=stream.is_blind):
        for left in reversed(range(_TRIES)):
            publish = publisher(spark, sink, stream.checkpoint)

            def write(rows: DataFrame, batch: int, publish: Any = publish) -> None:
                strike("after the batch", batch - 1)
                publish(rows, batch)
                strike("after the task", batch)

            source = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
            rows = source.parquet(stream.source).select(
                F.col("id").cast("string").alias("key"),
                F.repeat(F.col("id").cast("string"), 9).alias("value"),
            )
            writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", stream.checkpoint)
            query = writer.trigger(availableNow=True).start()
            try:
                query.awaitTermination()
                break
            except StreamingQueryException:
                if not left:
                    raise
    stream.done.touch()


def begin(spark: SparkSession, stream: Stream) -> None:
    """Publishes a stream to its end, or until a task of it is stopped for good."""
    zombie = next((fault for fault in stream.faults if fault.victim == "zombie"), None)
    if zombie is None or Path(zombie.marker).exists():
        run(spark, stream)
        return
    Thread(target=run, args=(spark, stream), daemon=True).start()
    stopped = Path(f"{zombie.marker}.pid")
    wait_until(lambda: stopped.exists() and bool(stopped.read_text()), "a task is stopped")


def main() -> None:
    """Does what is left to do."""
    path, master = Path(sys.argv[1]), sys.argv[2]
    settings = [f"spark.master={master}", f"lake.root={path.parent}/lake", "speed.state_partitions=2"]
    # A task gets the rows of its slot in several portions, so that a fault strikes between two of them.
    settings.append(f"spark.conf.spark.sql.execution.arrow.maxRecordsPerBatch={_PORTION}")
    settings += [f"spark.conf.{setting}" for setting in sys.argv[3:]]
    spark = spark_session(load_config("flights", environ={}, settings=settings), "publish")
    for stream in load(path):
        if not stream.done.exists():
            begin(spark, stream)
    spark.stop()


if __name__ == "__main__":
    main()
