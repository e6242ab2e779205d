"""What Spark or its JVM failed with is said in one line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import SparkSession

from pipelines.spark.failures import cause, damaged_log_in, explain_failure
from pipelines.spark.session import forget_tables
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


@pytest.mark.parametrize("has_checksum", [True, False])
def test_a_checkpoint_of_a_log_that_is_cut_off_is_named_with_the_way_back(
    spark: SparkSession, tmp_path: Path, has_checksum: bool
) -> None:
    table = tmp_path / "my table"
    # So that the tenth version is summed up.
    for _ in range(11):
        spark.range(1).write.format("delta").mode("append").save(str(table))
    (checkpoint,) = (table / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    checksum = checkpoint.with_name(f".{checkpoint.name}.crc")
    if not has_checksum:
        checksum.unlink()
    forget_tables()
    with pytest.raises((PySparkException, Py4JJavaError)) as failed:
        spark.read.format("delta").load(str(table)).collect()
    refusal = damaged_log_in(failed.value)
    assert refusal is not None
    assert refusal.exit_code == 4
    assert f"{checkpoint}: the file of a checkpoint of Delta's log is cut off" in str(refusal)

    checkpoint.unlink()
    checksum.unlink(missing_ok=True)
    forget_tables()
    assert spark.read.format("delta").load(str(table)).count() == 11


def test_a_data_file_that_is_gone_is_named_with_the_way_back(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "my table"
    spark.range(9).coalesce(1).write.format("delta").save(str(table))
    (file,) = table.glob("*.parquet")
    file.unlink()
    with pytest.raises((PySparkException, Py4JJavaError)) as failed:
        spark.read.format("delta").load(str(table)).collect()
    explained = explain_failure(failed.value)
    assert explained is not None
    assert explained.exit_code == 4
    assert f"{file}: a data file of the table is gone" in str(explained)
