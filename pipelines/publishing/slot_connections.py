"""Kafka's clients of a slot: what takes it, and what looks how far it is."""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from pipelines.publishing.slots import transactional_id

# With librdkafka's way of starting over when no broker answers, transactional calls can wait for ever for a
# broker that is back (seen with 2.16.0): its threads for the old address never end.
_CLIENT: Final = {
    "metadata.recovery.strategy": "none",
    # Half of it is the pause between connections to brokers that a client has just heard of. With the default
    # of 100 a slot, which has three clients, waits for a tenth of a second.
    "reconnect.backoff.ms": 20,
    "log_level": 0,
}
LARGEST_SENT: Final = 100_000_000
"""How many bytes a record may have, unless `publish.options` says otherwise; a topic has its own limit."""

_PRODUCER: Final = {
    # The same keys go to the same partitions as with Java's producers.
    "partitioner": "murmur2_random",
    "compression.type": "lz4",
    "linger.ms": 20,
    # By default librdkafka refuses a record that the topic, by its own default, would take.
    "message.max.bytes": LARGEST_SENT,
    "queue.buffering.max.kbytes": 131_072,
    "queue.buffering.max.messages": 500_000,
}
_CONNECT_S: Final = 1.0
_CONSUMER: Final = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    # The broker reports the end of a partition only after this wait; the default is 500 ms.
    "fetch.wait.max.ms": 50,
}


@dataclass(frozen=True)
class Connection:
    """How slots of a sink are reached.

    Attributes:
        name: Of the sink: the group of its progress, and the beginning of its transactional ids.
        progress_topic: Whose partitions stand for slots in the group's offsets, and which keeps the same in
            records that do not expire, by the sink's name.
        client: Librdkafka's settings for reaching the cluster.
        rack_variable: The environment variable that names the rack, where the client is.
        timeout_s: How long the cluster may take for one answer.
        transaction_timeout_ms: How long a transaction may be open.
    """

    name: str
    progress_topic: str
    client: Mapping[str, Any] = field(repr=False)
    rack_variable: str | None
    timeout_s: float
    transaction_timeout_ms: int

    def take(self, slot: int) -> Producer:
        """Return a producer for a slot, which from now on nobody else can write to.

        Open transactions of those who had it before have ended when this returns.
        """
        producer = self.producer(slot)
        producer.init_transactions(self.timeout_s)
        return producer

    def producer(self, slot: int) -> Producer:
        """Return a producer for a slot, which is connected, and has not taken it."""
        producer = Producer(
            {
                **_PRODUCER,
                **self.settings(),
                "transactional.id": transactional_id(self.name, slot),
                "transaction.timeout.ms": self.transaction_timeout_ms,
            }
        )
        # A client looks for its coordinator every half second, or at once if it has a connection. The first
        # answer may come by the one to a bootstrap server, which then ends; the second by one that stays.
        for _ in range(2):
            producer.list_topics(self.progress_topic, timeout=self.timeout_s)
        return producer

    def clients(self, slot: int) -> "ConnectingClients":
        """Return the clients of one try to publish a slot, which is not taken yet."""
        return ConnectingClients(self, slot)

    def consumer(self, *, is_stable: bool = True) -> Consumer:
        """Return a consumer of the group that keeps the progress.

        Args:
            is_stable: Whether it waits for transactions that are under way when asked for the progress.
        """
        level = "read_committed" if is_stable else "read_uncommitted"
        return Consumer({**_CONSUMER, **self.settings(), "group.id": self.name, "isolation.level": level})

    def settings(self) -> dict[str, Any]:
        """Return librdkafka's settings for a client on this machine, with its rack if it is known."""
        rack = os.environ.get(self.rack_variable or "", "").strip()
        # What nobody has resolved is no rack.
        rack_setting = {"client.rack": rack} if rack and "${" not in rack and "$(" not in rack else {}
        return {**_CLIENT, **self.client, **rack_setting}


class ConnectingClients:
    """The clients of one try to publish a slot, as `SlotClients`: they connect at the same time.

    Each of them asks a server where its coordinator is, and connects to that: a third of what a slot of few
    rows takes, if it is done three times in a row.

    Args:
        connection: To the cluster.
        slot: The number of the slot.
    """

    def __init__(self, connection: Connection, slot: int) -> None:
        self._timeout_s = connection.timeout_s
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="connect")
        self._producer = self._pool.submit(connection.producer, slot)
        self._consumers = {is_stable: connection.consumer(is_stable=is_stable) for is_stable in (True, False)}
        places = [TopicPartition(connection.progress_topic, slot)]
        # What it finds is not used: an open transaction that the slot still has may hold it up.
        within_s = min(connection.timeout_s, _CONNECT_S)
        self._connected = self._pool.submit(self._consumers[True].committed, places, timeout=within_s)

    def take(self) -> Producer:
        """Return a producer for the slot, which from now on nobody else can write to."""
        producer = self._producer.result()
        producer.init_transactions(self._timeout_s)
        return producer

    def consumer(self, *, is_stable: bool) -> Consumer:
        """Return a consumer of the group that keeps the progress, which is closed with the clients."""
        if is_stable:
            wait([self._connected])
        return self._consumers[is_stable]

    def close(self) -> None:
        """Close the consumers; the producer stays."""
        # A client may not be closed while another thread asks it.
        self._pool.shutdown()
        for consumer in self._consumers.values():
            consumer.close()
