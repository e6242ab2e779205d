"""The last number of an application is the one that Delta has, wherever in the log it was found."""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.delta.epochs import Stamp
from pipelines.delta.io import append
from pipelines.delta.log import newest_snapshot
from pipelines.delta.table_properties import set_table_property
from pipelines.delta.table_state import last_batch
from pipelines.delta.tables import ensure_table, shape
from pipelines.delta.transaction import StaleEpoch, Transaction
from pipelines.delta.transaction_numbers import newest_number

APPLICATIONS = ("speed", "spee", "night")


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "table")
    ensure_table(spark, path, shape("n int"))
    return path


def commit(spark: SparkSession, table: str, application: str, number: int) -> None:
    Transaction(spark, table).commit((), Stamp(application, number, "a note"))


def test_any_history_has_the_numbers_that_delta_has(spark: SparkSession, table: str) -> None:
    chance, numbers = random.Random(20130101), dict.fromkeys(APPLICATIONS, 0)  # noqa: S311
    for _ in range(25):
        what = chance.choice([*APPLICATIONS, "speed", "rows", "property"])
        if what == "rows":
            append(spark.sql("SELECT 1 AS n"), table)
        elif what == "property":
            set_table_property(spark, table, "oncelake.mark", str(chance.random()))
        else:
            # Numbers grow, as they have to; Delta itself would take any.
            numbers[what] += chance.randint(1, 3)
            commit(spark, table, what, numbers[what])
        taken = newest_snapshot(spark, table).transactions()
        for application in (*APPLICATIONS, "nobody"):
            of_delta = taken.get(application)
            expected = int(of_delta.get()) if of_delta.isDefined() else None
            assert last_batch(spark, table, application) == expected
            assert Transaction(spark, table).number_taken(application) == (
                -1 if expected is None else expected
            )


def test_a_number_that_another_has_committed_meanwhile_is_a_conflict(spark: SparkSession, table: str) -> None:
    commit(spark, table, "speed", 1)
    one, other = Transaction(spark, table), Transaction(spark, table)
    # What makes it one is the look at the number, which was found in the log.
    assert newest_number(spark, table, one.version, "speed") == 1
    other.commit((), Stamp("speed", 2, "a note"))
    with pytest.raises(StaleEpoch):
        one.commit((), Stamp("speed", 2, "a note"))
    assert last_batch(spark, table, "speed") == 2


def test_of_another_application_it_is_none(spark: SparkSession, table: str) -> None:
    commit(spark, table, "speed", 1)
    one, other = Transaction(spark, table), Transaction(spark, table)
    other.commit((), Stamp("night", 2, "a note"))
    one.commit((), Stamp("speed", 2, "a note"))
    assert (last_batch(spark, table, "speed"), last_batch(spark, table, "night")) == (2, 2)


def test_a_large_commit_or_one_that_is_gone_is_left_to_delta(spark: SparkSession, table: str) -> None:
    commit(spark, table, "speed", 7)
    version = newest_snapshot(spark, table).version()
    assert newest_number(spark, table, version, "speed") == 7
    assert newest_number(spark, table, version + 1, "speed") is None
    Transaction(spark, table).commit((), Stamp("night", 1, "x" * 1_000_000))
    assert newest_number(spark, table, version + 1, "speed") is None
    assert newest_number(spark, table, version + 1, "night") is None
    assert (last_batch(spark, table, "speed"), last_batch(spark, table, "night")) == (7, 1)
