"""Keys that stand more than once, and broken records that were replayed, held against plain Python."""

from collections import Counter
from datetime import date, timedelta
from random import Random

import pytest
from pyspark.sql import SparkSession

from pipelines.audit.recount import QuarantineFacts, doubled_keys, quarantine_facts
from pipelines.contracts.contract import DataContract
from pipelines.delta.tables import shape, small_frame

FIRST = date(2013, 1, 1)


@pytest.mark.parametrize("horizon", [0, 1, 2])
def test_rows_are_doubled_by_a_row_of_their_key_within_the_horizon(
    spark: SparkSession, contract: DataContract, horizon: int
) -> None:
    random = Random(horizon)  # noqa: S311 - nothing here is secret
    rows = [(random.randrange(40), FIRST + timedelta(days=random.randrange(7))) for _ in range(60)]
    of_row = [{**dict.fromkeys(contract.key_names, str(key)), "_event_date": day} for key, day in rows]
    columns = ", ".join([*(f"{name} string" for name in contract.key_names), "_event_date date"])
    expected = Counter(
        day
        for at, (key, day) in enumerate(rows)
        if any(
            other != at and key == other_key and abs((day - other_day).days) <= horizon
            for other, (other_key, other_day) in enumerate(rows)
        )
    )
    assert expected
    assert doubled_keys(small_frame(spark, of_row, shape(columns)), contract, horizon) == expected


def test_a_broken_record_counts_as_replayed_if_each_row_of_it_does(spark: SparkSession) -> None:
    """A speed layer that was made anew has quarantined some records once more."""
    statuses = [[], ["open"], ["discarded"], ["replayed"], ["replayed", "replayed"], ["replayed", "open"]]
    coordinates = [{"_topic": "flights", "_partition": 0, "_offset": n} for n in range(len(statuses) + 1)]
    columns = "_topic string, _partition int, _offset bigint"
    records = [{**each, "_valid": each["_offset"] == len(statuses)} for each in coordinates]
    rows = [
        {**each, "_status": status}
        for each, of_record in zip(coordinates, [*statuses, ["replayed"]], strict=True)
        for status in of_record
    ]
    facts = quarantine_facts(
        small_frame(spark, records * 2, shape(f"{columns}, _valid boolean")),
        small_frame(spark, rows, shape(f"{columns}, _status string")),
    )
    assert facts == QuarantineFacts(lacking=1, replayed=2)
