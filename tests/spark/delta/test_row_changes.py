"""Rows are changed and deleted in place, whatever is appended meanwhile, and no other row is touched."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pipelines.delta.fenced_commits import rewrite_rows
from pipelines.delta.io import append, read
from pipelines.delta.row_changes import deletion, deletion_of, update, update_from
from pipelines.delta.upkeep import compact
from pipelines.errors import SourceError
from pipelines.session_settings import session_settings
from pipelines.spark.session import forget_tables

PLACES = ["a b", "c%20d", "e=f/g", None]


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    """Eight rows, two in each file, in a folder and in partitions whose names are written in several ways."""
    path = str(tmp_path / "my lake")
    rows = [(number, PLACES[number % 4], f"value {number}") for number in range(8)]
    frame = spark.createDataFrame(rows, "id bigint, place string, value string").coalesce(1)
    frame.write.format("delta").partitionBy("place").save(path)
    return path


def contents(spark: SparkSession, table: str) -> dict[int, Any]:
    return {row["id"]: row["value"] for row in read(spark, table).collect()}


def others(spark: SparkSession, *ids: int) -> DataFrame:
    return spark.createDataFrame([(number,) for number in ids], "id bigint")


def test_rows_of_a_key_are_deleted_and_no_others(spark: SparkSession, table: str) -> None:
    rewrite_rows(spark, table, deletion_of(others(spark, 1, 2, 3, 7, 9), ["id"]))
    assert sorted(contents(spark, table)) == [0, 4, 5, 6]


def test_rows_of_which_a_condition_is_unknown_stay(spark: SparkSession, table: str) -> None:
    rewrite_rows(spark, table, deletion("place <> 'a b'"))
    assert sorted(contents(spark, table)) == [0, 3, 4, 7]


@pytest.mark.thorough
def test_columns_of_some_rows_are_changed(spark: SparkSession, table: str) -> None:
    change = update_from(others(spark, 1, 2, 9), ["id"], "t.id > 1", {"value": "concat(t.value, ' ', o.id)"})
    rewrite_rows(spark, table, change)
    assert contents(spark, table) == {n: f"value {n}" for n in range(8)} | {2: "value 2 2"}


def test_a_row_that_two_others_match_is_not_doubled(spark: SparkSession, table: str) -> None:
    with pytest.raises(ValueError, match="3 rows were written in place of 2"):
        rewrite_rows(spark, table, update_from(others(spark, 1, 1), ["id"], "true", {"value": "'new'"}))
    assert contents(spark, table) == {n: f"value {n}" for n in range(8)}


def test_columns_of_rows_of_which_a_condition_is_unknown_stay(spark: SparkSession, table: str) -> None:
    rewrite_rows(spark, table, update("place <> 'a b'", {"value": "concat(id, ' ', value)"}))
    changed = {n: f"{n} value {n}" for n in (1, 2, 5, 6)}
    assert contents(spark, table) == {n: f"value {n}" for n in range(8)} | changed


@pytest.mark.thorough
def test_a_column_that_is_not_there_is_not_passed_over(spark: SparkSession, table: str) -> None:
    with pytest.raises(ValueError, match="found no column Value"):
        rewrite_rows(spark, table, update_from(others(spark, 1), ["id"], "true", {"Value": "NULL"}))


def test_nothing_is_committed_for_no_row(spark: SparkSession, table: str) -> None:
    rewrite_rows(spark, table, deletion_of(others(spark, 9), ["id"]))
    assert DeltaTable.forPath(spark, table).history().count() == 1


@pytest.mark.thorough
def test_rows_that_delta_has_deleted_from_files_do_not_come_back(spark: SparkSession, table: str) -> None:
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    compact(spark, table)
    # Delta reads such files only where it may pass over files, which sessions of tests do not let it do.
    with session_settings(spark, {"spark.databricks.delta.stats.skipping": "true"}):
        DeltaTable.forPath(spark, table).delete("id = 5")
        rewrite_rows(spark, table, deletion_of(others(spark, 1), ["id"]))
        assert sorted(contents(spark, table)) == [0, 2, 3, 4, 6, 7]


@pytest.mark.parametrize("columns", [[], ["place"]])
def test_rows_that_are_appended_meanwhile_do_not_make_it_look_again(
    spark: SparkSession, table: str, tmp_path: Path, columns: list[str]
) -> None:
    other, looks = str(tmp_path / "other"), 0
    read(spark, table).write.format("delta").partitionBy(*columns).save(other)
    more = spark.createDataFrame([(9, "a b", "value 9")], "id bigint, place string, value string")
    change = deletion("id < 2")

    def find(rows: DataFrame) -> DataFrame:
        nonlocal looks
        looks += 1
        found = change.find(rows).localCheckpoint()
        append(more, other)
        return found

    rewrite_rows(spark, other, replace(change, find=find))
    assert looks == 1
    assert sorted(contents(spark, other)) == [2, 3, 4, 5, 6, 7, 9]


@pytest.mark.thorough
def test_rows_of_files_that_are_written_anew_meanwhile_are_looked_for_again(
    spark: SparkSession, table: str
) -> None:
    append(read(spark, table).where("id = 0").selectExpr("8L AS id", "place", "value"), table)
    change, work = deletion("id < 2"), [compact]

    def find(rows: DataFrame) -> DataFrame:
        found = change.find(rows).localCheckpoint()
        while work:
            work.pop()(spark, table)
        return found

    rewrite_rows(spark, table, replace(change, find=find))
    assert sorted(contents(spark, table)) == [2, 3, 4, 5, 6, 7, 8]


@pytest.mark.thorough
def test_columns_that_are_added_meanwhile_are_kept(spark: SparkSession, table: str) -> None:
    change, work = deletion("id < 2"), ["ADD COLUMNS (more string)"]

    def find(rows: DataFrame) -> DataFrame:
        found = change.find(rows).localCheckpoint()
        while work:
            spark.sql(f"ALTER TABLE delta.`{table}` {work.pop()}")
        return found

    rewrite_rows(spark, table, replace(change, find=find))
    assert read(spark, table).columns == ["id", "place", "value", "more"]
    assert sorted(contents(spark, table)) == [2, 3, 4, 5, 6, 7]


def test_another_table_in_its_place_is_looked_at_anew(
    spark: SparkSession, table: str, tmp_path: Path
) -> None:
    other, change, work = tmp_path / "other", deletion("id < 2"), [Path(table)]
    read(spark, table).where("id > 0").write.format("delta").partitionBy("place").save(str(other))

    def find(rows: DataFrame) -> DataFrame:
        found = change.find(rows).localCheckpoint()
        while work:
            shutil.rmtree(place := work.pop())
            other.rename(place)
            forget_tables()
        return found

    with pytest.raises(SourceError, match="found 0 of 2 files"):
        rewrite_rows(spark, table, replace(change, find=find))
    assert sorted(contents(spark, table)) == [1, 2, 3, 4, 5, 6, 7]
