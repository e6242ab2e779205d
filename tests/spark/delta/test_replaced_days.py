"""Rows are replaced as Delta's own `replaceWhere` replaces them, whoever writes to the table meanwhile."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pipelines.delta.conditions import days_condition
from pipelines.delta.conflicts import CONFLICTS
from pipelines.delta.epochs import StaleEpoch, Stamp
from pipelines.delta.fenced_commits import append_fenced, claim, replace_days_fenced, replace_rows_fenced
from pipelines.delta.replaced_rows import RowsOfDays, RowsOfPartition
from pipelines.delta.transaction import Transaction
from pipelines.errors import SourceError
from tests.support.table_copies import TableCopies

ONE, TWO, THREE = (date(2013, 1, day) for day in (1, 2, 3))
STAMP = Stamp("a", 1, "replaced")
DELETION_VECTORS = "delta.enableDeletionVectors"

Others = Callable[[SparkSession, str], None]


def rows_of(spark: SparkSession, *rows: tuple[date | None, int]) -> DataFrame:
    return spark.createDataFrame([*rows], "_event_date date, id long").coalesce(1)


def appended(day: date) -> Others:
    return lambda spark, path: rows_of(spark, (day, 9)).write.format("delta").mode("append").save(path)


def merged(day: date) -> Others:
    def merge(spark: SparkSession, path: str) -> None:
        rows, table = rows_of(spark, (day, 9)).alias("o"), DeltaTable.forPath(spark, path).alias("t")
        on_day = table.merge(
            rows, f"t._event_date = o._event_date AND {days_condition([day], 't._event_date')}"
        )
        on_day.whenMatchedUpdate(set={"id": "o.id"}).execute()

    return merge


def deleted(day: date) -> Others:
    return lambda spark, path: DeltaTable.forPath(spark, path).delete(days_condition([day]))


@pytest.fixture
def table_of_days(spark: SparkSession, tmp_path: Path, table_copies: TableCopies) -> Callable[..., str]:
    """Makes a table with a row on each of three days, and one of no day: `table_of_days(vectors="true")`."""

    def copy(vectors: str = "false") -> str:
        rows = rows_of(spark, (ONE, 1), (TWO, 2), (THREE, 3), (None, 0))
        writer = rows.write.format("delta").partitionBy("_event_date").option(DELETION_VECTORS, vectors)
        return str(table_copies.copy(f"days-{vectors}", tmp_path / "table", writer.save))

    return copy


def is_followed(spark: SparkSession, path: str) -> bool:
    """Whether the files to remove are known without Delta."""
    return Transaction(spark, path).removed_rows(RowsOfDays([ONE])) is not None


def rows_in(spark: SparkSession, path: str) -> list[tuple[date | None, int]]:
    rows = spark.read.format("delta").load(path).select("_event_date", "id").orderBy("_event_date", "id")
    return [(row["_event_date"], row["id"]) for row in rows.collect()]


@pytest.mark.spark
# Files with deletion vectors are not followed in the log.
@pytest.mark.parametrize("vectors", ["false", "true"], ids=["by files of the log", "by Delta"])
def test_rows_of_these_days_go_and_those_of_others_stay(
    spark: SparkSession, table_of_days: Callable[..., str], vectors: str
) -> None:
    table = table_of_days(vectors)
    version = replace_days_fenced(rows_of(spark, (ONE, 10), (ONE, 11)), table, [ONE, TWO], STAMP)
    assert version == 1
    assert rows_in(spark, table) == [(None, 0), (ONE, 10), (ONE, 11), (THREE, 3)]
    assert is_followed(spark, table) is (vectors == "false")
    commit = DeltaTable.forPath(spark, table).history(1).select("operation", "userMetadata").collect()[0]
    assert [*commit] == ["WRITE", "replaced"]


@pytest.mark.spark
@pytest.mark.parametrize("vectors", ["false", "true"], ids=["by files of the log", "by Delta"])
def test_days_with_a_gap_may_be_left_without_rows(
    spark: SparkSession, table_of_days: Callable[..., str], vectors: str
) -> None:
    table = table_of_days(vectors)
    replace_days_fenced(rows_of(spark), table, [ONE, THREE], STAMP)
    assert rows_in(spark, table) == [(None, 0), (TWO, 2)]
    replace_days_fenced(rows_of(spark, (THREE, 30)), table, [ONE, THREE], Stamp("a", 2, "again"))
    assert rows_in(spark, table) == [(None, 0), (TWO, 2), (THREE, 30)]


@pytest.mark.spark
def test_who_was_overtaken_writes_no_file(spark: SparkSession, table_of_days: Callable[..., str]) -> None:
    table = table_of_days()
    claim(spark, table, Stamp("a", 2, "later"))
    before = {*Path(table).rglob("*.parquet")}
    with pytest.raises(StaleEpoch):
        append_fenced(rows_of(spark, (ONE, 10)), table, STAMP)
    with pytest.raises(StaleEpoch):
        replace_days_fenced(rows_of(spark, (ONE, 10)), table, [ONE], STAMP)
    assert {*Path(table).rglob("*.parquet")} == before


@pytest.mark.spark
def test_without_the_table_nothing_is_written(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such table; restore it"):
        append_fenced(rows_of(spark, (ONE, 10)), str(tmp_path / "gone"), STAMP)
    with pytest.raises(SourceError, match="no such table; restore it"):
        replace_days_fenced(rows_of(spark, (ONE, 10)), str(tmp_path / "gone"), [ONE], STAMP)


@pytest.mark.spark
@pytest.mark.parametrize("day", [THREE, None])
def test_rows_of_another_day_are_refused(
    spark: SparkSession, table_of_days: Callable[..., str], day: date | None
) -> None:
    table = table_of_days()
    with pytest.raises(ValueError, match=f"rows of .*{day}.*, expected only"):
        replace_days_fenced(rows_of(spark, (ONE, 10), (day, 30)), table, [ONE, TWO], STAMP)
    assert rows_in(spark, table) == [(None, 0), (ONE, 1), (TWO, 2), (THREE, 3)]


@pytest.mark.spark
def test_days_of_a_table_that_is_divided_otherwise_are_replaced_row_by_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "table")
    rows_of(spark, (ONE, 1), (TWO, 2), (THREE, 3)).write.format("delta").save(path)
    replace_days_fenced(rows_of(spark, (ONE, 10)), path, [ONE, TWO], STAMP)
    assert rows_in(spark, path) == [(ONE, 10), (THREE, 3)]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("others", "left"),
    [
        pytest.param(deleted(ONE), None, id="a deletion of these days"),
        pytest.param(deleted(THREE), [(None, 0), (ONE, 10)], id="a deletion of other days"),
        pytest.param(merged(ONE), None, id="a merge on these days"),
        pytest.param(merged(THREE), [(None, 0), (ONE, 10), (THREE, 9)], id="a merge on other days"),
        pytest.param(appended(ONE), None, id="rows on these days"),
        pytest.param(
            appended(THREE), [(None, 0), (ONE, 10), (THREE, 3), (THREE, 9)], id="rows on other days"
        ),
    ],
)
def test_a_commit_conflicts_with_what_others_change_on_its_days(
    spark: SparkSession,
    table_of_days: Callable[..., str],
    others: Others,
    left: list[tuple[date | None, int]] | None,
) -> None:
    table = table_of_days()
    transaction = Transaction(spark, table)
    removed = transaction.removed_rows(RowsOfDays([ONE, TWO]))
    assert removed is not None
    transaction.write(rows_of(spark, (ONE, 10)))
    others(spark, table)

    def commit() -> None:
        transaction.commit(removed, STAMP, "Overwrite", days_condition([ONE, TWO]))

    if left is None:
        with pytest.raises(CONFLICTS):
            commit()
        assert (ONE, 10) not in rows_in(spark, table)
    else:
        commit()
        assert rows_in(spark, table) == left


@pytest.mark.spark
@pytest.mark.parametrize("above", [None, 0, 3, 4, 9])
def test_rows_above_a_number_go_and_those_below_and_of_other_partitions_stay(
    spark: SparkSession, tmp_path: Path, above: int | None
) -> None:
    path = str(tmp_path / "table")
    rows = [("a", 3), ("a", 4), ("a", 5), ("b", 9), ("a", 1)]
    # The first two are in one file, which is removed as a whole, kept as a whole, or written again.
    for part in (rows[:2], rows[2:4], rows[4:]):
        frame = spark.createDataFrame(part, "pipeline string, until long").coalesce(1)
        frame.write.format("delta").mode("append").partitionBy("pipeline").save(path)
    new = spark.createDataFrame([("a", 10)], "pipeline string, until long")
    replaced = RowsOfPartition({"pipeline": "a"}, "until", above)
    # One file has rows of both kinds then, so that it is written again.
    assert (Transaction(spark, path).removed_rows(replaced) is None) is (above == 3)
    replace_rows_fenced(new, path, replaced, STAMP)
    stays = [
        (name, number) for name, number in rows if name == "b" or (above is not None and number <= above)
    ]
    found = spark.read.format("delta").load(path).collect()
    assert sorted((row["pipeline"], row["until"]) for row in found) == sorted([*stays, ("a", 10)])


@pytest.mark.spark
@pytest.mark.parametrize(("other", "conflicts"), [("a", True), ("b", False)])
def test_a_commit_to_a_partition_conflicts_with_no_commit_to_another(
    spark: SparkSession, tmp_path: Path, other: str, conflicts: bool
) -> None:
    path = str(tmp_path / "table")

    def frame(*rows: tuple[str, int]) -> DataFrame:
        return spark.createDataFrame([*rows], "pipeline string, until long").coalesce(1)

    frame(("a", 1), ("b", 2)).write.format("delta").partitionBy("pipeline").save(path)
    transaction = Transaction(spark, path)
    removed = transaction.removed_rows(RowsOfPartition({"pipeline": "a"}, "until", 5))
    transaction.write(frame(("a", 6)))
    replace_rows_fenced(
        frame((other, 7)), path, RowsOfPartition({"pipeline": other}, "until", 5), Stamp("b", 1, "other")
    )
    if conflicts:
        with pytest.raises(CONFLICTS):
            transaction.commit(removed or [], STAMP)
    else:
        transaction.commit(removed or [], STAMP)
        assert spark.read.format("delta").load(path).count() == 4


@pytest.mark.spark
def test_rows_that_are_not_above_the_number_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    rows = spark.createDataFrame([("a", 1)], "pipeline string, until long").coalesce(1)
    rows.write.format("delta").partitionBy("pipeline").save(path)
    with pytest.raises(ValueError, match=r"expected only rows with .*until > 5"):
        replace_rows_fenced(rows, path, RowsOfPartition({"pipeline": "a"}, "until", 5), STAMP)
