"""What checks quote of records goes with the records, and what they count stays."""

import json
from datetime import date
from typing import Any

from pyspark.sql import functions as F

from pipelines.delta.io import append, read
from pipelines.delta.tables import small_frame
from pipelines.ledger.kept_values import delete_values
from pipelines.ledger.ops_tables import VALIDATION_RESULTS
from tests.support.lakes import Lake
from tests.support.nights import ONE, TWO

FORGOTTEN = "a value, which was forgotten with a record of the day"
UNEXPECTED = "3 values unexpected"


def result(*, raised: bool = False, **found: Any) -> str:
    """What Great Expectations returned, as a row of the ledger keeps it."""
    return json.dumps(
        {"suite": "flights.rows", "result": found, "exception_info": {"raised_exception": raised}}
    )


COUNTED, VALUE, RAISED = result(unexpected_count=1), result(observed_value=1), result(raised=True)
# Of each row: what it observed, its detail and its result; and what it has observed when values are deleted.
ROWS = {
    "expect_column_max_to_be_between flight": ("1545", "", VALUE, FORGOTTEN),
    "expect_column_max_to_be_between dest": (UNEXPECTED, "", VALUE, FORGOTTEN),
    "expect_column_values_to_match_regex dest": ("no: XYZ", "", RAISED, FORGOTTEN),
    "expect_column_values_to_be_in_set origin": ("one of two", "XYZ", COUNTED, "one of two"),
    "expect_table_row_count_to_be_between": ("2", "", VALUE, "2"),
    "keys_come_to_an_end": ("1 keys recur", "UA, 1545, EWR", None, "1 keys recur"),
    # From before the column `result`.
    "expect_column_min_to_be_between flight": ("1545", "", None, FORGOTTEN),
    "expect_column_values_to_be_in_set dest": (UNEXPECTED, "XYZ", None, UNEXPECTED),
    "expect_compound_columns_to_be_unique": ("as expected", "", None, "as expected"),
}


def test_values_and_keys_that_checks_have_kept_go_with_the_days_records(lake: Lake) -> None:
    spark, table = lake.spark, lake.config.ops_table("validation_results")
    VALIDATION_RESULTS.ensure(lake.pipeline)
    rows = [
        dict.fromkeys(VALIDATION_RESULTS.schema.names)
        | {"pipeline": "flights", "day": day, "name": name}
        | {"kind": "expectation" if name.startswith("expect_") else "integrity"}
        | {"observed": observed, "detail": detail, "result": returned}
        for day in (ONE, TWO)
        for name, (observed, detail, returned, _) in ROWS.items()
    ]
    append(small_frame(spark, rows, VALIDATION_RESULTS.schema), table)

    def kept(day: date) -> dict[str, tuple[Any, ...]]:
        rows = read(spark, table).where(F.col("day") == day)
        return {row["name"]: (row["observed"], row["detail"], row["result"]) for row in rows.collect()}

    delete_values(lake.pipeline, [ONE])
    assert kept(TWO) == {name: tuple(told) for name, (*told, _) in ROWS.items()}
    assert kept(ONE) == {name: (then, "", None) for name, (*_, then) in ROWS.items()}
