"""What Spark or its JVM failed with is said in one line."""

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import SparkSession

from pipelines.spark.failures import cause
from pipelines.sql import literal


def test_the_innermost_cause_is_named(spark: SparkSession) -> None:
    time = literal(json.dumps({"type": "long", "logicalType": "time-micros"}))
    rows = spark.range(1).selectExpr(f"to_json(struct(from_avro(IF(id = 0, X'09', X'00'), {time})))")
    with pytest.raises((PySparkException, Py4JJavaError)) as failed:
        rows.collect()
    assert "NanoOfDay" in cause(failed.value)
    assert "\n" not in cause(failed.value)


def test_what_a_python_worker_has_raised_is_named(spark: SparkSession) -> None:
    def dies(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise ValueError("a fault of the test\nof two lines")

    with pytest.raises(PythonException) as failed:
        spark.range(1).mapInArrow(dies, "id bigint").collect()
    assert cause(failed.value) == "ValueError: a fault of the test"
