"""Rows that the driver has are written by the driver, as Delta writes them; all others by a job."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest
from delta.tables import DeltaTable
from deltalake import DeltaTable as DeltaRs
from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession

from pipelines.delta.fenced_commits import append_few
from pipelines.delta.table_properties import set_table_property
from pipelines.delta.tables import ensure_table, shape, small_frame
from pipelines.delta.transaction import Transaction
from pipelines.errors import SourceError
from pipelines.session_settings import session_settings

COLUMNS = (
    "pipeline string, n bigint, at timestamp, day date, tags map<string, int>, parts array<struct<x: double>>"
)
MOMENT = datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=UTC)
FULL = {"n": 1, "at": MOMENT, "day": date(1, 1, 1), "tags": {"é": 1}, "parts": [{"x": 0.1}, {"x": None}]}
EMPTY = dict.fromkeys(FULL)


@contextmanager
def jobs_in(spark: SparkSession) -> Iterator[list[int]]:
    """The jobs that Spark starts for the block."""
    context, found = spark.sparkContext, list[int]()
    context.setJobGroup("few rows", "of a test")
    before = {*context.statusTracker().getJobIdsForGroup("few rows")}
    try:
        yield found
    finally:
        found += {*context.statusTracker().getJobIdsForGroup("few rows")} - before
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def rows_of(*rows: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"pipeline": "a b/é%=1", **row} for row in rows]


class _Closing:
    """A close of Java's that fails, or does not."""

    def __init__(self, error: str | None) -> None:
        self._error = error

    def run(self) -> None:
        if self._error:
            raise OSError(self._error)

    class Java:
        implements: Final = ["java.lang.Runnable"]


def make(spark: SparkSession, table: Path, columns: str = COLUMNS, **properties: str) -> str:
    ensure_table(spark, str(table), shape(columns), partitions=("pipeline",), properties=properties)
    return str(table)


def frame(spark: SparkSession, rows: Sequence[Mapping[str, Any]], columns: str = COLUMNS) -> DataFrame:
    return small_frame(spark, rows, shape(columns))


def contents(spark: SparkSession, table: str) -> list[str]:
    return sorted(str(row) for row in spark.read.format("delta").load(table).collect())


def by_another_engine(table: str) -> list[str]:
    return sorted(map(str, DeltaRs(table).to_pyarrow_table().to_pylist()))


def counted(spark: SparkSession, table: str) -> tuple[str, str]:
    """Files and rows of the newest commit, as the table's history has them."""
    row = DeltaTable.forPath(spark, table).history(1).collect()[0]
    return row["operationMetrics"]["numFiles"], row["operationMetrics"]["numOutputRows"]


def newest_add(table: str) -> dict[str, Any]:
    *_, newest = sorted(Path(table, "_delta_log").glob("*.json"))
    (found,) = (line["add"] for line in map(json.loads, newest.read_text().splitlines()) if "add" in line)
    return dict(found)


def test_what_is_read_is_what_delta_would_have_written(spark: SparkSession, tmp_path: Path) -> None:
    ours, deltas = make(spark, tmp_path / "our s"), make(spark, tmp_path / "deltas")
    rows = [*rows_of(FULL, EMPTY), {"pipeline": "other", **FULL}]
    with jobs_in(spark) as jobs:
        append_few(frame(spark, rows), ours)
    assert jobs == []
    frame(spark, rows).write.format("delta").mode("append").save(deltas)
    assert contents(spark, ours) == contents(spark, deltas)
    assert len(contents(spark, ours)) == 3
    # Nor do other engines see a difference.
    assert by_another_engine(ours) == by_another_engine(deltas)
    assert counted(spark, ours) == counted(spark, deltas) == ("2", "3")


def test_paths_and_partitions_are_named_as_delta_names_them(spark: SparkSession, tmp_path: Path) -> None:
    ours, deltas = make(spark, tmp_path / "ours"), make(spark, tmp_path / "deltas")
    rows = frame(spark, rows_of(FULL))
    append_few(rows, ours)
    rows.write.format("delta").mode("append").save(deltas)
    our_file, deltas_file = newest_add(ours), newest_add(deltas)
    assert our_file["path"].rpartition("/")[0] == deltas_file["path"].rpartition("/")[0]
    assert our_file["partitionValues"] == deltas_file["partitionValues"] == {"pipeline": "a b/é%=1"}
    assert json.loads(our_file["stats"]) == {"numRecords": 1}


def checked(spark: SparkSession, table: str, rows: DataFrame) -> DataFrame:
    spark.sql(f"ALTER TABLE delta.`{table}` ADD CONSTRAINT small CHECK (n < 9)")
    return rows


def mapped(spark: SparkSession, table: str, rows: DataFrame) -> DataFrame:
    set_table_property(spark, table, "delta.columnMapping.mode", "name")
    return rows


def statistics(spark: SparkSession, table: str, rows: DataFrame) -> DataFrame:
    set_table_property(spark, table, "delta.dataSkippingStatsColumns", "n")
    return rows


def computed(spark: SparkSession, table: str, rows: DataFrame) -> DataFrame:
    return rows.localCheckpoint()


def other_columns(spark: SparkSession, table: str, rows: DataFrame) -> DataFrame:
    spark.sql(f"ALTER TABLE delta.`{table}` ADD COLUMN (later string)")
    return rows


def nameless(spark: SparkSession, table: str, rows: DataFrame) -> DataFrame:
    return frame(spark, [{"pipeline": None, **FULL}])


def empty_name(spark: SparkSession, table: str, rows: DataFrame) -> DataFrame:
    return frame(spark, [{"pipeline": "", **FULL}])


def many(spark: SparkSession, table: str, rows: DataFrame) -> DataFrame:
    return frame(spark, rows_of(FULL) * 10_001)


@pytest.mark.parametrize(
    "change", [checked, mapped, statistics, computed, other_columns, nameless, empty_name, many]
)
def test_what_the_driver_cannot_write_is_left_to_delta(
    spark: SparkSession, tmp_path: Path, change: Callable[..., DataFrame]
) -> None:
    table = make(spark, tmp_path / "table")
    rows = change(spark, table, frame(spark, rows_of(FULL)))
    append_few(rows, table)
    assert "minValues" in newest_add(table)["stats"]
    assert spark.read.format("delta").load(table).where("n = 1").count() == rows.count()


def test_days_are_left_to_delta(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    ensure_table(spark, table, shape(COLUMNS), partitions=("day",))
    append_few(frame(spark, rows_of(FULL)), table)
    assert "minValues" in newest_add(table)["stats"]


def test_what_delta_refuses_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = make(spark, tmp_path / "table", COLUMNS.replace("n bigint", "n bigint NOT NULL"))
    with pytest.raises(Py4JJavaError, match="NOT NULL"):
        append_few(frame(spark, rows_of(EMPTY)), table)
    with pytest.raises(SourceError, match="no such table"):
        append_few(frame(spark, rows_of(FULL)), str(tmp_path / "nowhere"))
    assert contents(spark, table) == []


def test_a_commit_of_others_meanwhile_is_no_conflict(spark: SparkSession, tmp_path: Path) -> None:
    table = make(spark, tmp_path / "table")
    rows, transaction = frame(spark, rows_of(FULL)), Transaction(spark, table)
    transaction.write_few(rows)
    append_few(rows, table)
    transaction.commit_unfenced([], None, "Append")
    assert len(contents(spark, table)) == 2


def test_files_have_the_columns_that_delta_would_have_written(spark: SparkSession, tmp_path: Path) -> None:
    ours, deltas = make(spark, tmp_path / "ours"), make(spark, tmp_path / "deltas")
    rows = frame(spark, rows_of(FULL))
    append_few(rows, ours)
    rows.write.format("delta").mode("append").save(deltas)
    schemas = [pq.read_schema(next(Path(table).glob("*/*.parquet"))) for table in (ours, deltas)]
    assert schemas[0].equals(schemas[1], check_metadata=True)


def test_comments_on_columns_make_no_difference(spark: SparkSession, tmp_path: Path) -> None:
    table = make(spark, tmp_path / "table")
    rows = frame(spark, rows_of(FULL))
    for column in ("n", "parts.element.x"):
        spark.sql(f"ALTER TABLE delta.`{table}` ALTER COLUMN {column} COMMENT 'told'")
    with jobs_in(spark) as jobs:
        append_few(rows, table)
    assert jobs == []
    assert contents(spark, table) == sorted(map(str, rows.collect()))
    described = frame(spark, rows_of(EMPTY), COLUMNS.replace("day date", "day date COMMENT 'told'"))
    assert described.schema["day"].metadata == {"comment": "told"}
    with jobs_in(spark) as jobs:
        append_few(described, table)
    assert jobs == []


@pytest.mark.parametrize("collects", ["true", "false"])
def test_statistics_are_what_delta_would_have_kept(
    spark: SparkSession, tmp_path: Path, collects: str
) -> None:
    ours, deltas = str(tmp_path / "ours"), str(tmp_path / "deltas")
    for table in (ours, deltas):
        ensure_table(spark, table, shape(COLUMNS))
    rows = frame(spark, rows_of(FULL, {**FULL, "n": 7, "day": None}, EMPTY))
    with session_settings(spark, {"spark.databricks.delta.stats.collect": collects}):
        transaction = Transaction(spark, ours)
        with jobs_in(spark) as jobs:
            transaction.write_few(rows, with_statistics=True)
        transaction.commit_unfenced([], None, "Append")
        rows.write.format("delta").mode("append").save(deltas)
    assert jobs == []
    expected = json.loads(newest_add(deltas).get("stats") or '{"numRecords": 3}')
    assert ("minValues" in expected) == (collects == "true")
    assert json.loads(newest_add(ours)["stats"]) == expected
    assert contents(spark, ours) == contents(spark, deltas)


def test_a_failure_to_close_does_not_hide_why_a_file_could_not_be_written(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    for error, suppressed in ((None, 0), ("the disk is full", 1)):
        failed = jvm.java.lang.IllegalStateException("no such row")
        jvm.oncelake.files.FewRows.closeAfter(failed, _Closing(error))
        assert failed.getMessage() == "no such row"
        assert len(failed.getSuppressed()) == suppressed
        assert all(error in each.toString() for each in failed.getSuppressed())
