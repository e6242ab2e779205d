"""Settings that hold for a block are afterwards as they were."""

import pytest
from pyspark.sql import SparkSession

from pipelines.session_settings import session_settings

KEPT, NEW = "spark.sql.session.timeZone", "spark.databricks.delta.retentionDurationCheck.enabled"


@pytest.mark.parametrize("fails", [False, True])
def test_they_are_as_before_also_after_a_failure(spark: SparkSession, fails: bool) -> None:
    before = spark.conf.get(KEPT)
    assert spark.conf.get(NEW, None) is None
    try:
        with session_settings(spark, {KEPT: "Asia/Tokyo", NEW: "false"}):
            assert (spark.conf.get(KEPT), spark.conf.get(NEW)) == ("Asia/Tokyo", "false")
            if fails:
                raise KeyError
    except KeyError:
        assert fails
    assert spark.conf.get(KEPT) == before
    assert spark.conf.get(NEW, None) is None
