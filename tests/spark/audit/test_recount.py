"""Keys that stand more than once, held against plain Python."""

from collections import Counter
from datetime import date, timedelta
from random import Random

import pytest
from pyspark.sql import SparkSession

from pipelines.audit.recount import doubled_keys
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
