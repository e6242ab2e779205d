"""Files that no version needs go when they are old, or at once if somebody asks for it, and no others."""

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.delta.io import append, read
from pipelines.delta.table_properties import OF_STREAMS
from pipelines.delta.tables import ensure_table, shape, version
from pipelines.delta.upkeep import Files, old_files, vacuum
from tests.support.lakes import clean_log


@pytest.mark.thorough
def test_files_go_at_once_also_where_the_log_was_cleaned(spark: SparkSession, tmp_path: Path) -> None:
    table, week = str(tmp_path / "a table%41é"), timedelta(days=7)
    spark.range(0, 4, 1, 2).withColumn("of", F.expr("id % 2")).write.format("delta").partitionBy("of").save(
        table
    )
    DeltaTable.forPath(spark, table).delete("id = 1")
    DeltaTable.forPath(spark, table).delete("id = 2")
    clean_log(spark, table)
    # As of a commit that is under way.
    young = Path(table, "of=0", "part-young.parquet")
    young.write_bytes(b"young")
    before = {*Path(table).glob("of=*/*.parquet")}
    newest = version(spark, table)
    counted = old_files(spark, table, week, newest)
    assert {*Path(table).glob("of=*/*.parquet")} == before
    gone = vacuum(spark, table, week, newest)
    left = {*Path(table).glob("of=*/*.parquet")}
    assert (counted, gone.count) == (gone, len(before - left))
    assert gone.count == 2
    assert young in left
    assert sorted(row["id"] for row in read(spark, table).collect()) == [0, 3]


def test_what_was_removed_after_the_table_was_looked_at_stays(spark: SparkSession, tmp_path: Path) -> None:
    """As by a nightly run that has taken the lease over, or by an OPTIMIZE whose files nobody has read."""
    table, week = str(tmp_path / "table"), timedelta(days=7)
    spark.range(0, 2, 1, 2).write.format("delta").save(table)
    first = {*Path(table).glob("*.parquet")}
    DeltaTable.forPath(spark, table).delete("id = 0")
    looked = version(spark, table)
    DeltaTable.forPath(spark, table).delete("id = 1")
    assert vacuum(spark, table, week, looked).count == 1
    assert len(first & {*Path(table).glob("*.parquet")}) == 1
    assert [row["id"] for row in read(spark, table, looked).collect()] == [1]


def aged(table: Path, days: int) -> None:
    """Makes all files of a table so many days old."""
    for path in table.rglob("*.parquet"):
        then = time.time() - timedelta(days=days).total_seconds()
        os.utime(path, (then, then))


def test_what_was_removed_lately_stays_however_old_its_file_is(spark: SparkSession, tmp_path: Path) -> None:
    table, week = tmp_path / "table", timedelta(days=7)
    spark.range(4).coalesce(1).write.format("delta").save(str(table))
    before = version(spark, str(table))
    aged(table, 30)
    DeltaTable.forPath(spark, str(table)).delete("id = 1")
    assert old_files(spark, str(table), week) == vacuum(spark, str(table), week) == Files()
    assert read(spark, str(table), before).count() == 4


def test_what_no_commit_names_goes_when_it_is_old(spark: SparkSession, tmp_path: Path) -> None:
    table, week = tmp_path / "table", timedelta(days=7)
    spark.range(2).coalesce(1).write.format("delta").save(str(table))
    before = version(spark, str(table))
    assert vacuum(spark, str(table), week).count == 0
    assert version(spark, str(table)) == before
    for name in ("part-dead.parquet", "_change_data/cdc-dead.parquet"):
        (table / name).parent.mkdir(exist_ok=True)
        (table / name).write_bytes(b"dead")
        assert vacuum(spark, str(table), week).count == 0
        assert version(spark, str(table)) == before
    aged(table, 8)
    assert old_files(spark, str(table), week).count
    assert vacuum(spark, str(table), week).count == 2
    assert [path.name for path in table.rglob("*dead*")] == []
    assert read(spark, str(table)).count() == 2


def test_a_table_without_commits_gets_some_by_which_delta_cleans_its_log(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, week = tmp_path / "table", timedelta(days=7)
    spark.range(2).coalesce(1).write.format("delta").save(str(table))
    assert vacuum(spark, str(table), week).count == 0
    assert version(spark, str(table)) == 0
    yesterday = time.time() - timedelta(days=1).total_seconds()
    os.utime(max(table.glob("_delta_log/*.json")), (yesterday, yesterday))
    assert vacuum(spark, str(table), week).count == 0
    assert version(spark, str(table)) == 2


def test_the_log_of_a_stream_gets_a_checkpoint_when_it_has_ten_commits(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    ensure_table(spark, str(table), shape("id bigint"), properties=OF_STREAMS)
    for commits in (9, 10):
        while version(spark, str(table)) < commits - 1:
            append(spark.range(1), str(table))
        vacuum(spark, str(table), timedelta(days=7))
        found = [path.name[:20] for path in table.glob("_delta_log/*.checkpoint*.parquet")]
        assert found == ([f"{9:020d}"] if commits == 10 else [])
    assert read(spark, str(table)).count() == 9
