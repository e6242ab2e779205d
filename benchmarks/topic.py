"""Fills the topic of a benchmark as fast as one producer can."""

from confluent_kafka import Producer

from benchmarks.events import Truth, add_up, chunks
from pipelines.errors import InfrastructureError

_SECONDS = 60.0


def fill_topic(bootstrap_servers: str, topic: str, records: int, seed: int) -> Truth:
    """Send generated records.

    Args:
        bootstrap_servers: where the cluster is.
        topic: an empty topic of `benchmarks.events.PARTITIONS` partitions.
        records: how many.
        seed: the same seed gives the same records.

    Returns:
        The truth of what the topic holds.

    Raises:
        InfrastructureError: the cluster did not take all of it.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "acks": "1",
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
            "log_level": 3,  # not the farewell of its background thread
        }
    )
    truth: Truth | None = None
    for chunk in chunks(records, seed):
        for key, value, partition, sent in zip(
            chunk.keys, chunk.values, chunk.partitions, chunk.sent_ms, strict=True
        ):
            producer.produce(topic, value, key, partition, timestamp=sent)
        # The queue never overflows: it has room for several chunks and is emptied between them.
        if left := producer.flush(_SECONDS):
            raise InfrastructureError(
                f"topic {topic} at {bootstrap_servers}: {left:,} records not taken within {_SECONDS:.0f} s"
            )
        truth = add_up(truth, chunk)
    if truth is None:
        raise InfrastructureError("there is nothing to measure without records")
    return truth
