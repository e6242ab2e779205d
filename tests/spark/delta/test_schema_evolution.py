"""A contract grows while the stream lives: old and new producers mixed, a restart in between."""

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    FloatType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pipelines.contracts.contract import DataContract
from pipelines.contracts.rules import RowRule
from pipelines.delta.event_tables import ensure_batch, ensure_speed
from pipelines.delta.io import read
from pipelines.delta.table_properties import CERTIFIED, set_table_property
from pipelines.delta.tables import ensure_table, shape
from pipelines.errors import ConfigError
from pipelines.fault_points import Point, armed
from pipelines.nightly.verdicts import NightResult
from pipelines.steps.serving import read_serving
from pipelines.steps.speed import SpeedCounts
from tests.support.certified_days import certify
from tests.support.lake_copies import lake_in
from tests.support.lakes import EPOCH, Lake, Record
from tests.support.nights import ONE, run, stream
from tests.support.orders import order


def of(number: str, **changes: Any) -> bytes:
    return order(**{"order": {"id": number}, "note": "n", "weight": 0.5, **changes})


def old_contract(nested: DataContract) -> DataContract:
    more = [StructField("weight", FloatType()), StructField("note", StringType(), nullable=False)]
    return replace(nested, version="1.0.0", schema=StructType([*nested.schema, *more]))


def new_contract(old: DataContract) -> DataContract:
    """The same with more columns, more parts within columns, wider types, and less that is required."""
    order_type = old.schema["order"].dataType
    item = StructType([StructField("sku", StringType(), nullable=False), StructField("count", LongType())])
    wider = {
        "order": StructType([*order_type, StructField("shop", StringType())]),  # type: ignore[misc]
        "items": ArrayType(item, containsNull=False),
        "weight": DoubleType(),
    }
    fields = [
        StructField(f.name, wider.get(f.name, f.dataType), f.nullable or f.name == "note") for f in old.schema
    ]
    rules = (*old.row_rules, RowRule("gate", "pattern", "^[A-Z]"))
    schema = StructType([*fields, StructField("gate", StringType())])
    return replace(old, version="1.1.0", schema=schema, row_rules=rules)


@dataclass(frozen=True)
class History:
    """What became of a lake under two contracts, the second of which is the first one grown.

    Attributes:
        streams: the counts of the stream under each contract.
        night: what the night said under the second, of a day that was certified under the first.
        served: the ids, shops, counts of items and gates that readers had: when the day was certified, after
            the second stream, after the night.
        speed: the speed layer at the end.
    """

    streams: tuple[SpeedCounts, SpeedCounts]
    night: NightResult
    served: tuple[set[Any], set[Any], set[Any]]
    speed: DataFrame


def served(lake: Lake) -> set[Any]:
    known = read_serving(lake.pipeline).columns
    gate = "gate" if "gate" in known else "NULL"
    shop = "order.shop" if gate == "gate" else "NULL"
    rows = read_serving(lake.pipeline).selectExpr("order.id", shop, "items[0].count", gate)
    return {tuple(row) for row in rows.collect()}


@pytest.fixture(scope="module")
def history(spark: SparkSession, nested: DataContract, tmp_path_factory: pytest.TempPathFactory) -> History:
    old = lake_in(tmp_path_factory.mktemp("evolution"), spark, old_contract(nested))
    # A new producer is there before the contract: what it says more is kept in bronze.
    old.ingest(
        [
            *(of("a-1"), of("a-1", tags={"c": "3"}), of("ä-2 😀"), of("g-2", gate="A2")),
            *(b"broken", of("e-1", items=[])),
        ]
    )
    first = stream(old).counts
    certify(old, ONE)
    at_first = served(old)
    new = old.variant(contract=new_contract(old.contract))
    inside = {"order": {"id": "b-1", "shop": "s"}, "items": [{"sku": "x", "count": 2**40}]}
    new.ingest(
        [of("g-3"), of("g-4", gate="B4"), of("g-2", gate="A2"), of("g-5", gate="?"), of("b-1", **inside)]
    )
    later = of("n-9", note=None, placed_at="2013-01-03T10:00:00Z")
    new.ingest([Record(later, sent=EPOCH + timedelta(days=2))])
    second = stream(new).counts
    between = served(new)
    night = run(new, ONE)
    all_served = (at_first, between, served(new))
    return History((first, second), night, all_served, new.table("speed"))


@pytest.mark.thorough
def test_a_key_that_lies_in_an_object_deduplicates_in_stream_and_night(history: History) -> None:
    counts = history.streams[0]
    assert (counts.rows, counts.duplicates, counts.quarantined) == (3, 1, 2)
    assert history.night.days == {ONE: "certified"}
    counted = history.night.counts
    assert (counted.records, counted.rows, counted.conflicts) == (8, 6, 1)
    assert {number for number, *_ in history.served[0]} == {"a-1", "ä-2 😀", "g-2"}


def test_a_record_that_breaks_a_condition_is_no_row_of_the_night_either(history: History) -> None:
    # Two of the first contract, and one of a rule that the second has more.
    assert history.night.counts.quarantined == 3


def test_old_and_new_producers_share_a_topic_through_an_evolution(history: History) -> None:
    counts = history.streams[1]
    assert (counts.rows, counts.duplicates, counts.quarantined) == (4, 1, 1)
    rows = {row["id"]: row["gate"] for row in history.speed.select("order.id", "gate").collect()}
    none = dict.fromkeys(("a-1", "ä-2 😀", "g-2", "g-3", "b-1", "n-9"))
    assert rows == {**none, "g-4": "B4"}
    assert history.speed.schema["weight"].dataType == DoubleType()

    assert history.night.days == {ONE: "certified"}
    assert {number: gate for number, *_, gate in history.served[2]} == {**none, "g-2": "A2", "g-4": "B4"}


def test_a_part_that_is_added_inside_is_added_to_the_tables(history: History) -> None:
    certified = {("a-1", None, 2), ("ä-2 😀", None, 2), ("g-2", None, 2)}
    uncertified = {("n-9", None, 2)}
    assert {parts[:3] for parts in history.served[1]} == certified | uncertified
    added = {("b-1", "s", 2**40), ("g-3", None, 2), ("g-4", None, 2)}
    assert {parts[:3] for parts in history.served[2]} == certified | uncertified | added


def test_of_two_that_add_the_same_columns_at_once_both_go_on(spark: SparkSession, tmp_path: Path) -> None:
    table, columns = str(tmp_path / "table"), list[list[str]]()
    ensure_table(spark, table, shape("a int"))

    def the_other_first() -> None:
        columns.append(read(spark, table).columns)
        if len(columns) == 1:
            ensure_table(spark, table, shape("a int, b string"))

    with armed(Point.COLUMNS_COMPARED, the_other_first):
        ensure_table(spark, table, shape("a int, b string"))
    # On its second try the first finds equal columns and compares nothing.
    assert columns == [["a"], ["a"]]
    assert read(spark, table).columns == ["a", "b"]


def test_a_changed_value_format_is_refused_where_rows_are_of_another(lake: Lake) -> None:
    ensure_speed(lake.pipeline)
    ensure_batch(lake.pipeline)
    set_table_property(lake.spark, lake.config.table("batch"), CERTIFIED, "1")
    other = replace(lake.pipeline, contract=replace(lake.contract, value_format="json_schema"))
    for ensure in (ensure_speed, ensure_batch):
        with pytest.raises(ConfigError, match="value format: found 'json', expected 'json_schema'"):
            ensure(other)
