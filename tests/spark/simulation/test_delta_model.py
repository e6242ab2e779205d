"""The model of Delta's log does what Delta does, for the same operations in the same order."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable as Stored
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.delta.conditions import days_condition
from pipelines.delta.epochs import StaleEpoch, Stamp
from pipelines.delta.fenced_commits import (
    append_fenced,
    delete_rows_fenced,
    replace_days_fenced,
    rewrite_rows,
)
from pipelines.delta.fencing import FencedTransaction, rows_deleted, write_fenced
from pipelines.delta.replaced_rows import File
from pipelines.delta.row_changes import RowChange
from pipelines.delta.table_properties import set_table_property
from pipelines.delta.transaction import Transaction
from simulation.delta import ModelLog, ModelTable
from tests.support.immediate_effects import Unscheduled

DAYS = tuple(date(2013, 1, day) for day in (1, 2, 3))
RUNS = ("mine", "other")


class RealTable:
    """A Delta table, with a row in each file."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark, self.path = spark, path
        self._rows(DAYS[:1]).write.format("delta").partitionBy("_event_date").save(path)

    def begin(self) -> FencedTransaction:
        return Transaction(self.spark, self.path)

    def append(self, days: Sequence[date], stamp: Stamp) -> int:
        return append_fenced(self._rows(days), self.path, stamp)

    def replace(self, days: Sequence[date], stamp: Stamp) -> int:
        return replace_days_fenced(self._rows(days), self.path, days, stamp)

    def delete(self, days: Sequence[date], stamps: Callable[[str], Stamp]) -> int:
        return delete_rows_fenced(self.spark, self.path, days_condition(days), {}, stamps)

    def merge(self, days: Sequence[date]) -> None:
        condition = days_condition(days)
        plus_one = F.when(F.expr(condition), F.col("id") + 1).otherwise(F.col("id"))
        change = RowChange(
            lambda rows: rows.where(condition), lambda rows: rows.withColumn("id", plus_one), deletes=False
        )
        rewrite_rows(self.spark, self.path, change)

    def append_by_hand(self, day: date) -> None:
        self._rows([day]).write.format("delta").mode("append").save(self.path)

    def set_property(self, value: str) -> None:
        set_table_property(self.spark, self.path, "oncelake.test", value)

    def version_and_taken(self) -> tuple[int, list[int]]:
        transaction = Transaction(self.spark, self.path)
        return transaction.version, [transaction.number_taken(run) for run in RUNS]

    def files(self) -> dict[str, int]:
        days = Stored(self.path).to_pyarrow_table(columns=["_event_date"]).to_pydict()["_event_date"]
        return Counter(map(str, days))

    def _rows(self, days: Sequence[date]) -> DataFrame:
        listed = F.array(*(F.lit(day) for day in days))
        return self.spark.range(1, numPartitions=1).select("id", F.explode(listed).alias("_event_date"))


class TableOfTheModel:
    """The same of the model."""

    def __init__(self) -> None:
        self.log = ModelLog("table")
        self.table = ModelTable(Unscheduled(), self.log)
        self.log.newest.files.update({"first": {"path": "first", "day": str(DAYS[0]), "rows": 1}})  # type: ignore[attr-defined]

    def begin(self) -> FencedTransaction:
        return self.table.begin()

    def append(self, days: Sequence[date], stamp: Stamp) -> int:
        return self._saved([], days, stamp)

    def replace(self, days: Sequence[date], stamp: Stamp) -> int:
        return self._saved(days, days, stamp)

    def delete(self, days: Sequence[date], stamps: Callable[[str], Stamp]) -> int:
        delete = partial(self.table.delete, days=days, left=lambda file: None)
        return rows_deleted(self.table, delete, {}, stamps)

    def merge(self, days: Sequence[date]) -> None:
        self.table.merge(days, lambda file: self.log.file(file["day"], file["rows"]))

    def append_by_hand(self, day: date) -> None:
        self.log.append_blindly(day, 1)

    def set_property(self, value: str) -> None:
        self.table.set_property("oncelake.test", value)

    def version_and_taken(self) -> tuple[int, list[int]]:
        return self.table.version(), [self.table.number_taken(run) for run in RUNS]

    def files(self) -> dict[str, int]:
        days = [file["day"] for file in self.log.newest.files.values()]
        return {day: days.count(day) for day in days}

    def _saved(self, gone: Sequence[date], days: Sequence[date], stamp: Stamp) -> int:
        save = self.table.saver(stamp, gone, lambda: [self.log.file(day, 1) for day in days])
        return write_fenced(self.table, save, stamp)


Table = RealTable | TableOfTheModel
Operation = tuple[str, str, int, Sequence[date]]


class Client:
    """What has begun transactions on a table, and ends them later."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._open = dict[str, tuple[FencedTransaction, list[Any]]]()

    def do(self, what: str, run: str, number: int, days: Sequence[date]) -> object:
        """Does one thing; returns what came of it."""
        stamp = Stamp(run, number, f"{what} {run} {number}")
        match what:
            case "begin claim" | "begin restore" | "begin partition":
                self._open[run] = self._begin(what, number, days)
            case "commit" if run in self._open:
                transaction, actions = self._open.pop(run)
                return transaction.commit(actions, stamp, "Overwrite", "true")
            case "append":
                return self.table.append(days, stamp)
            case "replace":
                return self.table.replace(days, stamp)
            case "delete":
                numbers = {"retention": number, "delete": number + 1}
                return self.table.delete(days, lambda step: Stamp(run, numbers[step], f"{step} {number}"))
            case "merge":
                self.table.merge(days)
            case "by hand":
                self.table.append_by_hand(days[0])
            case "property":
                self.table.set_property(str(number))
        return None

    def _begin(self, what: str, number: int, days: Sequence[date]) -> tuple[FencedTransaction, list[Any]]:
        transaction = self.table.begin()
        added, removed = list[File](), list[File]()
        if what == "begin restore":
            # Of all days, or of some.
            at = number % (self.table.version_and_taken()[0] + 1)
            added, removed = transaction.differences(at, days if len(days) < 2 else ())
        elif what == "begin partition":
            removed = transaction.partition_files({"_event_date": str(days[0])})
        actions = [transaction.added(file) for file in added]
        return transaction, actions + [transaction.removed(file) for file in removed]

    def outcome(self, *operation: Any) -> tuple[object, ...]:
        """Does one thing; returns what came of it, and how the table is then."""
        try:
            came: object = self.do(*operation)
        except (StaleEpoch, PySparkException) as refused:
            came = type(refused).__name__
        return came, *self.table.version_and_taken(), self.table.files()


OPERATIONS = (
    *("begin claim", "begin restore", "begin restore", "begin partition", "commit", "commit", "commit"),
    *("append", "replace", "delete", "merge", "by hand", "property"),
)


def random_operations(seed: int, count: int) -> Iterator[Operation]:
    random = Random(seed)  # noqa: S311 - nothing here is secret
    for _ in range(count):
        days = sorted(random.sample(DAYS, random.randint(1, 2)))
        yield random.choice(OPERATIONS), random.choice(RUNS), random.randint(1, 12), days


def compare(spark: SparkSession, folder: Path, operations: Sequence[Operation]) -> None:
    real, model = Client(RealTable(spark, str(folder / "table"))), Client(TableOfTheModel())
    for at, operation in enumerate(operations):
        assert (at, operation, model.outcome(*operation)) == (at, operation, real.outcome(*operation))


@pytest.mark.thorough
def test_who_commits_first_decides_what_becomes_of_those_that_have_begun(
    spark: SparkSession, tmp_path: Path
) -> None:
    one = [DAYS[0]]
    compare(
        spark,
        tmp_path,
        [
            # An application's number: a higher one that another has taken meanwhile, a lower, and its own.
            *(("begin claim", "mine", 0, one), ("append", "mine", 5, one), ("commit", "mine", 9, one)),
            *(("append", "mine", 5, one), ("replace", "mine", 4, one), ("begin claim", "mine", 0, one)),
            *(("commit", "mine", 5, one), ("begin claim", "mine", 0, one), ("commit", "mine", 6, one)),
            # What has read the table and changes nothing is refused for rows that others add all the same.
            *(("begin restore", "other", 6, DAYS), ("by hand", "other", 0, one), ("commit", "other", 1, one)),
            *(("begin restore", "other", 1, one), ("replace", "mine", 7, one), ("commit", "other", 1, one)),
            *(("begin restore", "other", 2, DAYS), ("property", "", 1, one), ("commit", "other", 1, one)),
            *(("begin restore", "other", 3, DAYS), ("commit", "other", 3, one)),
            # Rows of a day that has some, and of one that has none; by an epoch that was overtaken.
            *(("by hand", "", 0, one), ("delete", "mine", 20, one), ("delete", "mine", 22, DAYS[2:])),
            *(("by hand", "", 0, one), ("delete", "mine", 9, one), ("begin claim", "mine", 0, one)),
            *(("delete", "mine", 24, one), ("commit", "mine", 24, one), ("append", "mine", 26, one)),
            # Rows that are changed where they are, and those of a day that has none.
            *(("merge", "", 0, one), ("merge", "", 0, DAYS[2:]), ("begin restore", "other", 27, DAYS)),
            *(("merge", "", 0, one), ("commit", "other", 27, one), ("begin claim", "mine", 0, one)),
            *(("merge", "", 0, one), ("commit", "mine", 28, one)),
            # A partition: rows that others add are none of it, one that they take is a conflict.
            *(("begin partition", "mine", 0, one), ("by hand", "", 0, one), ("commit", "mine", 30, one)),
            *(("begin partition", "mine", 0, one), ("delete", "other", 40, one), ("commit", "mine", 31, one)),
            *(("by hand", "", 0, one), ("begin partition", "mine", 0, one), ("append", "mine", 33, DAYS)),
            ("commit", "mine", 34, one),
        ],
    )


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(8))
def test_random_operations_have_the_same_outcomes(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    compare(spark, tmp_path, list(random_operations(seed, 25)))
