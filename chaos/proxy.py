"""A TCP proxy before a broker, whose connections can be cut, held back and delayed."""

import socket
import threading
import time
from contextlib import suppress
from enum import StrEnum
from typing import Final

_CHUNK: Final = 65536
_CONNECT_S: Final = 5.0


class Link(StrEnum):
    """What becomes of bytes."""

    OPEN = "open"
    CUT = "cut"
    STALLED = "stalled"


class Proxy:
    """Where clients of a broker connect.

    Args:
        upstream: the port of the broker on this machine.

    Attributes:
        port: the port of the proxy.
        delay_s: how long each chunk waits, in seconds.
    """

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.delay_s = 0.0
        self._link = Link.OPEN
        self._changed = threading.Condition()
        self._connections = set[socket.socket]()
        threading.Thread(target=self._accept, name=f"proxy {self.port}", daemon=True).start()

    def turn(self, link: Link) -> None:
        """Cut, hold back or let through what there is and what comes."""
        with self._changed:
            self._link = link
            self._changed.notify_all()
            connections = [*self._connections] if link is Link.CUT else []
        for connection in connections:
            _shut(connection)

    def close(self) -> None:
        """Take no connections any more."""
        self._listening.close()
        self.turn(Link.CUT)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self._link is Link.CUT:
                client.close()
                continue
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            upstream = socket.create_connection(("127.0.0.1", self._upstream), _CONNECT_S)
        except OSError:
            client.close()
            return
        upstream.settimeout(None)
        for connection in (client, upstream):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._changed:
            self._connections |= {client, upstream}
        back = threading.Thread(target=self._pump, args=(upstream, client), daemon=True)
        back.start()
        self._pump(client, upstream)
        back.join()
        with self._changed:
            self._connections -= {client, upstream}
        client.close()
        upstream.close()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while chunk := source.recv(_CHUNK):
                if self.delay_s:
                    time.sleep(self.delay_s)
                with self._changed:
                    self._changed.wait_for(lambda: self._link is not Link.STALLED)
                    if self._link is Link.CUT:
                        break
                sink.sendall(chunk)
        _shut(source)
        _shut(sink)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
