"""What a consumer of Kafka reads, with nothing of Oncelake in it."""

from dataclasses import dataclass
from typing import Any, Literal

from confluent_kafka import Consumer, KafkaError, TopicPartition


@dataclass(frozen=True)
class Message:
    """A record as a consumer gets it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]


def messages_of(
    servers: str, topic: str, level: Literal["read_committed", "read_uncommitted"] = "read_committed"
) -> list[Message]:
    """All records of a topic that a reader may see now.

    Args:
        servers: of the cluster.
        topic: the topic.
        level: the reader's `isolation.level`.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "never-committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": level,
            "log_level": 0,
        }
    )
    found: list[Message] = []
    try:
        left = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in left])
        while left:
            # Its stubs allow None wherever a record that is none has nothing.
            message: Any = consumer.poll(30)
            assert message is not None, f"no answer for partitions {left} of {topic}"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(message.partition())
                continue
            found.append(
                Message(
                    message.partition(),
                    message.offset(),
                    message.key(),
                    message.value(),
                    dict(message.headers() or []),
                )
            )
    finally:
        consumer.close()
    return found


def is_open(servers: str, topic: str) -> bool:
    """Whether readers of committed records have to wait for a transaction."""
    ends = []
    for level in ("read_committed", "read_uncommitted"):
        settings = {"bootstrap.servers": servers, "group.id": "asks", "isolation.level": level}
        consumer = Consumer(settings)
        numbers = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        places = [TopicPartition(topic, number) for number in numbers]
        ends.append([consumer.get_watermark_offsets(place, 30)[1] for place in places])
        consumer.close()
    return ends[0] != ends[1]
