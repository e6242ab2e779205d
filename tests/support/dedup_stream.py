"""A stream that deduplicates within a watermark, and nothing else: a table, a checkpoint and its result."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pipelines.delta.io import append
from pipelines.durations import format_interval
from pipelines.spark.checkpoints import change_kept_setting
from pipelines.spark.state_store import NOT_SCANNED, PROVIDER, SPARKS_OWN

DELAY: Final = timedelta(hours=1)
START: Final = datetime(2013, 1, 1, tzinfo=UTC)
SLACK: Final = "spark.sql.streaming.stateStore.oncelake.evictionSlackMs"
SNAPSHOTS: Final = {
    # A snapshot after every few micro-batches, so that a restart takes one and the changes since.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "300ms",
    # While stores are stopped, a task of that thread may wait for the lock that is held until it ends.
    "spark.sql.streaming.stateStore.maintenanceShutdownTimeout": "1",
    "spark.sql.streaming.stateStore.maintenanceForceShutdownTimeout": "1",
}
_SCHEMA: Final = "key INT, at TIMESTAMP, number INT"

Event = tuple[int, float, int]
"""A key, the minutes after `START`, and a number of its own."""


def no_accident(batch: int) -> None:
    """A function of a micro-batch to which nothing happens."""


@dataclass
class DedupStream:
    """A stream over a table; several may read one table.

    Attributes:
        spark: the session.
        source: the table's folder.
        folder: where the checkpoint and the result are.
        progress: what each micro-batch said of its state, in their order.
    """

    spark: SparkSession
    source: Path
    folder: Path
    progress: list[dict[str, Any]] = field(default_factory=list)

    @property
    def checkpoint(self) -> str:
        """Its folder."""
        return f"{self.folder}/checkpoint"

    def run(
        self, provider: str, share: float = 0.25, *, accident: Callable[[int], None] = no_accident
    ) -> StreamingQuery:
        """Take what the table holds, one commit in each micro-batch.

        Args:
            provider: of the state.
            share: of the delay, from one scan to the next.
            accident: what happens to a micro-batch after its state is written and before it is done.
        """
        settings = {PROVIDER: provider, SLACK: str(int(DELAY / timedelta(milliseconds=1) * share))}
        for name, value in {**settings, **SNAPSHOTS}.items():
            self.spark.conf.set(name, value)
        both = dict.fromkeys((SPARKS_OWN, NOT_SCANNED), provider)
        change_kept_setting(self.spark, self.checkpoint, PROVIDER, both)
        first = (
            self.spark.readStream.format("delta")
            .option("maxFilesPerTrigger", 1)
            .load(str(self.source))
            .withWatermark("at", format_interval(DELAY))
            .dropDuplicatesWithinWatermark(["key"])
        )

        def write(rows: DataFrame, batch: int) -> None:
            found = [row["number"] for row in rows.collect()]
            accident(batch)
            # Under its number, so that a micro-batch that is done again has one result.
            (self.folder / f"{batch:03}.json").write_text(json.dumps(sorted(found)), encoding="utf-8")

        self.folder.mkdir(parents=True, exist_ok=True)
        query = (
            first.writeStream.foreachBatch(write)
            .option("checkpointLocation", self.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            self.progress += [json.loads(each.json) for each in query.recentProgress]
        return query

    @property
    def rows(self) -> Mapping[str, list[int]]:
        """The numbers of the events that each micro-batch has kept."""
        return {path.stem: json.loads(path.read_text()) for path in sorted(self.folder.glob("*.json"))}

    def operators(self) -> list[dict[str, Any]]:
        """What each micro-batch said of the deduplication."""
        return [each["stateOperators"][0] for each in self.progress if each["stateOperators"]]

    def scans(self) -> list[int]:
        """How many partitions each micro-batch has scanned."""
        return [each["customMetrics"]["oncelakeStateScans"] for each in self.operators()]

    def stored(self) -> int:
        """How many keys the checkpoint holds."""
        return self.spark.read.format("statestore").load(self.checkpoint).count()


def add(spark: SparkSession, source: Path, events: Sequence[Event]) -> None:
    """Append events to a table in one commit of one file."""
    rows = [(key, START + timedelta(minutes=minutes), number) for key, minutes, number in events]
    append(spark.createDataFrame(rows, _SCHEMA).coalesce(1), str(source))
