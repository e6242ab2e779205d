"""Rows are deleted by a run alone that no later one has overtaken."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.delta.epochs import Epoch, StaleEpoch, Stamp
from pipelines.delta.fenced_commits import claim, set_first_day
from pipelines.delta.io import read
from pipelines.delta.table_properties import (
    APPEND_ONLY,
    SPEED_FROM,
    WHOLE_FROM,
    set_table_property,
    table_property,
)
from pipelines.delta.upkeep import delete_rows


def stamps(epoch: int) -> Callable[[str], Stamp]:
    at = Epoch("flights", f"run {epoch}", epoch)

    def stamp(what: str) -> Stamp:
        nonlocal at
        at, given = at.after(what)
        return given

    return stamp


def test_a_run_that_was_overtaken_deletes_nothing_and_says_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = str(tmp_path / "table")
    spark.range(4).write.format("delta").save(table)
    set_table_property(spark, table, APPEND_ONLY, "true")
    late, next_run = stamps(1), stamps(2)
    delete_rows(spark, table, "id = 0", {SPEED_FROM: "2013-01-02"}, next_run)
    with pytest.raises(StaleEpoch):
        delete_rows(spark, table, "id < 3", {SPEED_FROM: "2013-01-01"}, late)
    assert sorted(row["id"] for row in read(spark, table).collect()) == [1, 2, 3]
    assert table_property(spark, table, SPEED_FROM) == "2013-01-02"
    assert table_property(spark, table, APPEND_ONLY) == "true"


def test_a_run_that_is_overtaken_between_its_two_commits_deletes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = str(tmp_path / "table")
    spark.range(4).write.format("delta").save(table)
    late, next_run = stamps(1), stamps(2)

    def overtaken(what: str) -> Stamp:
        if what == "delete":
            claim(spark, table, next_run("claim"))
        return late(what)

    with pytest.raises(StaleEpoch):
        delete_rows(spark, table, "id < 3", {SPEED_FROM: "2013-01-02"}, overtaken)
    assert read(spark, table).count() == 4


def test_the_first_day_that_another_has_made_later_meanwhile_stays(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As where ingest finds that Kafka has deleted records while retention decides what may go."""
    table = str(tmp_path / "table")
    spark.range(4).write.format("delta").save(table)
    set_first_day(spark, table, WHOLE_FROM, date(2013, 1, 9))
    delete_rows(spark, table, "id = 0", {WHOLE_FROM: "2013-01-02", APPEND_ONLY: "false"}, stamps(1))
    assert read(spark, table).count() == 3
    assert table_property(spark, table, WHOLE_FROM) == "2013-01-09"
    set_first_day(spark, table, WHOLE_FROM, date(2013, 1, 8))
    assert table_property(spark, table, WHOLE_FROM) == "2013-01-09"
    set_first_day(spark, table, WHOLE_FROM, date(2013, 1, 10))
    assert table_property(spark, table, WHOLE_FROM) == "2013-01-10"
