"""Which signals of a stream are exported by OTLP, by the standard environment variables of OpenTelemetry.

https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final, Literal, get_args

from pipelines.errors import ConfigError

Signal = Literal["metrics", "traces"]

_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_PROTOCOL: Final = "http/protobuf"
_MODULES: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def otlp_signals(environ: Mapping[str, str]) -> frozenset[Signal]:
    """Return which signals are to be exported; none if no endpoint is set.

    Args:
        environ: The environment variables.

    Raises:
        ConfigError: Another protocol is asked for, or the library is not installed.
    """
    signals = wanted_signals(environ)
    for signal in signals:
        _require_protocol(signal, environ)
    if signals and not all(map(_is_there, _MODULES)):
        raise ConfigError(
            f"{endpoint_variable(signals[0], environ)} is set, and the packages of OpenTelemetry are not"
            " installed; install them: pip install 'oncelake[otel]'; or unset the variable"
        )
    return frozenset(signals)


def wanted_signals(environ: Mapping[str, str]) -> list[Signal]:
    """Return which signals the environment asks for, whether they can be exported or not."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return []
    return [signal for signal in get_args(Signal) if _is_wanted(signal, environ)]


def _is_wanted(signal: Signal, environ: Mapping[str, str]) -> bool:
    exporters = (environ.get(f"OTEL_{signal.upper()}_EXPORTER") or "otlp").split(",")
    return "otlp" in exporters and bool(environ.get(endpoint_variable(signal, environ)))


def endpoint_variable(signal: Signal, environ: Mapping[str, str]) -> str:
    """Return the variable that names the endpoint of a signal; that of the signal wins over that of all."""
    own = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"
    return own if environ.get(own) else _ENDPOINT


def _require_protocol(signal: Signal, environ: Mapping[str, str]) -> None:
    for variable in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if found := environ.get(variable):
            if found != _PROTOCOL:
                raise ConfigError(
                    f"{variable}: expected {_PROTOCOL}, got {found!r}; unset it, and name the HTTP endpoint"
                    f" of the collector in {endpoint_variable(signal, environ)}, such as http://HOST:4318"
                )
            return


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
