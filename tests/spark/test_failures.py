"""What Spark or its JVM failed with is said in one line."""

import json

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.ops.failures import cause
from pipelines.sql_text import literal


def test_the_innermost_cause_is_named(spark: SparkSession) -> None:
    time = literal(json.dumps({"type": "long", "logicalType": "time-micros"}))
    rows = spark.range(1).selectExpr(f"to_json(struct(from_avro(IF(id = 0, X'09', X'00'), {time})))")
    with pytest.raises((PySparkException, Py4JJavaError)) as failed:
        rows.collect()
    assert "NanoOfDay" in cause(failed.value)
    assert "\n" not in cause(failed.value)
