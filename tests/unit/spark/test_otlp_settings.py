"""The standard variables of OpenTelemetry decide what is exported, and what cannot be is refused."""

import sys

import pytest

from pipelines.errors import ConfigError
from pipelines.spark.otlp_settings import otlp_signals

URL = "http://collector:4318"
ALL = {"OTEL_EXPORTER_OTLP_ENDPOINT": URL}


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_SERVICE_NAME": "a"},
        {**ALL, "OTEL_SDK_DISABLED": "True"},
        {**ALL, "OTEL_METRICS_EXPORTER": "none", "OTEL_TRACES_EXPORTER": "console"},
    ],
)
def test_nothing_is_exported_unless_it_is_asked_for(variables: dict[str, str]) -> None:
    assert otlp_signals(variables) == frozenset()


@pytest.mark.parametrize(
    ("variables", "signals"),
    [
        (ALL, {"metrics", "traces"}),
        ({**ALL, "OTEL_TRACES_EXPORTER": "none"}, {"metrics"}),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": URL}, {"traces"}),
        ({**ALL, "OTEL_METRICS_EXPORTER": "console,otlp"}, {"metrics", "traces"}),
        ({**ALL, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, {"metrics", "traces"}),
    ],
)
def test_each_signal_has_its_variables(variables: dict[str, str], signals: set[str]) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    assert otlp_signals(variables) == signals


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {**ALL, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL: expected http/protobuf, got 'grpc'",
        ),
        (
            {**ALL, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: expected http/protobuf, got 'http/json'",
        ),
    ],
)
def test_another_protocol_is_refused(variables: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        otlp_signals(variables)


@pytest.mark.parametrize("absent", ["opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"])
def test_a_library_that_is_not_installed_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, absent: str
) -> None:
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(ConfigError, match=r"ENDPOINT is set, .*pip install 'oncelake\[otel\]'") as refused:
        otlp_signals(ALL)
    assert refused.value.exit_code == 2
    assert URL not in str(refused.value)
