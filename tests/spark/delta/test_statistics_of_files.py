"""Delta keeps minimum and maximum of the columns by which rows are looked up, and of no others."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.contracts.contract import DataContract
from pipelines.delta.table_properties import statistics_of
from pipelines.delta.tables import shape
from tests.support.lakes import Lake
from tests.support.nights import on, stream


def leaves(value: Any, path: str = "") -> set[str]:
    if isinstance(value, dict):
        return {
            leaf for key, part in value.items() for leaf in leaves(part, f"{path}.{key}" if path else key)
        }
    return {path}


def statistics(table: str) -> dict[str, set[str]]:
    """The columns of each kind of statistics, over all files of a table."""
    found: dict[str, set[str]] = {}
    for commit in Path(table, "_delta_log").glob("*.json"):
        for action in map(json.loads, commit.read_text().splitlines()):
            if "add" in action:
                for kind, columns in json.loads(action["add"]["stats"]).items():
                    found.setdefault(kind, set()).update(leaves(columns))
    return found


def test_bronze_and_speed_layer_have_those_of_what_is_looked_up(
    make_lake: Callable[..., Lake], contract: DataContract
) -> None:
    lake = make_lake()
    lake.ingest([on(1, 1), on(1, 2)])
    stream(lake)
    times = {"_kafka_timestamp", "_ingested_at"}
    coordinates = {"_topic", "_partition", "_offset", *times}
    bronze = statistics(lake.config.table("bronze"))
    assert bronze["minValues"] == bronze["maxValues"] == coordinates
    # Emptied records are found by it.
    assert bronze["nullCount"] == {*coordinates, "_forgotten.at"}
    speed = statistics(lake.config.table("speed"))
    assert speed["minValues"] == {*contract.key, contract.event_time, *coordinates}


def test_a_type_without_an_order_is_left_out_and_any_name_is_quoted() -> None:
    schema = shape("`a b` int, yes boolean, raw binary, many array<int>, o struct<`c,d`: string>, day date")
    paths = ["a b", "yes", "raw", "many", "o", "o.c,d", "day", "a b"]
    assert statistics_of(schema, paths) == {"delta.dataSkippingStatsColumns": "`a b`,`o`.`c,d`,`day`"}


def test_a_key_within_an_object_has_statistics(make_lake: Callable[..., Lake], nested: DataContract) -> None:
    lake = make_lake(contract=nested)
    stream(lake)
    table = lake.config.table("speed")
    kept = lake.spark.sql(f"SHOW TBLPROPERTIES delta.`{table}`").where("key LIKE '%StatsColumns'").first()
    assert kept is not None
    assert {path.replace("`", "") for path in kept["value"].split(",")} >= {*nested.key, nested.event_time}
