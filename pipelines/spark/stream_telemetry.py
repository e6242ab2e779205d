"""Exports metrics, and a span for each micro-batch, of a stream by OTLP.

The library reads the standard variables itself: endpoint, headers, certificates, intervals, time-outs.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from pipelines.runtime.addresses import mask_addresses
from pipelines.spark.otlp_settings import Signal
from pipelines.spark.stream_metrics import PREFIX, StreamMetric
from pipelines.spark.stream_progress import BatchFigures

_SCOPE: Final = "oncelake"
_SERVICE: Final = "service.name"
LAST_EXPORT_WITHIN_S: Final = 5.0
"""For how long the end of a stream waits until its last figures are exported."""
# Exports are farther apart, and one takes less.
_ONE_EXPORT_S: Final = 0.5
_SHOWN: Final = 300

_log = logging.getLogger(__name__)


class StreamTelemetry:
    """Exports the figures of a stream until it is closed, in threads of the library.

    An export that fails is told once; the stream goes on.

    Args:
        labels: What every metric and every span is labelled with.
        metrics: Returns the metrics, as they are now; it is asked in another thread.
        signals: What is exported.
    """

    def __init__(
        self,
        labels: Mapping[str, str],
        metrics: Callable[[], Iterable[StreamMetric]],
        signals: Collection[Signal],
    ) -> None:
        self._labels, self._metrics = dict(labels), metrics
        self._instruments = set[str]()
        self._taken: tuple[float, Mapping[str, StreamMetric]] = (-math.inf, {})
        self._warner = _Warner()
        self._warner.start()
        resource = _resource()
        # It asks for the metrics when it is made.
        readers = [PeriodicExportingMetricReader(OTLPMetricExporter())] if "metrics" in signals else []
        self._meters = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        self._meter = self._meters.get_meter(_SCOPE)
        self._tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        if "traces" in signals:
            self._tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._tracers.get_tracer(_SCOPE)

    def refresh(self) -> None:
        """Export also metrics that the stream did not know before."""
        for metric in self._metrics():
            if metric.name not in self._instruments:
                self._instruments.add(metric.name)
                self._observe(metric)

    def _observe(self, metric: StreamMetric) -> None:
        def observed(options: CallbackOptions) -> list[Observation]:
            now = self._of_one_export().get(metric.name)
            if now is None:
                return []
            return [
                Observation(number, self._labels | ({now.label: value} if now.label else {}))
                for value, number in now.values.items()
            ]

        meter, name = self._meter, f"{PREFIX}{metric.name}"
        make = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
        make(name, callbacks=[observed], description=metric.text)

    def _of_one_export(self) -> Mapping[str, StreamMetric]:
        """Return the metrics by name; the library asks for one after the other at each export."""
        at, known = self._taken
        if time.monotonic() - at > _ONE_EXPORT_S:
            known = {metric.name: metric for metric in self._metrics()}
            self._taken = time.monotonic(), known
        return known

    def add(self, batch: BatchFigures) -> None:
        """Export a span for a micro-batch that is done."""
        attributes: dict[str, str | float] = {
            **self._labels,
            "micro_batch": batch.number,
            "records": batch.records,
            "duplicates": batch.duplicates,
            "late": batch.late,
            **{f"seconds.{phase}": took for phase, took in batch.phases.items()},
        }
        began, ended = batch.at, batch.at + timedelta(seconds=batch.seconds)
        span = self._tracer.start_span("micro-batch", Context(), attributes=attributes, start_time=_ns(began))
        span.end(_ns(ended))

    def close(self) -> None:
        """Export what is left, for some seconds at most."""
        last = threading.Thread(target=self._shut_down, name="last-export", daemon=True)
        last.start()
        last.join(LAST_EXPORT_WITHIN_S)

    def _shut_down(self) -> None:
        self._tracers.shutdown()
        # The last export is one of its own, however close it is to the one before.
        self._taken = (-math.inf, {})
        self._meters.shutdown()
        # Not before: what the library still complains of would be a stack trace in the log of the job.
        self._warner.stop()


def _resource() -> Resource:
    """Return what the standard variables say of the service; its name is `oncelake` if they name none."""
    resource = Resource.create()
    if str(resource.attributes[_SERVICE]).startswith("unknown_service"):
        return resource.merge(Resource({_SERVICE: "oncelake"}))
    return resource


def _ns(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1_000


class _Warner(logging.Handler):
    """Tells the first thing that the library complains of, instead of each with its stack trace."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._library = logging.getLogger("opentelemetry")
        self._is_told = False

    def start(self) -> None:
        self._library.addHandler(self)
        self._library.propagate = False

    def stop(self) -> None:
        self._library.removeHandler(self)
        self._library.propagate = True

    def emit(self, record: logging.LogRecord) -> None:
        if self._is_told:
            return
        self._is_told = True
        said = mask_addresses(record.getMessage())[:_SHOWN]
        _log.warning(
            "metrics are not exported by OTLP; the stream continues, and further failures are not logged."
            " Check OTEL_EXPORTER_OTLP_ENDPOINT and the collector. %s",
            said,
        )
