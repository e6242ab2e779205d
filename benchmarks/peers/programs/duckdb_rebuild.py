"""DuckDB: the day from the Parquet files of bronze, each event once, sorted by key; nothing is audited."""

import json
import sys
from typing import Any

import duckdb

EVENT = {
    "site": "VARCHAR",
    "device": "VARCHAR",
    "sequence": "BIGINT",
    "measured_at": "TIMESTAMPTZ",
    "status": "VARCHAR",
    "voltage": "DOUBLE",
    "current": "DOUBLE",
    "power": "DOUBLE",
    "temperature": "DOUBLE",
    "firmware": "VARCHAR",
}
DECODED = f"""
    SELECT json_transform(decode(value), '{json.dumps(EVENT)}') AS event, _kafka_timestamp, _offset
    FROM bronze WHERE json_valid(decode(value))
"""  # noqa: S608 - the names of columns alone
EVENTS = "SELECT UNNEST(event), _kafka_timestamp, _offset FROM decoded"
FIRST = """
    SELECT *, ROW_NUMBER() OVER (
        PARTITION BY site, device, sequence ORDER BY _kafka_timestamp, _offset
    ) AS nth FROM events WHERE sequence >= 0 AND voltage >= 0
"""

order: dict[str, Any] = json.loads(sys.stdin.readline())
connection = duckdb.connect()
for name, value in {
    "threads": order["cores"],
    "memory_limit": "8GB",
    "temp_directory": order["folder"],
}.items():
    connection.execute(f"SET {name} = '{value}'")
connection.read_parquet(order["files"]).create_view("bronze")
connection.sql(DECODED).create_view("decoded")
connection.sql(EVENTS).create_view("events")
connection.sql(FIRST).create_view("numbered")
day = connection.view("numbered")
day.filter("nth = 1").order("site, device, sequence").write_parquet(f"{order['folder']}/day.parquet")
