"""An endpoint of OpenLineage, which takes the events that the specification allows."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator, FormatChecker

_ADDED: Final = "OPENLINEAGE__TRANSPORT__TRANSPORTS__DEFAULT_HTTP__"
_TEXT: Final = {"type": "string", "minLength": 1}
_FACETS: Final = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "required": ["_producer", "_schemaURL"],
        "properties": {"_producer": {"type": "string", "format": "uri"}},
    },
}
_NAMED: Final = {
    "type": "object",
    "required": ["namespace", "name"],
    "properties": {"namespace": _TEXT, "name": _TEXT, "facets": _FACETS},
}
_RUN_EVENT: Final = {
    "type": "object",
    "required": ["eventTime", "producer", "schemaURL", "eventType", "run", "job"],
    "properties": {
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "eventTime": {"type": "string", "format": "date-time"},
        "producer": {"type": "string", "format": "uri"},
        "run": {
            "type": "object",
            "required": ["runId"],
            "properties": {"runId": {"type": "string", "format": "uuid"}, "facets": _FACETS},
        },
        "job": _NAMED,
        "inputs": {"type": "array", "items": _NAMED},
        "outputs": {"type": "array", "items": _NAMED},
    },
}
"""What OpenLineage's specification asks of a run event."""


@dataclass
class LineageEndpoint:
    """What an endpoint was sent.

    Attributes:
        url: for `OPENLINEAGE_URL`.
        events: what it took, in order.
        answers_when: it answers when this is set.
        status: what it answers.
    """

    url: str
    events: list[dict[str, Any]] = field(default_factory=list)
    answers_when: threading.Event = field(default_factory=threading.Event)
    status: int = 201


@contextmanager
def lineage_endpoint() -> Iterator[LineageEndpoint]:
    """Runs an endpoint for the length of a block."""
    validator = Draft202012Validator(_RUN_EVENT, format_checker=FormatChecker())

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            endpoint.answers_when.wait(60)
            faults = [error.message for error in validator.iter_errors(event)]
            if self.path != "/api/v1/lineage" or faults:
                self.send_error(400, "; ".join(faults)[:200] or self.path)
                return
            endpoint.events.append(event)
            self.send_response(endpoint.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint = LineageEndpoint(f"http://127.0.0.1:{server.server_port}")
    endpoint.answers_when.set()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.answers_when.set()
        server.shutdown()
        server.server_close()


def ask_for_events(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Sets the variable by which events are sent to an address, for the length of a test."""
    for name in ("TYPE", "URL"):
        # The client adds these to the environment. What is set and removed here is as it was afterwards.
        monkeypatch.setenv(f"{_ADDED}{name}", "")
        monkeypatch.delenv(f"{_ADDED}{name}")
    monkeypatch.setenv("OPENLINEAGE_URL", url)
