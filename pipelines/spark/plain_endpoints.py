"""Logins that variables of the environment send by HTTP without TLS to another machine.

`pipelines.config.plain_logins` finds those of a configuration.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pipelines.config.plain_logins import is_plain, plain_risk, shown_address
from pipelines.config.risks import TakenRisk
from pipelines.errors import ConfigError
from pipelines.runtime.run_events import CONFIG_VARIABLE, URL_VARIABLE, asking_variable
from pipelines.spark.otlp_settings import endpoint_variable, wanted_signals
from pipelines.text_files import LARGEST_YAML, read_text
from pipelines.yaml import parse_yaml

_HTTPS: Final = "set it to https://"
_API_KEY: Final = "OPENLINEAGE_API_KEY"
# Parts of the client's settings, each as a variable of its own.
_PARTS: Final = "OPENLINEAGE__"
_PART_URL: Final = "__URL"
_PART_LOGINS: Final = ("__AUTH", "__CUSTOM_HEADERS", "__CUSTOMHEADERS")
_FILE_LOGINS: Final = ("auth", "custom_headers", "customHeaders")


def plain_endpoints(environ: Mapping[str, str]) -> Iterator[TakenRisk]:
    """Yield the variables by which telemetry or run events take a login to others in plain text.

    Args:
        environ: The environment variables.
    """
    # A variable that both signals have in common is told once.
    yield from {each.location: each for each in _of_otlp(environ)}.values()
    if asking_variable(environ):
        yield from _of_openlineage(environ)


def _of_otlp(environ: Mapping[str, str]) -> Iterator[TakenRisk]:
    for signal in wanted_signals(environ):
        variable = endpoint_variable(signal, environ)
        of_signal = f"OTEL_EXPORTER_OTLP_{signal.upper()}_HEADERS"
        headers = environ.get(of_signal) or environ.get("OTEL_EXPORTER_OTLP_HEADERS") or ""
        # Values may be secrets.
        name, is_header, _ = headers.partition("=")
        login = f"the header {unquote(name).strip()}" if is_header else _user_of(environ[variable])
        if login and is_plain(environ[variable]):
            yield plain_risk((variable,), f"{shown_address(environ[variable])}, with {login}", _HTTPS)


def _of_openlineage(environ: Mapping[str, str]) -> Iterator[TakenRisk]:
    if url := environ.get(URL_VARIABLE):
        yield from _of_client((URL_VARIABLE,), url, _API_KEY if environ.get(_API_KEY) else "")
    for name, url in sorted(environ.items()):
        if name.startswith(_PARTS) and name.endswith(_PART_URL):
            logins = tuple(f"{name.removesuffix(_PART_URL)}{part}" for part in _PART_LOGINS)
            login = next((other for other in sorted(environ) if other.startswith(logins)), "")
            yield from _of_client((name,), url, login)
    if path := environ.get(CONFIG_VARIABLE):
        yield from _of_mapping((CONFIG_VARIABLE,), _settings(Path(path)))


def _settings(path: Path) -> Any:
    """Return the settings of the client in a file; None if there are none, which a job tells of."""
    try:
        return parse_yaml(read_text(path, LARGEST_YAML), str(path), ConfigError)
    except (OSError, UnicodeDecodeError, ConfigError):
        return None


def _of_mapping(location: tuple[str, ...], settings: Any) -> Iterator[TakenRisk]:
    """Yield what a file says of a transport, or of several that lie deeper."""
    if isinstance(settings, list):
        settings = {str(number): each for number, each in enumerate(settings)}
    if not isinstance(settings, dict):
        return
    if isinstance(url := settings.get("url"), str):
        login = next((name for name in _FILE_LOGINS if settings.get(name)), "")
        yield from _of_client((*location, "url"), url, login)
    for name, part in settings.items():
        yield from _of_mapping((*location, str(name)), part)


def _of_client(location: tuple[str, ...], url: str, login: str) -> Iterator[TakenRisk]:
    login = login or _user_of(url)
    if login and is_plain(url):
        yield plain_risk(location, f"{shown_address(url)}, with {login}", _HTTPS)


def _user_of(url: str) -> str:
    """Return in words that an address has a login itself; empty if it has none."""
    try:
        return "a login in the address" if "@" in urlsplit(url.strip()).netloc else ""
    except ValueError:
        return ""
