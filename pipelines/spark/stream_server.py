"""What a stream shows of itself by HTTP: `/metrics` for Prometheus, and `/healthz` for who restarts it.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pipelines.errors import ConfigError
from pipelines.runtime.http_server import threading_server
from pipelines.spark.stream_progress import COUNTERS, RunTotals, StreamProgress

_log = logging.getLogger(__name__)

Figures = Callable[[], StreamProgress]


class StreamServer:
    """Serves the figures of a stream until it is closed.

    Args:
        address: Host and port.
        labels: What every metric is labelled with.
        figures: Returns what is known of the run.
        totals: Returns what its micro-batches add up to.

    Raises:
        ConfigError: nothing can listen there.
    """

    def __init__(
        self,
        address: tuple[str, int],
        labels: Mapping[str, str],
        figures: Figures,
        totals: Callable[[], RunTotals],
    ) -> None:
        host, port = address
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Stream(labels, figures, totals))
        metrics: Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]] = make_wsgi_app(registry)

        def answer(environ: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
            match environ.get("PATH_INFO"):
                case "/metrics":
                    return metrics(environ, respond)
                case "/healthz":
                    return _healthz(figures(), respond)
                case _:
                    respond("404 Not Found", [("Content-Type", "text/plain")])
                    return [b"/metrics, /healthz\n"]

        try:
            self._server = threading_server(host, port, answer)
        except OSError as error:
            raise ConfigError(
                f"metrics.host, metrics.port: nothing can listen on {host}:{port}: {error}; set another"
                " metrics.port, or leave it out"
            ) from None
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        _log.info("metrics: http://%s:%d/metrics, health: /healthz", host, self._server.server_port)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.server_port

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


def _healthz(progress: StreamProgress, respond: StartResponse) -> Iterable[bytes]:
    silent = progress.silent_s(datetime.now(UTC))
    said: dict[str, Any] = {"status": "ok", "last_sign": progress.seen_at.isoformat(timespec="seconds")}
    if silent is not None:
        said |= {"status": "stuck", "silent_s": round(silent, 1)}
    status = "200 OK" if silent is None else "503 Service Unavailable"
    respond(status, [("Content-Type", "application/json")])
    return [json.dumps(said).encode() + b"\n"]


class _Stream(Collector):
    def __init__(self, labels: Mapping[str, str], figures: Figures, totals: Callable[[], RunTotals]) -> None:
        self._labels, self._figures, self._totals = labels, figures, totals

    def collect(self) -> Iterator[Metric]:
        """Return all metrics, as they are now."""
        return stream_metrics(self._labels, self._figures(), self._totals())


def stream_metrics(
    labels: Mapping[str, str], progress: StreamProgress, totals: RunTotals
) -> Iterator[Metric]:
    """Yield the metrics of a stream.

    Args:
        labels: What every metric is labelled with.
        progress: What is known of the run.
        totals: What its micro-batches add up to.
    """
    names, values = list(labels), list(labels.values())
    for name, counter in COUNTERS.items():
        family = CounterMetricFamily(f"oncelake_stream_{name}", counter.text, labels=names)
        family.add_metric(values, totals.counters.get(name, 0.0))
        yield family
    seconds = CounterMetricFamily(
        "oncelake_stream_seconds", "Time of micro-batches, by phase.", labels=[*names, "phase"]
    )
    for phase, took in totals.phases.items():
        seconds.add_metric([*values, phase], took)
    yield seconds
    for name, text, value in _gauges(progress):
        if value is not None:
            gauge = GaugeMetricFamily(f"oncelake_stream_{name}", text, labels=names)
            gauge.add_metric(values, value)
            yield gauge


def _gauges(progress: StreamProgress) -> Iterator[tuple[str, str, float | None]]:
    last = next((batch for batch in reversed(progress.batches) if batch.records), None)
    yield "healthy", "0 if it has given no sign for too long.", progress.silent_s(datetime.now(UTC)) is None
    yield "last_sign_timestamp_seconds", "When it last gave a sign.", progress.seen_at.timestamp()
    yield "started_timestamp_seconds", "When it was started.", progress.started_at.timestamp()
    yield "trigger_interval_seconds", "Time from one micro-batch to the next.", progress.trigger_s
    yield "executors", "Executors, beside the driver.", progress.executors
    if last is None:
        return
    yield "last_micro_batch_records", "Records of the last micro-batch with any.", last.records
    yield "last_micro_batch_seconds", "What it took.", last.seconds
    yield (
        "watermark_timestamp_seconds",
        "Its watermark.",
        last.watermark.timestamp() if last.watermark else None,
    )
    yield "state_memory_bytes", "Memory of the state.", last.state.memory_bytes if last.state else None
    yield "files_outstanding", "Files of its source that it has left for later.", last.files_left
    if last.tasks:
        yield "task_seconds", "What its tasks took in all.", last.tasks.run_s
        yield "gc_seconds", "Of that, garbage collection.", last.tasks.gc_s
        yield "spilled_bytes", "What its tasks spilled to disk.", last.tasks.spilled_bytes
