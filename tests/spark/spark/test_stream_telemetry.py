"""A stream exports what it does by OTLP, if the variables of OpenTelemetry ask for it."""

import pytest

from pipelines.steps.speed import speed
from tests.support.lakes import Lake, flight

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otel is not installed")

from tests.support.otlp import attributes, collector


def test_a_run_exports_its_last_figures_before_it_ends(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.ingest([flight(), flight(), None, b"not json", b"{"])
    with collector() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        speed(lake.pipeline, once=True)
    labels = {"pipeline": "flights", "env": "local", "stream": "speed"}
    found = received.metrics()

    def value(name: str, **own: str) -> float:
        return found[f"oncelake_stream_{name}", frozenset({**labels, **own}.items())]

    assert (value("records"), value("duplicates")) == (5, 1)
    assert value("quarantined", reason="malformed_json") == 2
    assert value("quarantined", reason="null_value") == 1
    assert value("quarantined", reason="wrong_type") == 0
    spans = [attributes(span) for span in received.spans()]
    assert [(span["micro_batch"], span["records"]) for span in spans if span["records"]] == [(0, 5)]


def test_what_cannot_be_exported_stops_no_stream(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake.ingest([flight()])
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    assert speed(lake.pipeline, once=True).counts.rows == 1
    (warned,) = (each.getMessage() for each in caplog.records if "OTLP" in each.getMessage())
    assert "the stream continues: OTEL_EXPORTER_OTLP_PROTOCOL: expected http/protobuf, got 'grpc'" in warned
