"""A server inside a job says nothing of clients that ask nothing, and shows no stack trace."""

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Thread
from wsgiref.simple_server import WSGIServer
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest

from pipelines.runtime import http_server
from pipelines.runtime.http_server import threading_server


def refuse(_: WSGIEnvironment, __: StartResponse) -> Iterable[bytes]:
    return []


@contextmanager
def serving() -> Iterator[WSGIServer]:
    server = threading_server("127.0.0.1", 0, refuse)
    # Its threads are waited for when it is closed.
    server.daemon_threads = False  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_connection_that_asks_nothing_is_no_news(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server.QuietHandler, "timeout", 0.05)
    with serving() as server, socket.create_connection(("127.0.0.1", server.server_port)) as client:
        client.settimeout(30)
        assert client.recv(1) == b""
    assert capfd.readouterr() == ("", "")
    assert not caplog.messages


def test_a_request_that_fails_is_told_in_a_line(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise ValueError("the handler is broken")

    monkeypatch.setattr(http_server.QuietHandler, "handle", broken)
    with serving() as server, socket.create_connection(("127.0.0.1", server.server_port)) as client:
        client.settimeout(30)
        assert client.recv(1) == b""
    assert capfd.readouterr() == ("", "")
    assert caplog.messages == ["a request failed: ValueError: the handler is broken"]
