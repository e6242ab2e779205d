"""Versions of a table are read wherever its folder is."""

from datetime import date, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.delta.time_travel import day_bytes, read_kept

DAY = date(2013, 1, 1)


@pytest.mark.parametrize("folder", ["plain", "with a space", "pct%41", "é#?:y", "a+b&c"])
def test_files_are_found_whatever_their_folder_is_called(
    folder: str, spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / folder / "table"
    rows = spark.sql("SELECT 1 AS n, DATE'2013-01-01' AS _event_date UNION ALL SELECT 2, DATE'2013-01-02'")
    rows.write.format("delta").partitionBy("_event_date").save(str(table))
    kept = read_kept(spark, str(table), 0, [DAY])
    assert kept is not None
    (file,) = (table / "_event_date=2013-01-01").glob("*.parquet")
    assert [row.n for row in kept.collect()] == [1]
    assert day_bytes(spark, str(table), 0, [DAY]) == file.stat().st_size
    file.unlink()
    assert read_kept(spark, str(table), 0, [DAY]) is None
    # Of a day nothing but its own files is asked for.
    assert read_kept(spark, str(table), 0, [DAY + timedelta(days=1)]) is not None
    assert read_kept(spark, str(table), 0) is None
