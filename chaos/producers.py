"""Producers that retry, and remember what the cluster has acknowledged."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from chaos.observations import Acknowledged, Place
from chaos.traffic import PARTITIONS, Send

NUMBER: Final = "number"
"""The header with the number of the send."""
_FLUSH_S: Final = 120.0


class Producers:
    """A producer for each partition, in a thread; what one sends is retried by its client, idempotently.

    Args:
        servers: of the cluster.
        topic: where to.
        sends: what, in its order.
        lead_s: what is sent after this time of the traffic waits for `release`.

    Attributes:
        acknowledged: what the cluster has acknowledged.
        failed: how many records the clients have given up, by error; they may be in the topic or not.
        sent: how many records were handed to the clients, by sort.
    """

    def __init__(self, servers: str, topic: str, sends: Iterator[Send], lead_s: float = float("inf")) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.failed: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self._servers, self._topic, self._sends = servers, topic, sends
        self._clients = [self._client() for _ in range(PARTITIONS)]
        self._enough, self._released = threading.Event(), threading.Event()
        self._lead_s = lead_s
        self._thread = threading.Thread(target=self._run, name=f"producers of {topic}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def release(self) -> None:
        """Let all of the traffic be sent."""
        self._released.set()

    def finish(self) -> int:
        """Send nothing more, and wait for what is under way.

        Returns:
            How many records the cluster has neither taken nor refused.
        """
        self._enough.set()
        self._thread.join()
        return sum(client.flush(_FLUSH_S) for client in self._clients)

    def _run(self) -> None:
        began = time.monotonic()
        for send in self._sends:
            if send.at_s >= self._lead_s and not self._released.is_set():
                began += self._wait_for_release()
            while (wait_s := began + send.at_s - time.monotonic()) > 0 and not self._enough.is_set():
                self._serve()
                time.sleep(min(wait_s, 0.05))
            if self._enough.is_set():
                return
            self._send(send)

    def _wait_for_release(self) -> float:
        began = time.monotonic()
        while not self._released.wait(0.05) and not self._enough.is_set():
            self._serve()
        return time.monotonic() - began

    def _serve(self) -> None:
        for client in self._clients:
            client.poll(0)

    def _send(self, send: Send) -> None:
        while not self._enough.is_set():
            with suppress(BufferError):
                self._produce(send)
                return
            self._clients[send.partition].poll(0.1)

    def _produce(self, send: Send) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failed[str(error.name())] += 1
                return
            partition, offset = message.partition(), message.offset()
            if partition is not None and offset is not None:
                place = Place(partition, offset)
                self.acknowledged.append(Acknowledged(send.number, place, send.value))

        try:
            self._clients[send.partition].produce(
                self._topic,
                key=send.key,
                value=send.value,
                partition=send.partition,
                timestamp=send.timestamp_ms,
                headers={NUMBER: str(send.number)},
                on_delivery=delivered,
            )
        except KafkaException as refusal:
            # A client that has lost its order takes nothing any more; its application starts another one.
            self.failed[str(refusal.args[0].name())] += 1
            self._clients[send.partition] = self._client()
            return
        self.sent[send.sort] += 1

    def _client(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "delivery.timeout.ms": 300_000,
                "request.timeout.ms": 10_000,
                "socket.timeout.ms": 10_000,
                "log_level": 0,
            }
        )
