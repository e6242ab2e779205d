"""Quix Streams: a stateful filter in RocksDB, and a sink that appends to Delta by delta-rs."""

import json
import sys
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from quixstreams import Application
from quixstreams.sinks import BatchingSink, SinkBatch

SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("site", "device")),
        ("sequence", pa.int64()),
        ("measured_at", pa.timestamp("us", "UTC")),
        ("status", pa.string()),
        *((name, pa.float64()) for name in ("voltage", "current", "power", "temperature")),
        ("firmware", pa.string()),
    ]
)

order: dict[str, Any] = json.loads(sys.stdin.readline())
folder = Path(order["folder"])
folder.mkdir(parents=True, exist_ok=True)


class DeltaSink(BatchingSink):  # type: ignore[misc] # its types are in its own environment
    """Appends the events of a checkpoint to a Delta table."""

    def write(self, batch: SinkBatch) -> None:
        """Append a batch."""
        columns: dict[str, list[Any]] = defaultdict(list)
        for item in batch:
            event = item.value
            for name in SCHEMA.names:
                columns[name].append(event.get(name))
        columns["measured_at"] = [datetime.fromisoformat(text) for text in columns["measured_at"]]
        write_deltalake(str(folder / "table"), pa.table(columns, schema=SCHEMA), mode="append")


def is_new(event: dict[str, Any], state: Any) -> bool:
    """Return whether an event was not seen before; its message's key is its device."""
    key = f"{event['site']}/{event['sequence']}"
    if state.exists(key):
        return False
    state.set(key, 1)
    return True


app = Application(
    broker_address=order["servers"],
    consumer_group=order["group"],
    auto_offset_reset="earliest",
    state_dir=folder / "state",
    processing_guarantee="exactly-once",
    commit_interval=10.0,
    commit_every=order["batch_records"],
    on_consumer_error=lambda error, message, logger: True,
    on_processing_error=lambda error, row, logger: True,
    loglevel="WARNING",
)
events = app.dataframe(app.topic(order["topic"], value_deserializer="json"))
events.filter(is_new, stateful=True).sink(DeltaSink())
# It cannot be told to stop at the end of the topic, but when nothing has come for some seconds.
app.run(timeout=15.0)
