"""Values of records that audits have kept in the ledgers, such as examples, and their deletion."""

from collections.abc import Sequence
from datetime import date
from typing import Final

from pyspark.sql import SparkSession

from pipelines.delta.conditions import days_condition
from pipelines.delta.row_changes import deletion, update
from pipelines.delta.small_tables import read_small
from pipelines.delta.tables import exists
from pipelines.delta.upkeep import change_rows
from pipelines.ledger.forgotten_places import times_remembered
from pipelines.ledger.ops_tables import LAYER_SAMPLES, VALIDATION_RESULTS, rows_of
from pipelines.spark.pipeline import Pipeline

LEDGERS: Final = (LAYER_SAMPLES.name, VALIDATION_RESULTS.name)
"""The ledgers that hold such values."""
_GONE: Final = "a value, which was forgotten with a record of the day"
# The stored result says whether a value was observed, or that it could not be evaluated and why, which may
# quote one.
_RAISED: Final = "get_json_object(result, '$.exception_info.raised_exception')"
_OBSERVED: Final = "get_json_object(result, '$.result.observed_value')"
# Without a result the text has to decide: in rows that are older than the column, and in rows whose result
# was deleted. What the text does not show to be a count or a fixed answer counts as a value.
_TEXT_MAY_BE_A_VALUE: Final = (
    "observed NOT LIKE '% values unexpected'"
    f" AND observed NOT IN ('as expected', 'not as expected', '{_GONE}')"
)
# A number of rows is no value of a record.
_OBSERVES: Final = (
    "kind = 'expectation' AND name NOT LIKE 'expect_table_row_count%'"
    f" AND CASE {_RAISED} WHEN 'true' THEN true WHEN 'false' THEN {_OBSERVED} IS NOT NULL"
    f" ELSE {_TEXT_MAY_BE_A_VALUE} END"
)


def delete_values(pipeline: Pipeline, days: Sequence[date]) -> None:
    """Delete what audits have kept of the values of some days' records; outcomes and counts of checks stay.

    Args:
        pipeline: The pipeline.
        days: The event days, sorted.
    """
    spark = pipeline.spark
    if not days:
        return
    of_days = f"{rows_of(pipeline)} AND ({days_condition(days, 'day')})"
    samples, results = map(pipeline.config.ops_table, LEDGERS)
    if _holds(spark, samples, of_days):
        change_rows(spark, samples, deletion(of_days), {})
    if not exists(spark, results):
        return
    VALIDATION_RESULTS.ensure(pipeline)
    # Expectations quote values that they did not expect, or the greatest; our own checks quote keys, and in
    # `detail` alone, see `pipelines.audit.integrity_checks.Observation`.
    quoting = f"{of_days} AND (result IS NOT NULL OR detail <> '' OR ({_OBSERVES}))"
    if _holds(spark, results, quoting):
        nothing = {
            "result": "NULL",
            "detail": "''",
            "observed": f"CASE WHEN {_OBSERVES} THEN '{_GONE}' ELSE observed END",
        }
        change_rows(spark, results, update(quoting, nothing), {})


def delete_if_forgotten(pipeline: Pipeline, since: int, days: Sequence[date]) -> bool:
    """Delete the values of some days if records were forgotten since an audit of these began.

    Args:
        pipeline: The pipeline.
        since: What `times_remembered` was before the audit read anything.
        days: The event days that it has written values of.

    Returns:
        Whether they were deleted.
    """
    if times_remembered(pipeline) == since:
        return False
    delete_values(pipeline, days)
    return True


def _holds(spark: SparkSession, table: str, condition: str) -> bool:
    return exists(spark, table) and not read_small(spark, table).where(condition).isEmpty()
