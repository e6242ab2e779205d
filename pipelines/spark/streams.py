"""Starts a streaming query, runs it to its end, stops it when asked, and adds up what it did."""

import logging
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import FrameType
from typing import Any, Final, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pipelines.config.streams import Query
from pipelines.durations import format_interval
from pipelines.errors import OncelakeError, SourceError
from pipelines.runtime.processes import stop_signals
from pipelines.spark.failures import explain_stream_failure, first_line, is_passing
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.query_listener import QueryListener, listening
from pipelines.spark.stream_metrics import StreamMetric
from pipelines.spark.stream_monitor import StreamMonitor
from pipelines.spark.stream_progress import BatchFigures, micro_batch_of
from pipelines.spark.write_parts import timed

_LAST_EVENTS_WITHIN_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.2
_PARTS_KEPT: Final = 10
_RACK_REASON: Final = "rackReason"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trigger:
    """When micro-batches start.

    Attributes:
        once: Take what is there now and stop, instead of going on.
        interval: The time between the starts of two micro-batches, when going on.
    """

    once: bool
    interval: timedelta


@dataclass
class Totals:
    """What one query did since it was started here.

    Attributes:
        batches: Micro-batches with data.
        records: Records read from the source.
        counts: Sums of the observed metrics and of the state operators' metrics, by name.
        start: The source's offsets before the first micro-batch, as the source writes them.
        end: The source's offsets after the last micro-batch.
        watermark: The last watermark; of 1970 before the first micro-batch, None if the query has none.
        source: The source's own metrics, the last that it reported.
    """

    batches: int = 0
    records: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    start: Any = None
    end: Any = None
    watermark: datetime | None = None
    source: dict[str, str] = field(default_factory=dict)

    def merged_with(self, later: "Totals") -> "Totals":
        """Return these totals with those of a later run of the same query."""
        return Totals(
            self.batches + later.batches,
            self.records + later.records,
            self.counts + later.counts,
            self.start if self.start is not None else later.start,
            later.end or self.end,
            later.watermark or self.watermark,
            later.source or self.source,
        )


@contextmanager
def stop_signal(spark: SparkSession) -> Iterator[threading.Event]:
    """Yield an event that SIGTERM, SIGHUP or Ctrl-C sets, while the block runs.

    A process group gets the signal as a whole (Ctrl-C, systemd), and under spark-submit the JVM is the
    parent: without a handler of its own it would end at once and take the exit code along.
    """
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, ask) for number in stop_signals()}
    gateway: Any = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    jvm_signal = gateway.jvm.sun.misc.Signal
    names = [number.name.removeprefix("SIG") for number in before]
    in_jvm = {name: jvm_signal.handle(jvm_signal(name), _JvmHandler(stop)) for name in names}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for name, handler in in_jvm.items():
            jvm_signal.handle(jvm_signal(name), handler)


class _JvmHandler:
    def __init__(self, event: threading.Event) -> None:
        self._event = event

    def handle(self, jvm_signal: object) -> None:
        self._event.set()

    class Java:
        implements: Final = ["sun.misc.SignalHandler"]


def _cross_rack_reason(source: Mapping[str, str]) -> str | None:
    """Return why not all is read within the rack, by the driver's placement; None if it is, or is unknown."""
    return source.get(_RACK_REASON) or None


class BatchFunction:
    """A function that writes micro-batches, for `foreachBatch`, what it has raised, and what it took.

    Spark hands the first on as text within a stack trace.

    Attributes:
        raised: By the last micro-batch, if it failed.
    """

    def __init__(self, write: Callable[[DataFrame, int], None]) -> None:
        self.raised: Exception | None = None
        self._write = write
        self._parts: dict[int, Mapping[str, float]] = {}

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Write a micro-batch."""
        self.raised = None
        with timed() as parts:
            try:
                self._write(rows, batch)
            except Exception as error:
                self.raised = error
                raise
        # Spark tells of a micro-batch while the next ones may be at work.
        self._parts = {**dict([*self._parts.items()][1 - _PARTS_KEPT :]), batch: parts}

    def write_timings(self, batch: int) -> Mapping[str, float]:
        """Return what parts of writing one of the last micro-batches took, in seconds."""
        return self._parts.get(batch, {})


class _Recorder(QueryListener):
    def __init__(self, monitor: StreamMonitor | None, write: BatchFunction | None) -> None:
        self.totals: dict[str, Totals] = {}
        self.has_ended: dict[str, threading.Event] = {}
        self._monitor, self._write = monitor, write

    def expect(self, query: StreamingQuery) -> None:
        self.started(str(query.runId))

    def started(self, run_id: str) -> None:
        self.totals.setdefault(run_id, Totals())
        self.has_ended.setdefault(run_id, threading.Event())

    def idle(self, run_id: str) -> None:
        if self._monitor and run_id in self.totals:
            self._monitor.idle()

    def progressed(self, progress: dict[str, Any]) -> None:
        totals = self.totals.setdefault(progress["runId"], Totals())
        previous_reason = _cross_rack_reason(totals.source)
        batch = micro_batch_of(progress)
        if self._write:
            batch = replace(batch, parts=self._write.write_timings(batch.number))
        _add(totals, batch, progress)
        if self._monitor:
            self._monitor.add(batch, progress["id"])
        if (reason := _cross_rack_reason(totals.source)) and reason != previous_reason:
            _log.warning("%s: some reads cross racks: %s", progress["name"], reason)
        if batch.records:
            figures = batch.number, f"{batch.records:,}", batch.seconds
            _log.info("%s: micro-batch %s: %s records in %.1f s", progress["name"], *figures)

    def ended(self, run_id: str) -> None:
        self.has_ended.setdefault(run_id, threading.Event()).set()


def _add(totals: Totals, batch: BatchFigures, progress: Mapping[str, Any]) -> None:
    """Add a micro-batch to the totals of its query, by its figures and by what else Spark's report says."""
    totals.batches += bool(batch.records)
    totals.records += batch.records
    for source in progress["sources"]:
        if totals.start is None:
            totals.start = source.get("startOffset")
        totals.end = source.get("endOffset") or totals.end
        totals.source = source.get("metrics") or totals.source
    for observed in (progress.get("observedMetrics") or {}).values():
        totals.counts.update({k: v for k, v in observed.items() if isinstance(v, int)})
    totals.counts.update(late=batch.late, duplicates=batch.duplicates)
    if watermark := (progress.get("eventTime") or {}).get("watermark"):
        totals.watermark = datetime.fromisoformat(watermark)


def each_batch(
    rows: DataFrame,
    write: Callable[[DataFrame, int], None],
    *,
    name: str,
    checkpoint: str,
    trigger: Trigger,
) -> StreamingQuery:
    """Start a query that gives each micro-batch, with its number, to a function.

    The function may get the same micro-batch again after a crash, so what it does must be done once:
    `pipelines.delta.idempotent_writer` writes so.

    Args:
        rows: A streaming frame.
        write: Gets the rows of one micro-batch and its number.
        name: The query's name, for logs and metrics.
        checkpoint: The path of its checkpoint.
        trigger: When micro-batches start.
    """
    writer = rows.writeStream.foreachBatch(write).outputMode("append")
    writer = writer.queryName(name).option("checkpointLocation", checkpoint)
    if trigger.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=format_interval(trigger.interval)).start()


def query_of(spark: SparkSession) -> str:
    """Return the id of the query whose micro-batch runs in this thread; it lives as long as the checkpoint.

    Raises:
        RuntimeError: There is none.
    """
    query = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    if query is None:
        raise RuntimeError("Spark does not say which query this micro-batch belongs to")
    return str(query)


def observed(spark: SparkSession, observation: str) -> int:
    """Return the one number that an observation has for the micro-batch of this thread, once it was computed.

    Args:
        spark: The session.
        observation: The name of the observation.
    """
    query: Any = spark.streams.get(query_of(spark))
    metrics = query._jsq.streamingQuery().lastExecution().observedMetrics()
    return int(metrics.apply(observation).getLong(0))


class StreamJob(Protocol):
    """What a stream of a pipeline reads, and what it does with a micro-batch."""

    def plan(self) -> DataFrame:
        """Return the rows as a streaming frame; it is asked for at each start of the query."""

    def write(self, rows: DataFrame, batch: int) -> None:
        """Write a micro-batch, by its number, exactly once."""

    def metrics(self) -> Iterable[StreamMetric]:
        """Return the metrics that only this stream has; it is asked in another thread, again and again."""


def run_query(
    pipeline: Pipeline,
    query: Query,
    job: StreamJob,
    trigger: Trigger,
    is_recoverable: Callable[[BaseException], bool] = lambda _: False,
) -> Totals:
    """Run a query of a pipeline as `run_stream` does, with its name, its checkpoint and a monitor.

    Args:
        pipeline: The pipeline.
        query: The query.
        job: What it does.
        trigger: When micro-batches start.
        is_recoverable: As for `run_stream`.

    Raises:
        OncelakeError: As for `run_stream`.
    """
    write = BatchFunction(job.write)

    def start() -> StreamingQuery:
        return each_batch(
            job.plan(), write, name=query, checkpoint=pipeline.checkpoint(query), trigger=trigger
        )

    monitor = StreamMonitor(pipeline, query, None if trigger.once else trigger.interval, job.metrics)
    return run_stream(pipeline.spark, start, write, is_recoverable, monitor)


def run_stream(
    spark: SparkSession,
    start: Callable[[], StreamingQuery],
    write: BatchFunction | None = None,
    is_recoverable: Callable[[BaseException], bool] = lambda _: False,
    monitor: StreamMonitor | None = None,
) -> Totals:
    """Start a query and wait until it has ended or failed, or the job is asked to stop.

    A query whose micro-batch met a change of its table's properties, as upkeep makes them, continues.

    A micro-batch that is in progress at a stop is abandoned: nothing of it is visible, and the next run
    does it again.

    Args:
        spark: The session.
        start: Starts the query.
        write: What writes its micro-batches, if that is a function of ours.
        is_recoverable: Tells whether what made the query fail is over once the query is started again.
        monitor: Shows what the query does.

    Returns:
        What the query did, in all of its runs together.

    Raises:
        OncelakeError: What `write` raised.
        SourceError: The source cannot be trusted.
        InfrastructureError: The query failed for another reason. What the function or Spark raised is the
            error's cause.
    """
    totals, is_to_run = Totals(), True
    with _recorded(spark, monitor, write) as recorder:
        with stop_signal(spark) as stop:
            while is_to_run:
                run = _run(spark, start, recorder, stop)
                totals = totals.merged_with(run.totals)
                failure = (write and write.raised) or run.failure if run.failure else None
                if failure and (is_recoverable(failure) or is_passing(run.failure or failure)):
                    is_to_run, failure = not stop.is_set(), None
                else:
                    is_to_run = False
        if failure:
            _raise_unless_stopping(failure, stop)
        if stop.is_set():
            spark.sparkContext.setLogLevel("ERROR")
    return totals


@contextmanager
def _recorded(
    spark: SparkSession, monitor: StreamMonitor | None, write: BatchFunction | None
) -> Iterator[_Recorder]:
    """Yield what is told of queries while the block runs; the monitor gets how it ended."""
    recorder, failure = _Recorder(monitor, write), None
    try:
        with listening(spark, recorder):
            yield recorder
    except OncelakeError as error:
        failure = first_line(str(error))
        raise
    finally:
        if monitor:
            monitor.end(failure)


def _raise_unless_stopping(failure: Exception, stop: threading.Event) -> None:
    reason = failure if isinstance(failure, OncelakeError) else explain_stream_failure(failure)
    # A signal to the whole group also ends helpers that a micro-batch waits for.
    if isinstance(reason, SourceError) or not stop.is_set():
        raise reason from (None if reason is failure else failure)
    _log.warning("the query failed while stopping: %s", reason)


@dataclass(frozen=True)
class _Run:
    totals: Totals
    failure: StreamingQueryException | None


def _run(
    spark: SparkSession, start: Callable[[], StreamingQuery], recorder: _Recorder, stop: threading.Event
) -> _Run:
    try:
        query = start()
    except (PySparkException, Py4JJavaError) as error:
        raise explain_stream_failure(error) from error
    recorder.expect(query)
    while not _has_ended(query):
        if stop.is_set():
            _log.info("stopping: the micro-batch in progress is abandoned")
            # Tasks that are ended say so with stack traces.
            spark.sparkContext.setLogLevel("OFF")
            break
    failure = _end(query, recorder)
    return _Run(recorder.totals[str(query.runId)], failure)


def _has_ended(query: StreamingQuery) -> bool:
    """Return whether a query has ended or failed, after a moment at most."""
    with suppress(StreamingQueryException):
        # PySpark's annotation knows no parts of a second; its code takes them.
        return bool(query.awaitTermination(_LOOK_EVERY_S))  # type: ignore[arg-type]
    return True


def _end(query: StreamingQuery, recorder: _Recorder) -> StreamingQueryException | None:
    """Stop a query and wait for its last figures; return its failure, if it has failed."""
    failure = query.exception()
    with suppress(StreamingQueryException):
        query.stop()
    if not recorder.has_ended[str(query.runId)].wait(_LAST_EVENTS_WITHIN_S):
        _log.warning("%s: its last metrics did not arrive; the counts may be too low", query.name)
    return failure
