"""What a stream shows of itself by HTTP: `/metrics` for Prometheus, `/healthz` for people and their alerts.

`/livez` is for what kills and restarts processes. A micro-batch that takes long would only begin anew.

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
from pipelines.spark.stream_metrics import PREFIX, StreamMetric
from pipelines.spark.stream_progress import StreamProgress

_log = logging.getLogger(__name__)

Figures = Callable[[], StreamProgress]
Metrics = Callable[[], Iterable[StreamMetric]]


class StreamServer:
    """Serves the figures of a stream until it is closed.

    Args:
        address: Host and port.
        labels: What every metric is labelled with.
        figures: Returns what is known of the run.
        metrics: Returns its metrics, as they are now.

    Raises:
        ConfigError: Nothing can listen there.
    """

    def __init__(
        self,
        address: tuple[str, int],
        labels: Mapping[str, str],
        figures: Figures,
        metrics: Metrics,
    ) -> None:
        host, port = address
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Stream(labels, metrics))
        exposition: Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]] = make_wsgi_app(registry)

        def answer(environ: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
            match environ.get("PATH_INFO"):
                case "/metrics":
                    return exposition(environ, respond)
                case "/healthz":
                    return _healthz(figures(), respond)
                case "/livez":
                    return _livez(figures(), respond)
                case _:
                    respond("404 Not Found", [("Content-Type", "text/plain")])
                    return [b"/metrics, /healthz, /livez\n"]

        try:
            self._server = threading_server(host, port, answer)
        except OSError as error:
            raise ConfigError(
                f"metrics.host, metrics.port: cannot bind to {host}:{port}: {error}; find out what"
                " listens there, or set another metrics.port"
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
    return _said(said, respond, is_good=silent is None)


def _livez(progress: StreamProgress, respond: StartResponse) -> Iterable[bytes]:
    lives = progress.ended_at is None
    return _said({"status": "ok" if lives else "ended"}, respond, is_good=lives)


def _said(said: Mapping[str, Any], respond: StartResponse, *, is_good: bool) -> Iterable[bytes]:
    status = "200 OK" if is_good else "503 Service Unavailable"
    respond(status, [("Content-Type", "application/json")])
    return [json.dumps(said).encode() + b"\n"]


class _Stream(Collector):
    def __init__(self, labels: Mapping[str, str], metrics: Metrics) -> None:
        self._labels, self._metrics = labels, metrics

    def collect(self) -> Iterator[Metric]:
        """Return all metrics, as they are now."""
        return (family_of(each, self._labels) for each in self._metrics())


def family_of(metric: StreamMetric, labels: Mapping[str, str]) -> Metric:
    """Return a metric as Prometheus has it.

    Args:
        metric: The metric.
        labels: What every metric is labelled with.
    """
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    own = [metric.label] if metric.label else []
    family = kind(f"{PREFIX}{metric.name}", metric.text, labels=[*labels, *own])
    for value, number in metric.values.items():
        family.add_metric([*labels.values(), *([value] if own else [])], number)
    return family
