"""Finds out from the output topic which slots of a micro-batch were published, where progress was lost."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.errors import SourceError
from pipelines.sinks.delta import small_rows
from pipelines.sinks.kafka_transactional import TransactionalSink, in_slots
from pipelines.sinks.slots import Mark

_ROWS: Final = 5
"""How many rows of a slot are looked for: a transaction has all or none, but compaction may take some."""
_SAMPLE: Final = "slot int, key binary, value binary, headers array<struct<key: string, value: binary>>"
_CLOCKS_DIFFER: Final = timedelta(hours=1)
_AT_ONCE: Final = 10_000

_log = logging.getLogger(__name__)

Row = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def published_slots(
    rows: DataFrame, sink: TransactionalSink, done: Mark, slots: Collection[int], begun_ms: int
) -> set[int]:
    """Which slots of a micro-batch are on the topic.

    Args:
        rows: the micro-batch, as it was tried before.
        sink: where it went.
        done: what progress would say.
        slots: those of which nobody knows.
        begun_ms: when the micro-batch was planned, in milliseconds since 1970.

    Raises:
        SourceError: the topic does not go back as far.
        KafkaException: the cluster does not answer, or refuses.
    """
    placed = in_slots(rows, sink, done.partitions)
    if "headers" not in placed.columns:
        placed = placed.withColumn("headers", F.lit(None).cast("array<struct<key: string, value: binary>>"))
    sample = placed.select("key", "value", "headers").mapInArrow(_first_rows, _SAMPLE)
    wanted: dict[Row, int] = {}
    for row in small_rows(sample.where(F.col("slot").isin(*slots))):
        headers = tuple((pair["key"], pair["value"]) for pair in row["headers"] or ())
        wanted[_known_by(sink, row["key"], row["value"], headers)] = row["slot"]
    found = _found(sink, wanted, begun_ms - _CLOCKS_DIFFER // timedelta(milliseconds=1))
    _log.warning(
        "%s: progress of slots %s was lost in micro-batch %d; the topic has rows of %s, so these are done",
        *(sink.name, sorted(slots), done.batch, sorted(found) or "none of them"),
    )
    return found


def _known_by(
    sink: TransactionalSink,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> Row:
    return (
        key if "key" in sink.identity else None,
        value if "value" in sink.identity else None,
        tuple(headers) if "headers" in sink.identity else (),
    )


def _first_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("_first_rows is for tasks of Spark")
    left = _ROWS
    for batch in batches:
        first = batch.slice(0, left)
        left -= first.num_rows
        slot = pa.array([context.partitionId()] * first.num_rows, pa.int32())
        yield pa.RecordBatch.from_arrays(
            [slot, *(first.column(name) for name in ("key", "value", "headers"))],
            names=["slot", "key", "value", "headers"],
        )


def _found(sink: TransactionalSink, wanted: Mapping[Row, int], since_ms: int) -> set[int]:
    """The slots of rows that are on the topic, among records sent since a time."""
    timeout_s, found = sink.connection.timeout_s, set[int]()
    consumer = sink.connection.consumer()
    try:
        numbers = consumer.list_topics(sink.topic, timeout=timeout_s).topics[sink.topic].partitions
        asked = [TopicPartition(sink.topic, number, since_ms) for number in numbers]
        left = set()
        for place in consumer.offsets_for_times(asked, timeout_s):
            low, high = consumer.get_watermark_offsets(TopicPartition(sink.topic, place.partition), timeout_s)
            if low and low in (high, place.offset):
                raise SourceError(
                    f"{sink.name}: the cluster has lost progress of a micro-batch that was under way, and"
                    f" partition {place.partition} of topic '{sink.topic}' begins later than it was sent, so"
                    " nobody can find out whether it was published. Ask those who read the topic, and say it:"
                    " oncelake publish reset --to checkpoint --in-flight published|unpublished"
                )
            if 0 <= place.offset < high:
                left.add(place.partition)
                consumer.incremental_assign([place])
        while left and found != {*wanted.values()}:
            for message in consumer.consume(_AT_ONCE, 1.0):
                found |= _slot_of(sink, message, wanted, left)
    finally:
        consumer.close()
    return found


def _slot_of(sink: TransactionalSink, message: Any, wanted: Mapping[Row, int], left: set[int]) -> set[int]:
    if (error := message.error()) is not None:
        if error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        left.discard(message.partition())
        return set()
    row = _known_by(sink, message.key(), message.value(), message.headers() or ())
    return {wanted[row]} if row in wanted else set()
