"""A receiver of OTLP over HTTP, as a collector is one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Collector:
    """What was received.

    Attributes:
        url: where it listens.
        headers: those of each request.
        exports: requests with metrics.
        traces: requests with spans.
    """

    url: str = ""
    headers: list[dict[str, str]] = field(default_factory=list)
    exports: list[Any] = field(default_factory=list)
    traces: list[Any] = field(default_factory=list)

    def metrics(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """The last value of each metric, by name and attributes."""
        points: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for metric in (metric for export in self.exports for metric in _metrics(export)):
            for point in (*metric.sum.data_points, *metric.gauge.data_points):
                number = point.as_double if point.HasField("as_double") else float(point.as_int)
                points[metric.name, frozenset(_attributes(point.attributes).items())] = number
        return points

    def counters(self) -> set[str]:
        """The names of metrics that only grow."""
        metrics = [metric for export in self.exports for metric in _metrics(export)]
        return {metric.name for metric in metrics if metric.sum.is_monotonic}

    def spans(self) -> list[Any]:
        """All spans."""
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def services(self) -> set[str]:
        """What the senders call themselves."""
        resources = [each.resource for request in self.exports for each in request.resource_metrics]
        resources += [each.resource for request in self.traces for each in request.resource_spans]
        return {_attributes(resource.attributes)["service.name"] for resource in resources}


def attributes(span: Any) -> dict[str, Any]:
    """The attributes of a span."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def _attributes(pairs: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in pairs}


def _metrics(export: Any) -> Iterator[Any]:
    for resource in export.resource_metrics:
        for scope in resource.scope_metrics:
            yield from scope.metrics


@contextmanager
def collector() -> Iterator[Collector]:
    """Yields a receiver that answers until the block ends."""
    got = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.headers.append(dict(self.headers))
            match self.path:
                case "/v1/metrics":
                    got.exports.append(ExportMetricsServiceRequest.FromString(body))
                case "/v1/traces":
                    got.traces.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    got.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield got
    finally:
        server.shutdown()
        server.server_close()
