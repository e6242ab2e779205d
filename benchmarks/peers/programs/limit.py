"""About the least that it can cost: librdkafka, polars and delta-rs in one process, the keys in memory.

The offsets are in the commit that has their rows, so a restart goes on there; it reads all keys again.
"""

import io
import json
import sys
from pathlib import Path
from typing import Any

import polars as pl
from confluent_kafka import Consumer, TopicPartition
from deltalake import CommitProperties, DeltaTable, write_deltalake

EVENT = {
    "site": pl.String,
    "device": pl.String,
    "sequence": pl.Int64,
    "measured_at": pl.String,
    "status": pl.String,
    "voltage": pl.Float64,
    "current": pl.Float64,
    "power": pl.Float64,
    "temperature": pl.Float64,
    "firmware": pl.String,
}
KEY = ["site", "device", "sequence"]

order: dict[str, Any] = json.loads(sys.stdin.readline())
path = f"{order['folder']}/table"


def stored() -> tuple[pl.DataFrame, dict[int, int]]:
    """Return the keys that the table has, and the next offset by partition."""
    if not DeltaTable.is_deltatable(path):
        return pl.DataFrame(schema={column: EVENT[column] for column in KEY}), {}
    table = DeltaTable(path)
    offsets = json.loads(table.history(1)[0]["offsets"])
    keys = pl.from_arrow(table.to_pyarrow_table(columns=KEY))
    return pl.DataFrame(keys), {int(partition): offset for partition, offset in offsets.items()}


def parsed(values: list[bytes]) -> pl.DataFrame:
    """Return the events among some values."""
    good = [value for value in values if value.endswith(b"}")]
    rows = pl.read_ndjson(io.BytesIO(b"\n".join(good)), schema=EVENT, ignore_errors=True)
    return rows.with_columns(pl.col("measured_at").str.to_datetime("%Y-%m-%dT%H:%M:%S%.fZ", time_zone="UTC"))


consumer = Consumer(
    {
        "bootstrap.servers": order["servers"],
        "group.id": "limit",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": False,
        "queued.min.messages": 200_000,
    }
)
seen, position = stored()
partitions = consumer.list_topics(order["topic"]).topics[order["topic"]].partitions
ends = {
    number: consumer.get_watermark_offsets(TopicPartition(order["topic"], number))[1] for number in partitions
}
position = {number: position.get(number, 0) for number in partitions}
consumer.assign([TopicPartition(order["topic"], number, offset) for number, offset in position.items()])
Path(path).parent.mkdir(parents=True, exist_ok=True)
while position != ends:
    values: list[bytes] = []
    while len(values) < order["batch_records"] and position != ends:
        for message in consumer.consume(10_000, timeout=0.5):
            values.append(message.value() or b"")
            position[message.partition() or 0] = (message.offset() or 0) + 1
    rows = parsed(values).unique(KEY, keep="first", maintain_order=True).join(seen, on=KEY, how="anti")
    seen = pl.concat([seen, rows.select(KEY)])
    properties = CommitProperties(custom_metadata={"offsets": json.dumps(position)})
    write_deltalake(path, rows.to_arrow(), mode="append", commit_properties=properties)
consumer.close()
