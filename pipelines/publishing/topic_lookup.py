"""Finds out from the output topic which slots of a micro-batch were published, where progress was lost."""

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Final

import pyarrow as pa
from confluent_kafka import TopicPartition
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.delta.io import small_rows
from pipelines.errors import SourceError
from pipelines.publishing.headers import LISTED, listed
from pipelines.publishing.partition_records import Stalled, records_until
from pipelines.publishing.slots import SlotProgress
from pipelines.publishing.transactional_sink import TransactionalSink, in_slots

_ROWS: Final = 5
"""How many rows of a slot are looked for: a transaction has all or none of them."""
_SAMPLE: Final = f"slot int, key binary, value binary, headers {LISTED}"
_CLOCKS_DIFFER: Final = timedelta(hours=1)
_LOST: Final = "the cluster has lost the progress of a micro-batch that was begun"

_log = logging.getLogger(__name__)

Row = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def published_slots(
    rows: DataFrame, sink: TransactionalSink, done: SlotProgress, slots: Collection[int], begun_ms: int
) -> set[int]:
    """Return which slots of a micro-batch are on the topic.

    Args:
        rows: The micro-batch, as it was tried before.
        sink: Where it went.
        done: What progress would say.
        slots: Those of which nobody knows.
        begun_ms: When the micro-batch was planned, in milliseconds since 1970.

    Raises:
        SourceError: The topic does not show it.
        KafkaException: The cluster does not answer, or refuses.
    """
    placed = in_slots(rows, sink, done.partitions)
    headers = listed(placed) if "headers" in placed.columns else F.lit(None).cast(LISTED)
    sample = placed.select("key", "value", headers.alias("headers")).mapInArrow(_first_rows, _SAMPLE)
    slot_by_row: dict[Row, int] = {}
    for row in small_rows(sample.where(F.col("slot").isin(*slots))):
        pairs = tuple((pair["key"], pair["value"]) for pair in row["headers"] or ())
        slot_by_row[_known_by(sink, row["key"], row["value"], pairs)] = row["slot"]
    published_rows = _published_rows(
        sink, slot_by_row, begun_ms - _CLOCKS_DIFFER // timedelta(milliseconds=1)
    )
    published = slots_with_all(sink, slot_by_row, published_rows)
    _log.warning(
        "%s: progress of slots %s was lost in micro-batch %d; the topic has rows of %s, so these are done",
        *(sink.name, sorted(slots), done.batch, sorted(published) or "none of them"),
    )
    return published


def slots_with_all(
    sink: TransactionalSink, slot_by_row: Mapping[Row, int], published_rows: Collection[Row]
) -> set[int]:
    """Return the slots of which all rows that were looked for were found.

    Args:
        sink: Where rows went.
        slot_by_row: The slot of each row that was looked for.
        published_rows: Those of them that are on the topic.

    Raises:
        SourceError: Some rows of a slot were found, and others were not.
    """
    expected, counts = Counter(slot_by_row.values()), Counter(slot_by_row[row] for row in published_rows)
    for slot, count in sorted(counts.items()):
        if count < expected[slot]:
            raise SourceError(
                f"{sink.name}: {_LOST}, and topic '{sink.topic}' has {count} of the {expected[slot]} rows by"
                f" which slot {slot} was searched for (was it compacted since, or are there older copies?),"
                f" so whether it was published is unknown. {_ask(sink)}"
            )
    return {*counts}


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


def _published_rows(sink: TransactionalSink, slot_by_row: Mapping[Row, int], since_ms: int) -> set[Row]:
    """Return the rows that are on the topic, among records sent since a time."""
    begin, ends = _between(sink, since_ms)
    client_timeout_s, rows = sink.connection.transaction_timeout_ms / 1000, set[Row]()
    if not slot_by_row:
        return rows
    with closing(sink.connection.consumer()) as consumer:
        try:
            for record in records_until(consumer, begin, ends, client_timeout_s):
                row = _known_by(sink, record.key(), record.value(), record.headers() or ())
                rows |= {row} & slot_by_row.keys()
                if rows == slot_by_row.keys():
                    break
        except Stalled as stalled:
            raise SourceError(
                f"{sink.name}: {_LOST}, and records of partition {stalled.partition} of topic '{sink.topic}'"
                " cannot be read: an open transaction hides them (kafka-transactions.sh find-hanging),"
                " or the partition has no leader. Start again when that has ended"
            ) from None
    return rows


def _between(sink: TransactionalSink, since_ms: int) -> tuple[list[TopicPartition], dict[int, int]]:
    """Return where to read since a time, and where each partition ends, behind all that is under way."""
    timeout_s, begin, ends = sink.connection.timeout_s, list[TopicPartition](), dict[int, int]()
    consumer = sink.connection.consumer(is_stable=False)
    try:
        numbers = consumer.list_topics(sink.topic, timeout=timeout_s).topics[sink.topic].partitions
        partitions = [TopicPartition(sink.topic, number, since_ms) for number in numbers]
        for place in consumer.offsets_for_times(partitions, timeout_s):
            low, high = consumer.get_watermark_offsets(TopicPartition(sink.topic, place.partition), timeout_s)
            if low and low in (high, place.offset):
                raise SourceError(
                    f"{sink.name}: {_LOST}, and partition {place.partition} of topic '{sink.topic}' begins"
                    f" later than it was sent, so whether it was published is unknown. {_ask(sink)}"
                )
            if 0 <= place.offset < high:
                begin.append(place)
                ends[place.partition] = high
    finally:
        consumer.close()
    return begin, ends


def _ask(sink: TransactionalSink) -> str:
    say = sink.command("publish reset", "--to checkpoint --in-flight published|unpublished")
    return f"Ask the readers of the topic, then declare the answer: {say}"
