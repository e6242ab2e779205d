"""Flink SQL: the first row of each key, kept in RocksDB, to Parquet; one hop, no raw table."""

import json
import sys
from pathlib import Path
from typing import Any

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

COLUMNS = (
    "site STRING, device STRING, `sequence` BIGINT, measured_at TIMESTAMP_LTZ(3), status STRING,"
    " voltage DOUBLE, `current` DOUBLE, `power` DOUBLE, temperature DOUBLE, firmware STRING"
)
NAMES = "site, device, `sequence`, measured_at, status, voltage, `current`, `power`, temperature, firmware"

order: dict[str, Any] = json.loads(sys.stdin.readline())
folder = Path(order["folder"])
checkpoints = folder / "checkpoints"
checkpoints.mkdir(parents=True, exist_ok=True)

settings = {
    "pipeline.jars": ";".join(f"file://{jar}" for jar in order["jars"]),
    "parallelism.default": str(order["cores"]),
    "state.backend.type": "rocksdb",
    "execution.checkpointing.interval": "10 s",
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.dir": f"file://{checkpoints}",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    "taskmanager.memory.managed.size": "1g",
    "table.exec.state.ttl": "1 d",
    "table.local-time-zone": "UTC",
}
if newest := sorted(checkpoints.glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime):
    settings["execution.state-recovery.path"] = f"file://{newest[-1].parent}"
configuration = Configuration()
for name, value in settings.items():
    configuration.set_string(name, value)
table = TableEnvironment.create(
    EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
)
table.execute_sql(
    f"""CREATE TABLE events ({COLUMNS}, arrived AS PROCTIME()) WITH (
        'connector' = 'kafka', 'topic' = '{order["topic"]}',
        'properties.bootstrap.servers' = '{order["servers"]}', 'properties.group.id' = 'flink',
        'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',
        'format' = 'json', 'json.ignore-parse-errors' = 'true', 'json.timestamp-format.standard' = 'ISO-8601'
    )"""
)
table.execute_sql(
    f"""CREATE TABLE rows_once ({COLUMNS}) WITH (
        'connector' = 'filesystem', 'path' = 'file://{folder}/table', 'format' = 'parquet'
    )"""
)
FIRST = (
    "ROW_NUMBER() OVER (PARTITION BY site, device, `sequence` ORDER BY arrived) AS nth FROM events"
    " WHERE `sequence` IS NOT NULL"
)
insert = ("INSERT INTO rows_once", "SELECT", NAMES, "FROM (SELECT *,", FIRST, ") WHERE nth = 1")
table.execute_sql(" ".join(insert)).wait()
