"""Where the time of streaming queries goes, from what Spark reports of each micro-batch."""

import threading
from collections import Counter
from typing import Any

from pyspark.sql import SparkSession

from pipelines.spark.query_listener import QueryListener, listen

_STATE_TIMES = ("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs")


class Progress(QueryListener):
    """Adds up the progress of all queries, by their names."""

    def __init__(self) -> None:
        self._records: Counter[str] = Counter()
        self._batches: Counter[str] = Counter()
        self._times: dict[str, Counter[str]] = {}
        self._changed = threading.Condition()

    def wait_for(self, records: int, *queries: str) -> None:
        """Wait until each of the queries has taken so many records."""
        with self._changed:
            self._changed.wait_for(lambda: all(self._records[name] >= records for name in queries))

    def summary(self) -> dict[str, dict[str, Any]]:
        """For each query: `batches`, `records`, and the milliseconds of each phase, summed up."""
        with self._changed:
            return {
                name: {"batches": self._batches[name], "records": self._records[name], "ms": dict(times)}
                for name, times in self._times.items()
            }

    def progressed(self, progress: dict[str, Any]) -> None:
        """Add one micro-batch."""
        name = str(progress["name"])
        with self._changed:
            self._records[name] += progress["numInputRows"]
            self._batches[name] += bool(progress["numInputRows"])
            times = self._times.setdefault(name, Counter())
            times.update(progress["durationMs"])
            for operator in progress["stateOperators"]:
                # Summed over the tasks, which run side by side.
                times.update({f"state.{key}": operator.get(key, 0) for key in _STATE_TIMES})
            self._changed.notify_all()


def watch(spark: SparkSession) -> Progress:
    """Listen to all queries of a session from now on."""
    progress = Progress()
    listen(spark, progress)
    return progress
