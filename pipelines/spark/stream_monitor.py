"""What is shown of a stream while it runs: a file beside its checkpoint, and metrics by HTTP."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from pipelines.spark.pipeline import Pipeline
from pipelines.spark.stream_progress import MicroBatch, ProgressFile, Query, micro_batch_of
from pipelines.spark.stream_server import SECONDS, StreamServer

_PORTS: Final[dict[Query, int]] = {"ingest": 0, "speed": 1, "publish": 2}


class StreamMonitor:
    """Takes Spark's reports of the micro-batches of a run; a stream never waits for who looks.

    Args:
        pipeline: The pipeline.
        query: The query.
        trigger: The time from one micro-batch to the next; None if it takes what is there and ends.

    Raises:
        ConfigError: nothing can listen on the port for metrics.
    """

    def __init__(self, pipeline: Pipeline, query: Query, trigger: timedelta | None) -> None:
        seconds = trigger.total_seconds() if trigger else 0.0
        metrics = pipeline.config.metrics
        self._totals: dict[str, float] = {}
        self._file = ProgressFile(pipeline.spark, pipeline.checkpoint(query), query, seconds)
        self._server: StreamServer | None = None
        if metrics.port is not None:
            labels = {"pipeline": pipeline.name, "env": pipeline.config.env, "stream": query}
            address = (metrics.host, metrics.port + _PORTS[query])
            self._server = StreamServer(address, labels, lambda: self._file.progress, lambda: self._totals)

    def add(self, progress: Mapping[str, Any]) -> None:
        """Note a micro-batch.

        Args:
            progress: Spark's report of it (`StreamingQueryProgress`), as parsed JSON.
        """
        batch = micro_batch_of(progress)
        # Never changed, since who asks for metrics reads it in another thread.
        self._totals = {name: self._totals.get(name, 0.0) + value for name, value in _totals(batch).items()}
        self._file.add(batch, str(progress["id"]))

    def idle(self) -> None:
        """Note that there was nothing to do."""
        self._file.idle()

    def end(self, failure: str | None) -> None:
        """Note that the run has ended, and why if it failed."""
        self._file.end(failure)
        if self._server:
            self._server.close()


def _totals(batch: MicroBatch) -> dict[str, float]:
    return {
        "records": batch.records,
        "micro_batches": int(bool(batch.records)),
        "duplicates": batch.duplicates,
        "late": batch.late,
        **{f"{SECONDS}{phase}": took for phase, took in batch.phases.items()},
    }
