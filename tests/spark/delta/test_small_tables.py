"""The driver reads the rows of a small table: those that Spark reads. All else is left to Spark."""

import shutil
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.delta.io import append, read, replace_rows, small_rows
from pipelines.delta.small_tables import own_rows
from pipelines.delta.tables import ensure_table, shape, small_frame
from pipelines.spark.session import forget_tables
from tests.support.lakes import Lake

NAME = "runs"
COLUMNS = (
    "note string, pipeline string, day date, at timestamp, n bigint, x double, list array<struct<a: int>>"
)
ROW = {
    "note": "a `b` 'c'",
    "pipeline": "flights",
    "day": date(2013, 1, 1),
    "at": datetime(2013, 1, 1, 12, 30, 0, 123456, UTC),
    "n": 2**60,
    "x": -0.0,
    "list": [{"a": 1}, {"a": None}],
}
EMPTY = {"pipeline": "flights", "note": None, "day": None, "at": None, "n": None, "x": None, "list": None}


@pytest.fixture
def table(lake: Lake) -> str:
    """A table of two commits, with rows of two pipelines."""
    path = lake.pipeline.ops_table(NAME)
    ensure_table(lake.spark, path, shape(COLUMNS), partitions=("pipeline",))
    _add(lake, ROW, EMPTY)
    _add(lake, ROW | {"pipeline": "it's another"})
    return path


def _add(lake: Lake, *rows: dict[str, Any], columns: str = COLUMNS) -> None:
    append(small_frame(lake.spark, rows, shape(columns)), lake.pipeline.ops_table(NAME))


def _is_in_memory(rows: DataFrame) -> bool:
    return "LocalRelation" in _plan(rows)


def _plan(rows: DataFrame) -> str:
    return str(rows._jdf.queryExecution().optimizedPlan().toString())


def _same(lake: Lake, at: int | None = None) -> DataFrame:
    """Return what is read, once it has proved to be what Spark reads."""
    table, found = lake.pipeline.ops_table(NAME), own_rows(lake.pipeline, NAME, at)
    expected = read(lake.spark, table, at).where(F.col("pipeline") == lake.config.name)
    assert found.schema == expected.schema
    assert sorted(map(repr, small_rows(found))) == sorted(map(repr, small_rows(expected)))
    return found


def test_rows_of_a_small_table_are_in_memory_and_those_that_spark_reads(lake: Lake, table: str) -> None:
    assert _is_in_memory(found := _same(lake))
    assert found.count() == 2
    # A version of before is Spark's to read; the newest may be named.
    assert not _is_in_memory(_same(lake, 1))
    assert _is_in_memory(_same(lake, 2))

    replace_rows(small_frame(lake.spark, [ROW], shape(COLUMNS)), table, "pipeline = 'flights'")
    assert _is_in_memory(found := _same(lake))
    assert found.count() == 1

    # Older files lack what was added since.
    ensure_table(lake.spark, table, shape(f"{COLUMNS}, more int"), partitions=("pipeline",))
    _add(lake, EMPTY | {"more": 7}, columns=f"{COLUMNS}, more int")
    assert _is_in_memory(found := _same(lake))
    assert found.where("more IS NULL").count() == 1


def test_a_pipeline_without_rows_has_none(lake: Lake, table: str) -> None:
    lake.config = lake.config.model_copy(update={"name": "nobody"})
    assert _is_in_memory(found := _same(lake))
    assert found.count() == 0


def test_a_table_without_partitions_is_read_as_well(lake: Lake) -> None:
    ensure_table(lake.spark, lake.pipeline.ops_table(NAME), shape(COLUMNS))
    _add(lake, ROW, ROW | {"pipeline": "another"})
    assert _is_in_memory(found := _same(lake))
    assert found.count() == 1


def test_a_table_with_deleted_rows_or_many_files_is_left_to_spark(lake: Lake, table: str) -> None:
    lake.spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)")
    _add(lake, *(ROW | {"n": number} for number in range(3)))
    assert _is_in_memory(_same(lake))
    DeltaTable.forPath(lake.spark, table).delete("n = 1")
    assert not _is_in_memory(found := _same(lake))
    assert found.count() == 4

    replace_rows(small_frame(lake.spark, [], shape(COLUMNS)), table, "true")
    assert _is_in_memory(_same(lake))
    rows = small_frame(lake.spark, [ROW | {"n": number} for number in range(70)], shape(COLUMNS))
    append(rows.repartition(70, "n"), table)
    append(rows.repartition(70, "n"), table)
    assert not _is_in_memory(_same(lake))


def test_a_checksum_that_was_left_in_the_log_is_not_believed(lake: Lake, table: str) -> None:
    log, other = Path(table, "_delta_log"), Path(f"{table} of another history")
    shutil.copytree(table, other)
    _add(lake, ROW | {"n": 1}, ROW | {"n": 2})
    append(small_frame(lake.spark, [ROW | {"note": "of that history"}], shape(COLUMNS)), str(other))
    # Beside a commit it leads Delta to wrong lists of files in the checksums of all commits that follow.
    name = "00000000000000000003.crc"
    for sidecar in log.glob(".*.crc"):
        sidecar.unlink()
    shutil.copyfile(other / "_delta_log" / name, log / name)
    forget_tables()
    assert _same(lake).count() == 4
    _add(lake, ROW | {"n": 3})
    forget_tables()
    assert _same(lake).count() == 5
    (log / "00000000000000000004.crc").unlink()
    forget_tables()
    assert _same(lake).count() == 5


def test_a_damaged_table_fails_as_it_does_when_spark_reads_it(lake: Lake, table: str) -> None:
    (file,) = Path(table).glob("pipeline=flights/*.parquet")
    file.unlink()
    with pytest.raises(Py4JJavaError, match="FAILED_READ_FILE"):
        small_rows(own_rows(lake.pipeline, NAME))
    shutil.rmtree(table)
    with pytest.raises(PySparkException, match=r"DELTA_.*NOT_FOUND|PATH_NOT_FOUND|DELTA_PATH"):
        small_rows(own_rows(lake.pipeline, NAME))
