"""Files that no version needs go at once if somebody asks for it, and no others."""

from datetime import timedelta
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.delta.io import read
from pipelines.delta.upkeep import old_files, vacuum
from tests.support.lakes import clean_log


def test_files_go_at_once_also_where_the_log_was_cleaned(spark: SparkSession, tmp_path: Path) -> None:
    table, week = str(tmp_path / "table"), timedelta(days=7)
    spark.range(0, 4, 1, 2).withColumn("of", F.expr("id % 2")).write.format("delta").partitionBy("of").save(
        table
    )
    DeltaTable.forPath(spark, table).delete("id = 1")
    DeltaTable.forPath(spark, table).delete("id = 2")
    clean_log(spark, table)
    # As of a commit that is under way.
    young = Path(table, "of=0", "part-young.parquet")
    young.write_bytes(b"young")
    assert vacuum(spark, table, week).count == 0
    before = {*Path(table).glob("of=*/*.parquet")}
    counted = old_files(spark, table, week, now=True)
    assert {*Path(table).glob("of=*/*.parquet")} == before
    gone = vacuum(spark, table, week, now=True)
    left = {*Path(table).glob("of=*/*.parquet")}
    assert (counted, gone.count) == (gone, len(before - left))
    assert gone.count == 2
    assert young in left
    assert sorted(row["id"] for row in read(spark, table).toLocalIterator()) == [0, 3]
