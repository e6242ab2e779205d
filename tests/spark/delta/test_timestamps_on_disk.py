"""Other engines read each instant as it is: timestamps are stored as microseconds, not as INT96."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pipelines.delta.io import append, read


# Nanoseconds, as which INT96 is read, begin in 1677 and end in 2262.
@pytest.mark.parametrize("year", [1582, 1899, 2013, 9999])
def test_an_instant_is_stored_as_microseconds_whatever_its_year(
    spark: SparkSession, tmp_path: Path, year: int
) -> None:
    at, table = datetime(year, 3, 4, 5, 6, 7, 890123, tzinfo=UTC), str(tmp_path / "table")
    append(spark.sql(f"SELECT TIMESTAMP'{at:%Y-%m-%d %H:%M:%S.%f}' AS at"), table)
    (file,) = Path(table).glob("*.parquet")
    assert pq.read_schema(file).field("at").type == pa.timestamp("us", "UTC")
    assert pq.read_table(file)["at"].to_pylist() == [at]
    assert read(spark, table).where(f"at = TIMESTAMP'{at:%Y-%m-%d %H:%M:%S.%f}'").count() == 1


def test_files_with_int96_are_read_beside_others(spark: SparkSession, tmp_path: Path) -> None:
    table, setting = str(tmp_path / "table"), "spark.sql.parquet.outputTimestampType"
    rows = spark.sql("SELECT TIMESTAMP'2013-01-01 05:15:00' AS at")
    ours = spark.conf.get(setting)
    spark.conf.set(setting, "INT96")
    try:
        append(rows, table)
    finally:
        spark.conf.set(setting, str(ours))
    append(rows, table)
    assert {
        pq.ParquetFile(path).schema.column(0).physical_type for path in Path(table).glob("*.parquet")
    } == {
        "INT96",
        "INT64",
    }
    assert read(spark, table).distinct().collect() == rows.collect()
