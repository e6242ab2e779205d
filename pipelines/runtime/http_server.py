"""A small HTTP server inside a job: threads of its own, short waits, no log of requests."""

import logging
import socket
import sys
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

_log = logging.getLogger(__name__)

Answer = Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]
"""A WSGI application."""


def threading_server(host: str, port: int, answer: Answer) -> WSGIServer:
    """Return a server that listens, and answers each request in a thread once it is let serve.

    Args:
        host: The address to listen on.
        port: The port; 0 for any that is free.
        answer: What answers.

    Raises:
        OSError: Nothing can listen there.
    """
    server = _SixServer if ":" in host else _Server
    return make_server(host, port, answer, server, QuietHandler)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error in one line; of connections that ask nothing, or end early, say nothing.

        Browsers open some ahead, and may never use them.
        """
        error = sys.exception()
        if not isinstance(error, (TimeoutError, ConnectionError)):
            _log.warning("a request failed: %s: %s", type(error).__name__, error)


class _SixServer(_Server):
    address_family = socket.AF_INET6


class QuietHandler(WSGIRequestHandler):
    """Handles one request, and logs none."""

    # Who never ends a request keeps a thread no longer.
    timeout = 10

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Log nothing: a request every few seconds is no news."""
