"""Copies broken records to a Kafka topic, for those who watch topics and not tables."""

from typing import Final

from pyspark.sql import DataFrame

from pipelines.config.kafka import KafkaConfig
from pipelines.kafka.source import client_options

_PREFIX: Final = "oncelake."
_FOR_READERS: Final = "isolation.level"
# By default a producer refuses what is above 1 MiB, and has no memory for what is above 32 MiB. How large a
# record may be is the topic's to say; brokers take requests up to 100 MiB (`socket.request.max.bytes`).
_ANY_SIZE: Final = {"max.request.size": "100000000", "buffer.memory": "110000000"}
HEADERS_SIZE: Final = 2_048
"""What the headers of a copy add to its record at most, in bytes, if no name is very long."""
_HEADERS: Final = {
    "reason": "_reason",
    "column": "_column",
    "found": "_found",
    "contract_version": "_contract_version",
    "topic": "_topic",
    "partition": "CAST(_partition AS STRING)",
    "offset": "CAST(_offset AS STRING)",
    "timestamp": "CAST(unix_millis(_kafka_timestamp) AS STRING)",
}


def send_dead_letters(broken: DataFrame, kafka: KafkaConfig, topic: str) -> None:
    """Send broken records to a topic, whole, with the reason in headers whose names begin with `oncelake.`.

    A micro-batch that is done again is sent again: Spark's Kafka sink knows no transactions. The headers
    `oncelake.topic`, `oncelake.partition` and `oncelake.offset` tell which copies are the same.

    Args:
        broken: A frame made by `pipelines.records.decode.broken_of`.
        kafka: The cluster and the client's settings, those of the source.
        topic: The topic.
    """
    added = ", ".join(
        f"named_struct('key', '{_PREFIX}{name}', 'value', CAST({value} AS BINARY))"
        for name, value in _HEADERS.items()
    )
    # A header of the record's own may be null; one of ours is left out where it has nothing to say.
    ours = f"filter(array({added}), h -> h.value IS NOT NULL)"
    # A record's own header with our prefix would pass for ours, so it is dropped.
    own = f"filter(headers, h -> NOT startswith(h.key, '{_PREFIX}'))"
    headers = f"CASE WHEN headers IS NULL THEN {ours} ELSE concat({own}, {ours}) END AS headers"
    client = {**_ANY_SIZE, **client_options(kafka)}
    options = {f"kafka.{key}": value for key, value in client.items() if key != _FOR_READERS}
    rows = broken.selectExpr("key", "value", headers)
    rows.write.format("kafka").options(**options).option("topic", topic).save()
