"""What is shown of a stream while it runs: a file beside its checkpoint, and metrics by HTTP and OTLP.

All that may wait for something else is done in a thread of its own: the stream waits for none of it.
"""

import logging
import os
import platform
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipelines.config.streams import STREAMS, Query, port_offset
from pipelines.errors import ConfigError
from pipelines.runtime.addresses import mask_addresses
from pipelines.runtime.life_signs import sign_sender
from pipelines.spark.failures import first_line
from pipelines.spark.otlp_settings import otlp_signals
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.stream_metrics import StreamMetric, stream_metrics
from pipelines.spark.stream_motion import MotionTeller, TaskSigns
from pipelines.spark.stream_progress import (
    KEPT,
    BatchFigures,
    Refusal,
    RunTotals,
    TaskFigures,
    new_run,
    read_progress,
    write_progress,
    write_refusal,
)

if TYPE_CHECKING:
    from pipelines.spark.stream_server import StreamServer
    from pipelines.spark.stream_telemetry import StreamTelemetry

# After a micro-batch; and in between, so that a process that is gone can be told from one that is busy.
_AFTER_S: Final = 5.0
_BETWEEN_S: Final = 30.0
_LAST_WITHIN_S: Final = 5.0

_log = logging.getLogger(__name__)


class _End(NamedTuple):
    """How a run has ended."""

    at: datetime
    failure: str | None


@contextmanager
def refusal_noted(pipeline: Pipeline, query: Query) -> Iterator[None]:
    """Leave word of a run that fails before its query begins; of one that has begun, its monitor does."""
    began = datetime.now(UTC)
    try:
        yield
    except Exception as error:
        # Whoever interrupts the writing is to learn all the same what was refused.
        with suppress(KeyboardInterrupt):
            _note_refusal(pipeline, query, began, first_line(str(error)))
        raise


def _note_refusal(pipeline: Pipeline, query: Query, began: datetime, failure: str) -> None:
    spark, checkpoint = pipeline.spark, pipeline.checkpoint(query)
    try:
        last = read_progress(spark, checkpoint)
        if last and (last.host, last.pid) == (platform.node(), os.getpid()) and last.started_at >= began:
            return
        refusal = Refusal(datetime.now(UTC), failure, last.written_at if last else None)
        write_refusal(spark, checkpoint, refusal)
    except Exception as error:  # noqa: BLE001 - whatever it is, the refusal is what counts
        _log.debug("%s", error)


def _labels(pipeline: Pipeline, query: Query) -> dict[str, str]:
    """Return what every metric of a stream is labelled with."""
    cluster = {"cluster": pipeline.config.cluster} if pipeline.config.cluster else {}
    return {"pipeline": pipeline.name, "env": pipeline.config.env, "stream": query, **cluster}


class StreamMonitor:
    """Takes Spark's reports of the micro-batches of a run, from its making until `end`.

    A stream that can move data does so, whether or not it can be watched: a port that is taken is tried again
    and again, and of an export that cannot be made there is one warning.

    Args:
        pipeline: The pipeline.
        query: The query.
        trigger: The time from one micro-batch to the next; None if it takes what is there and ends.
        own_metrics: Returns the metrics that only this query has; it may wait for something else.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        query: Query,
        trigger: timedelta | None,
        own_metrics: Callable[[], Iterable[StreamMetric]] = tuple,
    ) -> None:
        self._spark, self._checkpoint = pipeline.spark, pipeline.checkpoint(query)
        self._totals = RunTotals()
        self._own_metrics, self._own = own_metrics, tuple[StreamMetric, ...]()
        self._changed = threading.Condition()
        self._batches: list[tuple[BatchFigures, str]] = []
        self._is_seen, self._is_told = False, False
        self._end: _End | None = None
        seconds = trigger.total_seconds() if trigger else 0.0
        self._progress = new_run(query, seconds, read_progress(self._spark, self._checkpoint))
        self._telemetry = self._exported(pipeline, query)
        self._server: StreamServer | None = None
        self._serve = self._serving(pipeline, query)
        self._try_to_serve(logging.WARNING)
        self._meter: Any = None
        sender = sign_sender()
        self._motion = MotionTeller(sender, seconds, self._task_signs) if sender else None
        self._thread = threading.Thread(target=self._work, name="stream-monitor", daemon=True)
        self._thread.start()

    def _exported(self, pipeline: Pipeline, query: Query) -> "StreamTelemetry | None":
        try:
            signals = otlp_signals(os.environ)
            if not signals:
                return None
            # Its library is there only for who asks for it.
            from pipelines.spark.stream_telemetry import StreamTelemetry

            return StreamTelemetry(_labels(pipeline, query), self.metrics, signals)
        except Exception as error:  # noqa: BLE001 - whatever it is, the stream goes on
            said = mask_addresses(first_line(str(error)))
            _log.warning("metrics are not exported by OTLP; the stream continues: %s", said)
            return None

    def _serving(self, pipeline: Pipeline, query: Query) -> "Callable[[], StreamServer] | None":
        """Return what makes the server that the configuration asks for, if it does."""
        metrics = pipeline.config.metrics
        if metrics.port is None:
            return None
        # Its library takes time to import, which other commands need not wait for.
        from pipelines.spark.stream_server import StreamServer

        offset = port_offset(STREAMS[query], pipeline.config.kafka.number)
        address = (metrics.host, metrics.port + offset)
        return lambda: StreamServer(address, _labels(pipeline, query), lambda: self._progress, self.metrics)

    def _try_to_serve(self, level: int) -> None:
        """Listen, if the stream is to and does not yet; why it cannot is logged at a level."""
        if not self._is_unserved:
            return
        try:
            self._server = self._serve() if self._serve else None
        except ConfigError as error:
            _log.log(level, "%s. The stream continues without /metrics and /healthz, and tries again", error)

    @property
    def _is_unserved(self) -> bool:
        return self._serve is not None and self._server is None

    def metrics(self) -> Iterator[StreamMetric]:
        """Return the metrics, as they are now; may be called in any thread."""
        return stream_metrics(self._progress, self._totals, self._own)

    def add(self, batch: BatchFigures, query: str) -> None:
        """Note a micro-batch.

        Args:
            batch: Its figures.
            query: The id of the query in its checkpoint.
        """
        if self._motion:
            self._motion.note_done()
        # Never changed, since who asks for metrics reads it in another thread.
        self._totals = self._totals.plus(batch)
        with self._changed:
            self._batches.append((batch, query))
            self._changed.notify()

    def idle(self) -> None:
        """Note that there was nothing to do."""
        self._is_seen = True
        if self._motion:
            self._motion.note_done()

    def end(self, failure: str | None) -> None:
        """Note that the run has ended, and why if it failed."""
        if self._motion:
            self._motion.end()
        with self._changed:
            self._end = _End(datetime.now(UTC), failure)
            self._changed.notify()
        self._thread.join(_LAST_WITHIN_S)
        if self._server:
            self._server.close()
        if self._telemetry:
            self._telemetry.close()

    def _work(self) -> None:
        """Write the file until the run has ended, and then once more; nobody else changes the progress."""
        tasks_before = self._start_meter()
        self._take_own()
        self._write()
        while True:
            with self._changed:
                within_s = _AFTER_S if self._is_unserved else _BETWEEN_S
                is_new = self._changed.wait_for(lambda: self._end or bool(self._batches), within_s)
            tasks = self._tasks_ended()
            if is_new or self._is_seen or tasks != tasks_before:
                self._progress = replace(self._progress, seen_at=datetime.now(UTC))
            tasks_before, self._is_seen = tasks, False
            self._take_batches()
            self._take_own()
            if self._end:
                break
            self._try_to_serve(logging.DEBUG)
            self._write()
            with self._changed:
                self._changed.wait_for(lambda: self._end, _AFTER_S)
        self._stop_meter()
        self._progress = replace(self._progress, ended_at=self._end.at, failure=self._end.failure)
        newest = read_progress(self._spark, self._checkpoint)
        # Another run may have begun since, and fenced this one.
        if newest is None or newest.is_of(self._progress) or newest.started_at < self._progress.started_at:
            self._write()

    def _take_batches(self) -> None:
        with self._changed:
            new, self._batches = self._batches, []
        batches = list(self._progress.batches)
        if new and batches:
            # The last tasks of a micro-batch may be told of after it is done.
            batches[-1] = self._with_tasks(batches[-1], new[0][1])
        done = [self._with_tasks(batch, query) for batch, query in new]
        batches += done
        self._progress = replace(self._progress, batches=tuple(batches[-KEPT:]))
        if self._telemetry:
            for batch in done:
                self._telemetry.add(batch)

    def _take_own(self) -> None:
        try:
            self._own = tuple(self._own_metrics())
            if self._telemetry:
                self._telemetry.refresh()
        except Exception as error:  # noqa: BLE001 - whatever it is, the stream goes on
            # The session may be gone; what was known last is shown.
            _log.debug("%s", error)

    def _write(self) -> None:
        try:
            jvm_context: Any = self._spark.sparkContext._jsc.sc()
            executors = int(jvm_context.getExecutorMemoryStatus().size()) - 1
            self._progress = replace(self._progress, written_at=datetime.now(UTC), executors=executors)
            write_progress(self._spark, self._checkpoint, self._progress)
        except Exception as error:  # noqa: BLE001 - whatever it is, the stream goes on
            # The session may be gone before its last figures are.
            if not self._is_told and not self._end:
                _log.warning(
                    "the progress file of %s cannot be written, so oncelake lag shows less: %s",
                    *(self._progress.query, first_line(str(error))),
                )
            self._is_told = True

    def _start_meter(self) -> int:
        try:
            jvm: Any = self._spark.sparkContext._jvm
            meter = jvm.oncelake.watch.TaskMeter()
            self._spark.sparkContext._jsc.sc().addSparkListener(meter)
            self._meter = meter
        except Exception as error:  # noqa: BLE001 - whatever it is, the stream goes on
            _log.warning("tasks are not measured, so oncelake lag shows less: %s", first_line(str(error)))
        return self._tasks_ended()

    def _stop_meter(self) -> None:
        meter, self._meter = self._meter, None
        try:
            if meter:
                self._spark.sparkContext._jsc.sc().removeSparkListener(meter)
        except Exception as error:  # noqa: BLE001 - the session may be gone, and the listener with it
            _log.debug("%s", error)

    def _tasks_ended(self) -> int:
        try:
            return int(self._meter.ended()) if self._meter else 0
        except Exception:  # noqa: BLE001 - the session may be gone
            return 0

    def _task_signs(self) -> TaskSigns:
        if not self._meter:
            return TaskSigns(0, are_elsewhere=False)
        signs, running = self._meter.signs()
        return TaskSigns(int(signs), are_elsewhere=running > 0 and self._progress.executors > 0)

    def _with_tasks(self, batch: BatchFigures, query: str) -> BatchFigures:
        try:
            sums = self._meter.of(query, batch.number) if self._meter else None
        except Exception:  # noqa: BLE001 - the session may be gone
            sums = None
        if sums is None:
            return batch
        tasks, failed, run_ms, gc_ms, spilled, longest_ms, handing_on_ms = sums
        figures = TaskFigures(
            *(tasks, failed, run_ms / 1000, gc_ms / 1000, spilled),
            longest_s=longest_ms / 1000,
            handing_on_s=handing_on_ms / 1000,
        )
        return replace(batch, tasks=figures)
