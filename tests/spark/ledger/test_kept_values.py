"""What checks quote of records goes with the records, and what they count stays."""

from datetime import date
from typing import Any

from pyspark.sql import functions as F

from pipelines.delta.io import append, read
from pipelines.delta.tables import small_frame
from pipelines.ledger.catalog import VALIDATION_RESULTS
from pipelines.ledger.kept_values import delete_values
from tests.support.lakes import Lake
from tests.support.nights import ONE, TWO


def test_values_and_keys_that_checks_have_kept_go_with_the_days_records(lake: Lake) -> None:
    spark, table = lake.spark, lake.config.ops_table("validation_results")
    shapes = {
        "expect_column_max_to_be_between flight": ("expectation", "1545", "", '{"observed_value": 1545}'),
        "expect_column_values_to_be_in_set origin": ("expectation", "1 of 2 values unexpected", "XYZ", "{}"),
        "expect_table_row_count_to_be_between": ("expectation", "2", "", None),
        "keys_come_to_an_end": ("integrity", "1 keys recur", "UA, 1545, EWR", None),
    }
    VALIDATION_RESULTS.ensure(lake.pipeline)
    rows = [
        dict.fromkeys(VALIDATION_RESULTS.schema.names)
        | {"pipeline": "flights", "day": day, "name": name, "kind": kind}
        | {"observed": observed, "detail": detail, "result": result}
        for day in (ONE, TWO)
        for name, (kind, observed, detail, result) in shapes.items()
    ]
    append(small_frame(spark, rows, VALIDATION_RESULTS.schema), table)
    delete_values(lake.pipeline, [ONE])

    def kept(day: date) -> dict[str, tuple[Any, ...]]:
        rows = read(spark, table).where(F.col("day") == day)
        return {
            row["name"]: (row["observed"], row["detail"], row["result"]) for row in rows.toLocalIterator()
        }

    assert kept(TWO) == {name: tuple(told) for name, (_, *told) in shapes.items()}
    assert kept(ONE) == {
        "expect_column_max_to_be_between flight": (
            "a value, which was forgotten with a record of the day",
            "",
            None,
        ),
        "expect_column_values_to_be_in_set origin": ("1 of 2 values unexpected", "", None),
        "expect_table_row_count_to_be_between": ("2", "", None),
        "keys_come_to_an_end": ("1 keys recur", "", None),
    }
