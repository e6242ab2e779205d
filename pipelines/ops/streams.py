"""Runs streaming queries to their end, stops them when asked, and adds up what they did."""

import json
import logging
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from pipelines.ops.failures import explain_stream_failure

_LAST_EVENTS_WITHIN_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.2

_log = logging.getLogger(__name__)


@dataclass
class Totals:
    """What one query did since it was started here.

    Attributes:
        batches: micro-batches with data.
        records: records read from the source.
        counts: sums of the observed metrics and of the state operators' metrics, by name.
        start: the source's offsets before the first micro-batch, as the source writes them.
        end: the source's offsets after the last micro-batch.
        watermark: the last watermark, as ISO text; None if the query has none.
    """

    batches: int = 0
    records: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    start: Any = None
    end: Any = None
    watermark: str | None = None


class StopSignal:
    """Set by SIGTERM or Ctrl-C, also when spark-submit's JVM is the process that gets the signal."""

    def __init__(self, spark: SparkSession) -> None:
        self._event = threading.Event()
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        self._handle_in_jvm(spark)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._event.set()

    def _handle_in_jvm(self, spark: SparkSession) -> None:
        # A process group gets the signal as a whole (Ctrl-C, systemd), and under spark-submit the JVM is
        # the parent: without a handler it would end at once and take the micro-batch and our exit code along.
        gateway = spark.sparkContext._gateway
        if gateway is None:
            return
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        for name in ("TERM", "INT"):
            gateway.jvm.sun.misc.Signal.handle(gateway.jvm.sun.misc.Signal(name), _JvmHandler(self._event))

    def wait(self, seconds: float) -> bool:
        """Waits for the signal; says whether it came."""
        return self._event.wait(seconds)


class _JvmHandler:
    def __init__(self, event: threading.Event) -> None:
        self._event = event

    def handle(self, jvm_signal: object) -> None:
        self._event.set()

    class Java:
        implements: Final = ["sun.misc.SignalHandler"]


class _Recorder(StreamingQueryListener):
    def __init__(self) -> None:
        self.totals: dict[str, Totals] = {}
        self.ended: dict[str, threading.Event] = {}

    def expect(self, query: StreamingQuery) -> None:
        self.totals.setdefault(str(query.runId), Totals())
        self.ended.setdefault(str(query.runId), threading.Event())

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        self.totals.setdefault(str(event.runId), Totals())
        self.ended.setdefault(str(event.runId), threading.Event())

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        progress = json.loads(event.progress.json)
        add_progress(self.totals.setdefault(str(event.progress.runId), Totals()), progress)
        if progress["numInputRows"]:
            _log.info(
                "%s: micro-batch %s: %s records in %.1f s",
                progress["name"],
                progress["batchId"],
                f"{progress['numInputRows']:,}",
                progress.get("batchDuration", 0) / 1000,
            )

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        self.ended.setdefault(str(event.runId), threading.Event()).set()


def add_progress(totals: Totals, progress: dict[str, Any]) -> None:
    """Adds one micro-batch's progress report, in Spark's JSON form, to the totals of its query."""
    totals.batches += bool(progress["numInputRows"])
    totals.records += progress["numInputRows"]
    for source in progress["sources"]:
        if totals.start is None:
            totals.start = source.get("startOffset")
        totals.end = source.get("endOffset") or totals.end
    for observed in (progress.get("observedMetrics") or {}).values():
        totals.counts.update({k: v for k, v in observed.items() if isinstance(v, int)})
    for operator in progress.get("stateOperators") or []:
        totals.counts["late"] += operator.get("numRowsDroppedByWatermark", 0)
        custom = operator.get("customMetrics") or {}
        totals.counts["duplicates"] += custom.get("numDroppedDuplicateRows", 0)
    totals.watermark = (progress.get("eventTime") or {}).get("watermark", totals.watermark)


def run_streams(spark: SparkSession, start: Callable[[], Sequence[StreamingQuery]]) -> dict[str, Totals]:
    """Starts queries and waits until all have ended, one has failed or the job is told to stop.

    A micro-batch that is under way at a stop is abandoned: nothing of it is visible, and the next run
    does it again.

    Args:
        spark: the session.
        start: starts the queries and returns them.

    Returns:
        The totals of each query, by its name.

    Raises:
        SourceError: the source cannot be trusted.
        InfrastructureError: a query failed for another known reason.
    """
    recorder = _Recorder()
    stop = StopSignal(spark)
    spark.streams.addListener(recorder)
    queries = list(start())
    try:
        for query in queries:
            recorder.expect(query)
        while any(query.isActive for query in queries):
            if any(query.exception() for query in queries):
                break
            if stop.wait(_LOOK_EVERY_S):
                _log.info("told to stop: leaving the micro-batch that is under way")
                break
        _end(queries, recorder)
    finally:
        spark.streams.removeListener(recorder)
    return {str(query.name): recorder.totals[str(query.runId)] for query in queries}


def _end(queries: Sequence[StreamingQuery], recorder: _Recorder) -> None:
    failures: list[StreamingQueryException] = []
    for query in queries:
        if failure := query.exception():
            failures.append(failure)
        with suppress(StreamingQueryException):
            query.stop()
        recorder.ended[str(query.runId)].wait(_LAST_EVENTS_WITHIN_S)
    if failures:
        raise explain_stream_failure(failures[0]) from failures[0]
