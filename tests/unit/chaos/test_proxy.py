"""What goes through the proxy can be cut, held back and let through again."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from chaos.proxy import Link, Proxy


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that sends back what it gets."""

    def answer(client: socket.socket) -> None:
        with suppress(OSError), client:
            while chunk := client.recv(100):
                client.sendall(chunk)

    def accept(listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                threading.Thread(target=answer, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, args=(listening,), daemon=True).start()
        yield listening.getsockname()[1]


@pytest.fixture
def proxy(echo: int) -> Iterator[Proxy]:
    with closing(Proxy(echo)) as proxy:
        yield proxy


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), 10)


def test_bytes_go_through(proxy: Proxy) -> None:
    with connected(proxy) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"


def test_a_connection_is_cut_and_there_are_no_new_ones_until_it_is_open(proxy: Proxy) -> None:
    with connected(proxy) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"
        proxy.turn(Link.CUT)
        assert client.recv(100) == b""
    with connected(proxy) as refused, suppress(ConnectionResetError):
        assert refused.recv(100) == b""
    proxy.turn(Link.OPEN)
    test_bytes_go_through(proxy)


def test_bytes_that_are_held_back_come_when_it_is_open(proxy: Proxy) -> None:
    with connected(proxy) as client:
        client.sendall(b"one")
        assert client.recv(100) == b"one"
        proxy.turn(Link.STALLED)
        client.sendall(b"two")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(100)
        client.settimeout(10)
        proxy.turn(Link.OPEN)
        assert client.recv(100) == b"two"
