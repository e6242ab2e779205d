"""A receiver of OTLP gets what `/metrics` serves, and a span for each micro-batch."""

import logging
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from pipelines.spark.stream_metrics import StreamMetric, stream_metrics
from pipelines.spark.stream_progress import BatchFigures, RunTotals, StreamProgress
from pipelines.spark.stream_server import family_of
from testbed.waiting import wait_until

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otel is not installed")

from pipelines.spark import stream_telemetry
from pipelines.spark.stream_telemetry import StreamTelemetry
from tests.support.otlp import Collector, attributes, collector

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
BATCH = BatchFigures(7, AT, 2.5, 1_000, {"write": 2.0}, duplicates=3, watermark=AT)
RUNNING = StreamProgress("speed", "host", 7, AT, AT, AT, 10.0, batches=(BATCH,))
LABELS = {"pipeline": "flights", "env": "prod", "stream": "speed"}
OWN = StreamMetric("quarantined", "By reason.", "counter", {"wrong_type": 2.0, "null_value": 0.0}, "reason")


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collector() as got:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", got.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hush")
        yield got


def metrics(*own: StreamMetric) -> list[StreamMetric]:
    return list(stream_metrics(RUNNING, RunTotals({"records": 5.0}, {"write": 1.5}), own))


def test_the_metrics_are_those_of_prometheus(received: Collector) -> None:
    known = metrics()
    telemetry = StreamTelemetry(LABELS, lambda: known, {"metrics", "traces"})
    telemetry.refresh()
    # What a stream learns later is exported as well.
    known = metrics(OWN)
    telemetry.refresh()
    telemetry.close()
    expected = {
        (sample.name.removesuffix("_total"), frozenset(sample.labels.items())): sample.value
        for metric in known
        for sample in family_of(metric, LABELS).samples
    }
    assert received.metrics() == expected
    assert received.counters() == {
        f"oncelake_stream_{metric.name}" for metric in known if metric.kind == "counter"
    }
    assert received.services() == {"oncelake"}
    assert {headers["api-key"] for headers in received.headers} == {"hush"}


def test_an_export_asks_for_the_metrics_once(received: Collector) -> None:
    asked = list[list[StreamMetric]]()

    def counted() -> list[StreamMetric]:
        asked.append(metrics())
        return asked[-1]

    telemetry = StreamTelemetry(LABELS, counted, {"metrics"})
    telemetry.refresh()
    telemetry.close()
    assert len(received.metrics()) > len(asked) > 1


def test_a_micro_batch_is_a_span(received: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "ours")
    telemetry = StreamTelemetry(LABELS, metrics, {"traces"})
    telemetry.add(BATCH)
    telemetry.add(replace(BATCH, number=8))
    telemetry.close()
    assert received.services() == {"ours"}
    assert received.exports == []
    first, second = received.spans()
    began = int(AT.timestamp()) * 1_000_000_000
    assert (first.name, first.start_time_unix_nano) == ("micro-batch", began)
    assert first.end_time_unix_nano == began + 2_500_000_000
    assert attributes(first) == {
        **LABELS,
        "micro_batch": 7,
        "records": 1_000,
        "duplicates": 3,
        "late": 0,
        "seconds.write": 2.0,
    }
    # Each is a trace of its own.
    assert first.trace_id != second.trace_id


def test_a_collector_that_is_not_there_is_told_once_without_secrets(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:hush@127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    telemetry = StreamTelemetry(LABELS, metrics, {"metrics", "traces"})
    telemetry.refresh()
    telemetry.add(BATCH)
    with caplog.at_level(logging.WARNING):
        telemetry.close()
    (told,) = caplog.records
    assert "metrics are not exported by OTLP; the stream continues" in told.getMessage()
    assert "hush" not in caplog.text
    assert logging.getLogger("opentelemetry").handlers == []


def test_a_collector_that_does_not_answer_holds_nobody_up_and_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stream_telemetry, "LAST_EXPORT_WITHIN_S", 0.1)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    library = logging.getLogger("opentelemetry")
    with socket.socket() as silent, caplog.at_level(logging.WARNING):
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        telemetry = StreamTelemetry(LABELS, metrics, {"metrics"})
        telemetry.refresh()
        telemetry.close()
        # The stream has ended; the library may have yet to complain.
        wait_until(lambda: not library.handlers, "the last export has ended", 60)
    (told,) = caplog.records
    assert "metrics are not exported by OTLP" in told.getMessage()
