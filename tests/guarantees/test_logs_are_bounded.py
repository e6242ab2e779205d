"""A table whose commits are many keeps its log for as long as a stream may stand still, and no longer."""

from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from pipelines.delta.table_properties import keep_versions, set_table_properties, table_property
from pipelines.delta.tables import version
from pipelines.delta.upkeep import vacuum

LOG, FILES = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"
MONTH = timedelta(days=30)


def kept(spark: SparkSession, table: str) -> tuple[str | None, str | None]:
    return table_property(spark, table, LOG), table_property(spark, table, FILES)


def test_a_table_that_was_made_for_ten_years_is_put_right_and_then_left_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = str(tmp_path / "speed")
    spark.range(1).write.format("delta").save(table)
    set_table_properties(spark, table, dict.fromkeys((LOG, FILES), "interval 3650 days"))
    keep_versions(spark, table, MONTH)
    assert kept(spark, table) == ("interval 720 hours", "interval 720 hours")
    before = version(spark, table)
    keep_versions(spark, table, MONTH)
    # Nor does upkeep shorten it.
    vacuum(spark, table, timedelta(days=8))
    assert kept(spark, table) == ("interval 720 hours", "interval 720 hours")
    keep_versions(spark, table, timedelta(days=10))
    assert kept(spark, table) == ("interval 240 hours", "interval 240 hours")
    assert version(spark, table) == before + 1


def test_a_ledger_that_others_share_is_kept_for_as_long_as_the_most_patient_of_them_asks(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = str(tmp_path / "certifications")
    spark.range(1).write.format("delta").save(table)
    for asked, expected in ((3650, 87600), (10, 240), (30, 720), (10, 720)):
        keep_versions(spark, table, timedelta(days=asked), is_shared=True)
        assert kept(spark, table) == (f"interval {expected} hours",) * 2
