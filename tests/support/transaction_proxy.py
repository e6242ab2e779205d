"""A TCP proxy before a broker that delays a request which ends a transaction, as a network does.

The request is taken from one connection, which then breaks, so that the client sends it again by another. The
first one arrives later, by the connection that the broker still has.
"""

import queue
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from unittest.mock import patch

from pipelines.runtime import local_broker as embedded
from pipelines.runtime.local_broker import server_properties
from tests.support.kafka import start_brief_broker

PRODUCE: Final = 0
END_TXN: Final = 26
_WITHIN_S: Final = 60


@dataclass
class TransactionProxy:
    """Where clients connect.

    Attributes:
        servers: the proxy's address, which the broker advertises.
        direct: the broker's own, for those who are not to be disturbed.
        arrives_before: which Produce request after the held one waits until that has arrived.
        as_abort: whether what arrives late asks for a rollback.
        answer: what the broker said to it, as Kafka's error code; None while it is held.
        late_answers: what it said on the connection of the held request.
    """

    servers: str
    direct: str
    arrives_before: int = 0
    as_abort: bool = False
    answer: int | None = None
    late_answers: "queue.Queue[bytes]" = field(default_factory=queue.Queue)
    _armed: bool = False
    _held: tuple[socket.socket, bytes] | None = None
    _produced: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hold_next(self, arrives_before: int, *, as_abort: bool = False) -> None:
        """Holds the next request that ends a transaction.

        Args:
            arrives_before: as the attribute.
            as_abort: as the attribute.
        """
        self.arrives_before, self.as_abort, self.answer = arrives_before, as_abort, None
        self._produced, self._held, self._armed = 0, None, True

    @property
    def is_holding(self) -> bool:
        """Whether a request has been held and has not arrived yet."""
        return self._held is not None

    def passes(self, request: bytes, upstream: socket.socket) -> bool:
        """Whether a request may go on; one that is held may arrive first."""
        (kind,) = struct.unpack(">h", request[4:6])
        with self._lock:
            if kind == END_TXN and self._armed:
                self._armed, self._held = False, (upstream, request)
                return False
            if kind == PRODUCE and self._held:
                self._produced += 1
                if self._produced == self.arrives_before:
                    self._let_go()
        return True

    def _let_go(self) -> None:
        assert self._held
        (upstream, request), self._held = self._held, None
        (version,) = struct.unpack(">h", request[6:8])
        assert version < 3, "this proxy reads the requests of transactions v1 only"
        upstream.sendall(request[:-1] + b"\0" if self.as_abort else request)
        # Length, correlation id and throttle time come first.
        (self.answer,) = struct.unpack(">h", self.late_answers.get(timeout=_WITHIN_S)[12:14])
        upstream.shutdown(socket.SHUT_RDWR)


@contextmanager
def transaction_proxy(folder: Path) -> Iterator[TransactionProxy]:
    """Runs a broker and the proxy before it for the length of a block.

    Args:
        folder: for the broker's files.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        behind, port = free.getsockname()[1], listening.getsockname()[1]
        free.close()

        def properties(folder: Path, own: int, controller: int) -> str:
            return server_properties(folder, own, controller) + (
                f"listeners=PLAINTEXT://127.0.0.1:{own},CLIENTS://127.0.0.1:{behind},"
                f"CONTROLLER://127.0.0.1:{controller}\n"
                f"advertised.listeners=PLAINTEXT://127.0.0.1:{own},CLIENTS://127.0.0.1:{port}\n"
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            )

        with patch.object(embedded, "server_properties", properties):
            running = start_brief_broker(folder)
        proxy = TransactionProxy(f"127.0.0.1:{port}", running.bootstrap_servers)
        accepting = threading.Thread(target=_accept, args=(listening, behind, proxy), daemon=True)
        accepting.start()
        try:
            yield proxy
        finally:
            running.stop()


def _accept(listening: socket.socket, behind: int, proxy: TransactionProxy) -> None:
    with suppress(OSError):
        while True:
            client, _ = listening.accept()
            upstream = socket.create_connection(("127.0.0.1", behind), _WITHIN_S)
            upstream.settimeout(None)
            threading.Thread(target=_requests, args=(client, upstream, proxy), daemon=True).start()


def _requests(client: socket.socket, upstream: socket.socket, proxy: TransactionProxy) -> None:
    held = threading.Event()
    threading.Thread(target=_answers, args=(client, upstream, held, proxy), daemon=True).start()
    with suppress(OSError):
        while request := _frame(client):
            if not proxy.passes(request, upstream):
                held.set()
                client.shutdown(socket.SHUT_RDWR)
                return
            upstream.sendall(request)
    with suppress(OSError):
        upstream.shutdown(socket.SHUT_RDWR)


def _answers(
    client: socket.socket, upstream: socket.socket, held: threading.Event, proxy: TransactionProxy
) -> None:
    with suppress(OSError):
        while answer := _frame(upstream):
            if held.is_set():
                proxy.late_answers.put(answer)
            else:
                client.sendall(answer)
    if not held.is_set():
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


def _frame(connection: socket.socket) -> bytes:
    """A request or an answer, with its length before it; nothing at the end."""
    size = _exactly(connection, 4)
    return size + _exactly(connection, struct.unpack(">i", size)[0]) if size else b""


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            return b""
        found += part
    return found
