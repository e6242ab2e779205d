"""A commit that was made, and refused when the store sent it again, is one of the run's own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipelines.delta.epochs import Commit, Epoch, StaleEpoch, Stamp, stale_epoch_error
from pipelines.delta.fenced_commits import claim, commits_since, number_taken
from pipelines.delta.fencing import write_fenced
from pipelines.delta.idempotent_writer import DraftedRows, IdempotentWriter
from pipelines.delta.io import read
from pipelines.delta.reset_fence import ResetFence
from pipelines.delta.transaction import Transaction
from pipelines.errors import SourceError


class LostAnswer(Transaction):
    """A transaction that is told of its own commit that another one was first."""

    def commit(
        self, actions: Sequence[Any], stamp: Stamp, mode: str = "Append", condition: str | None = None
    ) -> int:
        super().commit(actions, stamp, mode, condition)
        raise stale_epoch_error(self.table)


class Overtaken(Transaction):
    """A transaction that is told that another one was first, which was."""

    def commit(
        self, actions: Sequence[Any], stamp: Stamp, mode: str = "Append", condition: str | None = None
    ) -> int:
        raise stale_epoch_error(self.table)


class Table:
    """A table whose commits are all of one kind."""

    def __init__(self, spark: SparkSession, path: str, kind: type[Transaction]) -> None:
        self.spark, self.path, self.kind = spark, path, kind

    def version(self) -> int:
        return self.begin().version

    def begin(self) -> Transaction:
        return self.kind(self.spark, self.path)

    def commits_since(self, base: int) -> list[Commit]:
        return commits_since(self.spark, self.path, base)

    def pause(self, seconds: float) -> None:
        raise AssertionError("nothing is tried again")


class Writer(IdempotentWriter):
    """Writes micro-batches of a query that nobody runs."""

    kind: type[Transaction] = LostAnswer

    def query(self, spark: SparkSession) -> str:
        return "query"

    def draft(self, rows: DataFrame) -> DraftedRows:
        transaction = self.kind(rows.sparkSession, self.table)
        transaction.write(rows)
        return DraftedRows(transaction, transaction.written_rows())


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    spark.range(1).write.format("delta").save(f"{tmp_path}/table")
    return f"{tmp_path}/table"


@pytest.mark.parametrize("kind", [LostAnswer, Overtaken])
def test_a_run_finds_its_own_commit(spark: SparkSession, path: str, kind: type[Transaction]) -> None:
    table, (_, stamp) = Table(spark, path, kind), Epoch("flights", "run", 1).after("build")

    def save() -> None:
        transaction = table.begin()
        transaction.write(spark.range(3))
        transaction.commit([], stamp)

    if kind is LostAnswer:
        assert write_fenced(table, save, stamp) == 1
        return
    claim(spark, path, Epoch("flights", "later run", 2).after("claim")[1])
    with pytest.raises(StaleEpoch):
        write_fenced(table, save, stamp)


def test_a_stream_finds_its_own_commit(spark: SparkSession, path: str) -> None:
    assert Writer(path, None).append(spark.range(3), 0, 3)
    assert read(spark, path).count() == 4


class Unhurried(Writer):
    """Writes micro-batches, each by a commit that is as good as its transaction."""

    kind = Transaction


def test_a_run_that_is_replaced_between_its_files_and_their_commit_is_told_so(
    spark: SparkSession, path: str
) -> None:
    fence = ResetFence("reset", number_taken(spark, path, "reset"))
    writer = Unhurried(path, None, fence=fence)
    for batch in (0, 1):
        assert writer.append(spark.range(3), batch, 3)
        # Nothing has to be read before the next commit.
        assert fence.passed == batch + 1
    spark.range(1).write.format("delta").mode("append").save(path)
    assert writer.append(spark.range(3), 2, 3)
    draft = writer.draft(spark.range(3))
    claim(spark, path, Stamp("reset", fence.number + 1, "reset"))
    with pytest.raises(SourceError, match="another run continues in its place"):
        writer.commit(draft, 3)
    with pytest.raises(SourceError, match="another run continues in its place"):
        writer.append(spark.range(3), 3, 3)
    assert read(spark, path).count() == 11
    # A run that begins now knows of the reset.
    later = Unhurried(path, None, fence=ResetFence("reset", number_taken(spark, path, "reset")))
    assert later.append(spark.range(3), 3, 3)
