"""A rebuild keeps the copies that Spark's own windows choose, whatever the key is made of."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.contracts.custom_properties import Policy
from pipelines.contracts.event_days import days_of
from pipelines.delta.tables import shape, small_frame
from pipelines.records.dedup import UNDECIDED, clustered, winners_on_known_days
from pipelines.records.kept_copies import kept_copies

FIRST = date(2013, 1, 1)
# Day 9 is not among them, so that its copies are undecided; with a horizon of 3 those of day 5 are as well.
KNOWN = days_of(FIRST - timedelta(days=5), FIRST + timedelta(days=7))
NUMBERS = (0, 1, 2, 4, 5, 9)
ZERO = datetime(2013, 1, 1, tzinfo=UTC)
KEYS: dict[str, list[Any]] = {
    "text string": ["", "a", "a\0", "ä", "a" * 40, None],
    "number double": [0.0, -0.0, float("nan"), 1.5, float("-inf"), None],
    "amount decimal(38,18)": ["0", "1", "1.000000000000000001", "-1", None],
    "flag boolean": [True, False, None],
    "moment timestamp": [ZERO, ZERO + timedelta(microseconds=1), None],
}


def copies_of(spark: SparkSession, kind: str) -> DataFrame:
    """Three copies of each value on some days; some were sent in one moment, and some have no rank."""
    name, value_type = kind.split()
    rows = [
        {
            "value": value,
            "rank": None if day == 4 and copy else (day * 7 + copy * 3 + index) % 5,
            "_event_date": FIRST + timedelta(days=day),
            "_kafka_timestamp": ZERO + timedelta(minutes=(day * 5 + copy * 11) % 13),
            "_topic": "t",
            "_partition": copy % 2,
            "_offset": 100 * index + 10 * day + copy,
        }
        for index, value in enumerate(KEYS[kind])
        for day in NUMBERS
        for copy in range(3)
    ]
    given = "string" if name == "amount" else value_type
    types = f"value {given}, rank int, _event_date date, _kafka_timestamp timestamp, _topic string"
    frame = small_frame(spark, rows, shape(f"{types}, _partition int, _offset bigint"))
    return frame.withColumn(name, F.col("value").cast(value_type)).drop("value")


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("policy", [Policy(), Policy("last"), Policy("highest", "rank")])
def test_kept_are_the_winners_and_the_undecided(
    spark: SparkSession, small_by_flight: DataContract, kind: str, policy: Policy
) -> None:
    contract = replace(small_by_flight, key=(kind.split(maxsplit=1)[0],), policy=policy)
    events = copies_of(spark, kind)
    for horizon in (0, 1, 3):
        expected = winners_on_known_days(events, contract, horizon, KNOWN).drop(UNDECIDED)
        # One partition has all keys next to each other; several have few keys each.
        records = 1 if horizon else 1_000_000
        rows = clustered(events, contract, records)
        kept = kept_copies(rows, contract, horizon, KNOWN)
        assert kept.schema == rows.schema
        offsets = sorted(row["_offset"] for row in kept.select("_offset").collect())
        assert offsets == sorted(row["_offset"] for row in expected.select("_offset").collect())
        values = len({row[0] for row in events.select(kind.split(maxsplit=1)[0]).distinct().collect()})
        each_day = len(NUMBERS) * values
        if horizon == 0:
            assert len(offsets) == each_day
        else:
            assert 0 < len(offsets) < each_day


def test_the_rows_of_a_partition_are_in_the_order_of_the_key(
    spark: SparkSession, small_by_flight: DataContract
) -> None:
    contract = replace(small_by_flight, key=("text",))
    events = clustered(copies_of(spark, "text string"), contract, 1_000_000)
    kept = kept_copies(events, contract, 0, KNOWN).withColumn("task", F.spark_partition_id())
    rows = [(row["task"], row["text"] or "", row["_event_date"]) for row in kept.collect()]
    assert len({task for task, *_ in rows}) > 1
    assert rows == sorted(rows)
