"""Rows of ours name the columns that their schema has: a misspelt name would be written as no value."""

from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pipelines.delta.tables import small_frame

SCHEMA = StructType([StructField("day", StringType()), StructField("rows", LongType())])
# What is refused never gets to Spark.
NO_SESSION = cast(SparkSession, None)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"day": "d", "row": 1}, "unknown: row; missing: rows"),
        ({"day": "d", "rows": 1, "count": 1}, "unknown: count"),
        ({"day": "d"}, "missing: rows"),
    ],
)
def test_a_row_with_other_columns_is_refused(row: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=f"^row 1: {told}; expected the columns day, rows$"):
        small_frame(NO_SESSION, [{"day": "d", "rows": None}, row], SCHEMA)
