"""The speed layer's events to Kafka: by Spark's own sink, at least once, and by ours, exactly once."""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, DataFrameReader, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamReader

from benchmarks.events import PARTITIONS
from benchmarks.given import Work, WrongResult
from pipelines.config.publish import PublishConfig
from pipelines.publishing.headers import Header
from pipelines.publishing.kafka_records import messages
from pipelines.steps.publish import publish

_BY_SPARK: Final = "sent-by-spark"
_BY_ROWS: Final = "sent-by-rows"
_BY_US: Final = "published"


def _of(work: Work, name: str) -> str:
    """Return a name that no other lake has: repetitions share a cluster."""
    return f"{name}-{hashlib.sha256(work.pipeline.config.root.encode()).hexdigest()[:8]}"


def make_topics(work: Work) -> None:
    """Make three empty topics, partitioned as the topic that is read, on a cluster with transactions."""
    client = AdminClient({"bootstrap.servers": work.pipeline.config.kafka.bootstrap_servers})
    known = client.list_topics(timeout=30).topics
    topics = [_of(work, name) for name in (_BY_SPARK, _BY_ROWS, _BY_US)]
    fresh = [NewTopic(topic, PARTITIONS, 1) for topic in topics if topic not in known]
    for made in client.create_topics(fresh).values() if fresh else ():
        made.result(30)
    # The first transaction of a cluster makes its log.
    producer = Producer(
        {"bootstrap.servers": work.pipeline.config.kafka.bootstrap_servers, "transactional.id": "first"}
    )
    producer.init_transactions(60)


def send_by_spark(work: Work) -> None:
    """Send the messages as many would: by Spark's sink, with its defaults but for compression."""
    rows = _messages(work, work.pipeline.spark.readStream)
    writer = rows.writeStream.format("kafka").option("topic", _of(work, _BY_SPARK)).trigger(availableNow=True)
    writer = writer.option("kafka.bootstrap.servers", work.pipeline.config.kafka.bootstrap_servers)
    writer = writer.option("kafka.compression.type", "lz4")
    writer.option(
        "checkpointLocation", f"{work.pipeline.config.root}/sink_checkpoint"
    ).start().awaitTermination()


def _messages(work: Work, reader: DataFrameReader | DataStreamReader) -> DataFrame:
    """Return the messages of the speed layer as Spark's own sink takes them."""
    rows = messages(reader.format("delta").load(work.pipeline.table("speed")), work.pipeline.contract)
    names = rows.select("headers.*").columns
    values = {name: F.col("headers").getField(name).cast("string").cast("binary") for name in names}
    pairs = (F.struct(F.lit(name).alias("key"), value.alias("value")) for name, value in values.items())
    return rows.withColumn("headers", F.array(*pairs))


def send_by_rows(work: Work) -> None:
    """Send the same messages by `rdd.foreachPartition`, with a producer for each task and no transactions."""
    rows = _messages(work, work.pipeline.spark.read)
    rows.rdd.foreachPartition(
        partial(_send, work.pipeline.config.kafka.bootstrap_servers, _of(work, _BY_ROWS))
    )


def _send(servers: str, topic: str, rows: Iterable[Row]) -> None:
    settings: dict[str, Any] = {"bootstrap.servers": servers, "compression.type": "lz4", "linger.ms": 20}
    producer = Producer({**settings, "enable.idempotence": True, "queue.buffering.max.messages": 500_000})
    for row in rows:
        headers: list[Header] = [(header["key"], bytes(header["value"])) for header in row["headers"]]
        while True:
            try:
                producer.produce(topic, bytes(row["value"]), bytes(row["key"]), headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()


def publish_once(work: Work) -> None:
    """`publish_stream --once`."""
    asked = PublishConfig(topic=_of(work, _BY_US))
    config = work.pipeline.config.model_copy(update={"publish": asked, "env": _of(work, "benchmark")})
    publish(replace(work.pipeline, config=config), once=True)


def check_sent(work: Work) -> None:
    """Check that Spark's sink has sent each event."""
    _check(work, _of(work, _BY_SPARK))


def check_sent_by_rows(work: Work) -> None:
    """Check that the tasks have sent each event."""
    _check(work, _of(work, _BY_ROWS))


def check_published(work: Work) -> None:
    """Check that we have published each event."""
    _check(work, _of(work, _BY_US))


def _check(work: Work, topic: str) -> None:
    servers = work.pipeline.config.kafka.bootstrap_servers
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "check", "enable.auto.commit": False}
        | {"enable.partition.eof": True, "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    left, keys, records = PARTITIONS, set(), 0
    while left:
        for message in consumer.consume(10_000, 5):
            error = message.error()
            if error is None:
                records += 1
                keys.add(message.key())
            elif error.code() == KafkaError._PARTITION_EOF:
                left -= 1
            else:
                raise WrongResult(f"{topic}: {error}")
    consumer.close()
    if (records, len(keys)) != (work.truth.unique, work.truth.unique):
        raise WrongResult(
            f"{topic}: found {records} records of {len(keys)} keys, expected {work.truth.unique}"
        )
