"""Sends the records of a plan to a real broker, one Kafka producer for each simulated producer."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from demo.sends import HOUR, Send
from pipelines.errors import InfrastructureError

_FLUSH_SECONDS = 30.0


class Producers:
    """The simulated producers: idempotent Kafka clients, each with its own connection and order.

    Use as a context manager.

    Args:
        bootstrap_servers: Where the broker is.
        topic: An existing topic with the partitions that the plan names.
        flush_seconds: How long a delivery may take before it counts as failed.
    """

    def __init__(self, bootstrap_servers: str, topic: str, flush_seconds: float = _FLUSH_SECONDS) -> None:
        self._servers = bootstrap_servers
        self._topic = topic
        self._flush_seconds = flush_seconds
        self._producers: dict[str, Producer] = {}
        self._refused: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What a failure leaves in the queues belongs to nobody: waiting for it would only hide the failure.
        for producer in self._producers.values():
            producer.purge()

    def send(self, wave: Sequence[Send]) -> Iterable[int]:
        """Send a wave in order, an hour of simulated time after the other.

        All records of an hour are acknowledged before the next hour begins, so that a reader who comes at
        any moment sees no more disorder than the plan has.

        Args:
            wave: Records in the order of sending.

        Yields:
            The number of records acknowledged since the last one.

        Raises:
            InfrastructureError: The broker refused a record, or did not acknowledge in time.
        """
        for _, hour in groupby(wave, key=lambda send: send.at_ms // HOUR):
            records = list(hour)
            for record in records:
                self._produce(record)
            self._flush()
            yield len(records)

    def _produce(self, send: Send) -> None:
        producer = self._producers.get(send.producer) or self._connect(send.producer)
        while True:
            try:
                producer.produce(
                    self._topic,
                    key=send.key,
                    value=send.value,
                    partition=send.partition,
                    timestamp=send.timestamp_ms,
                    headers={"producer": send.producer, "attempt": str(send.attempt)},
                    on_delivery=self._delivered,
                )
                return
            except BufferError:
                producer.poll(0.1)
            except KafkaException as refusal:
                raise InfrastructureError(self._failure(str(refusal))) from refusal

    def _connect(self, name: str) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "client.id": f"demo-{name}",
                "enable.idempotence": True,
                "linger.ms": 1,
                "log_level": 0,  # what matters comes as a failed delivery
                "delivery.timeout.ms": int(self._flush_seconds * 1000),
            },
        )
        self._producers[name] = producer
        return producer

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._refused.append(str(error))

    def _flush(self) -> None:
        # Serving all clients' queues in turn; each has at most one hour of one airport in it.
        unacknowledged = sum(producer.flush(self._flush_seconds) for producer in self._producers.values())
        if self._refused:
            raise InfrastructureError(
                self._failure(f"{len(self._refused)} refused, first: {self._refused[0]}")
            )
        if unacknowledged:
            raise InfrastructureError(
                self._failure(f"{unacknowledged} not acknowledged in {self._flush_seconds:g} s")
            )

    def _failure(self, found: str) -> str:
        return (
            f"sending to topic {self._topic} at {self._servers}: {found}; expected every record to be "
            "acknowledged; see the broker's log and run the demo again"
        )
