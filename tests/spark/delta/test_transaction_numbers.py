"""The last number of an application is the one that Delta has, wherever in the log it was found."""

import json
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.delta.epochs import StaleEpoch, Stamp
from pipelines.delta.io import append
from pipelines.delta.log import newest_snapshot
from pipelines.delta.table_properties import set_table_property
from pipelines.delta.table_state import last_batch, table_state
from pipelines.delta.tables import ensure_table, shape
from pipelines.delta.transaction import Transaction
from pipelines.delta.transaction_numbers import number_in, number_in_newest_commits
from pipelines.errors import SourceError
from pipelines.spark.session import forget_tables
from tests.support.table_copies import TableCopies

APPLICATIONS = ("speed", "spee", "night")


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path, table_copies: TableCopies) -> str:
    make = partial(ensure_table, spark, schema=shape("n int"))
    return str(table_copies.copy("numbers", tmp_path / "table", make))


def commit(spark: SparkSession, table: str, application: str, number: int) -> None:
    Transaction(spark, table).commit((), Stamp(application, number, "a note"))


def of_delta(spark: SparkSession, table: str) -> dict[str, int]:
    """What Delta itself has, as its snapshot of all commits says."""
    taken = newest_snapshot(spark, table).transactions()
    found = {application: taken.get(application) for application in (*APPLICATIONS, "nobody")}
    return {application: int(number.get()) for application, number in found.items() if number.isDefined()}


def test_any_history_has_the_numbers_that_delta_has(spark: SparkSession, table: str) -> None:
    chance, numbers = random.Random(20130101), dict[str, int]()  # noqa: S311
    for step in range(1, 16):
        what = chance.choice([*APPLICATIONS, "speed", "rows", "property"])
        if what == "rows":
            append(spark.sql("SELECT 1 AS n"), table)
        elif what == "property":
            set_table_property(spark, table, "oncelake.mark", str(chance.random()))
        else:
            # Numbers grow, as they have to; Delta itself would take any.
            numbers[what] = numbers.get(what, 0) + chance.randint(1, 3)
            commit(spark, table, what, numbers[what])
        # All of them where Delta is asked as well, which takes longer.
        for application in (*APPLICATIONS, "nobody"):
            assert last_batch(spark, table, application) == numbers.get(application)
            assert Transaction(spark, table).number_taken(application) == numbers.get(application, -1)
        state = table_state(spark, table)
        assert state is not None
        assert state.batches == numbers
        if step % 5 == 0:
            assert of_delta(spark, table) == numbers


def jobs_of(spark: SparkSession, table: str, application: str) -> tuple[int | None, int]:
    """The last number of an application, and by how many jobs it was found."""
    group = f"{table} {application}"
    spark.sparkContext.setJobGroup(group, "")
    try:
        return last_batch(spark, table, application), len(
            spark.sparkContext.statusTracker().getJobIdsForGroup(group)
        )
    finally:
        spark.sparkContext.setJobGroup("", "")


def test_a_number_that_was_taken_long_ago_is_found_without_a_job(spark: SparkSession, table: str) -> None:
    """By a process that has seen no version of the table, or an earlier one; not behind a new checkpoint."""
    commit(spark, table, "speed", 7)
    for number in range(1, 8):
        commit(spark, table, "night", number)
    assert (jobs_of(spark, table, "speed"), jobs_of(spark, table, "spee")) == ((7, 0), (None, 0))
    set_table_property(spark, table, "delta.checkpointInterval", "10")
    for number in (20, 30):
        commit(spark, table, "night", number)
    assert jobs_of(spark, table, "speed")[0] == 7
    for number in range(31, 38):
        commit(spark, table, "night", number)
    assert (jobs_of(spark, table, "speed"), jobs_of(spark, table, "spee")) == ((7, 0), (None, 0))


@pytest.mark.parametrize("is_new_process", [True, False])
@pytest.mark.parametrize("commits_after", [0, 1, 7, 8])
def test_of_a_folder_that_was_put_back_the_numbers_are_its_own(
    spark: SparkSession, table: str, commits_after: int, is_new_process: bool
) -> None:
    """The versions whose numbers were added up are made again by other commits."""
    commit(spark, table, "speed", 1)
    backup = shutil.copytree(table, f"{table}-backup")
    commit(spark, table, "speed", 2)
    for number in range(1, 7):
        commit(spark, table, "night", number)
    assert last_batch(spark, table, "speed") == 2
    shutil.rmtree(table)
    Path(backup).rename(table)
    if is_new_process:
        forget_tables()
    for _ in range(commits_after):
        # By somebody who asks for no number.
        append(spark.sql("SELECT 1 AS n"), table)
    assert (last_batch(spark, table, "speed"), last_batch(spark, table, "spee")) == (1, None)
    assert Transaction(spark, table).number_taken("speed") == 1
    assert of_delta(spark, table)["speed"] == 1


def test_commits_in_one_file_are_left_to_delta(spark: SparkSession, table: str) -> None:
    """As other writers leave them; Delta reads the file in place of the commits."""
    commit(spark, table, "speed", 7)
    for number in range(1, 9):
        commit(spark, table, "night", number)
    log = Path(table, "_delta_log")
    lines = [line for at in range(6) for line in (log / f"{at:020d}.json").read_text().splitlines()]
    # Of several commits the newest number of an application is left, and none says who made it.
    kept = [line for line in lines if '"commitInfo"' not in line and '"night"' not in line]
    night = [line for line in lines if '"night"' in line and '"commitInfo"' not in line][-1:]
    (log / f"{0:020d}.{5:020d}.compacted.json").write_text("\n".join([*kept, *night]))
    forget_tables()
    deltas = newest_snapshot(spark, table).logSegment().deltas()
    assert "compacted" in deltas.apply(0).getPath().getName()
    assert (last_batch(spark, table, "speed"), last_batch(spark, table, "spee")) == (7, None)


def test_a_number_that_another_has_committed_meanwhile_is_a_conflict(spark: SparkSession, table: str) -> None:
    commit(spark, table, "speed", 1)
    one, other = Transaction(spark, table), Transaction(spark, table)
    # What makes it one is the look at the number, which was found in the log.
    assert number_in_newest_commits(spark, newest_snapshot(spark, table), "speed") == 1
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


def test_a_large_commit_is_left_to_delta(spark: SparkSession, table: str) -> None:
    commit(spark, table, "speed", 7)
    assert number_in_newest_commits(spark, newest_snapshot(spark, table), "speed") == 7
    Transaction(spark, table).commit((), Stamp("night", 1, "x" * 1_000_000))
    assert number_in_newest_commits(spark, newest_snapshot(spark, table), "speed") is None
    assert number_in_newest_commits(spark, newest_snapshot(spark, table), "night") is None
    assert (last_batch(spark, table, "speed"), last_batch(spark, table, "night")) == (7, 1)


DAMAGES: tuple[Callable[[bytes], bytes], ...] = (
    lambda text: b"",
    lambda text: bytes(len(text)),
    lambda text: text[:-40],
)


def damaged(table: str, version: int, damage: Callable[[bytes], bytes]) -> None:
    """Leaves the file of a commit as a crash of the machine may."""
    log = Path(table, "_delta_log")
    file = log / f"{version:020d}.json"
    file.write_bytes(damage(file.read_bytes()))
    for checksum in log.glob("*.crc"):
        checksum.unlink()
    forget_tables()


def test_a_damaged_file_before_a_checkpoint_changes_nothing(
    spark: SparkSession, table: str, tmp_path: Path
) -> None:
    for number in range(1, 11):
        commit(spark, table, "speed", number)
    assert Path(table, "_delta_log", f"{10:020d}.checkpoint.parquet").exists()
    for number, damage in enumerate(DAMAGES):
        copy = str(tmp_path / f"damaged-{number}")
        shutil.copytree(table, copy)
        damaged(copy, 10, damage)
        assert last_batch(spark, copy, "speed") == 10


def test_an_empty_file_that_counts_is_told(spark: SparkSession, table: str) -> None:
    # Delta takes it for a commit that did nothing; of one that is cut off it complains itself.
    for number in (1, 2):
        commit(spark, table, "speed", number)
    damaged(table, 2, lambda text: b"")
    with pytest.raises(SourceError, match=r"2\.json: the file of a commit is empty or cut off"):
        last_batch(spark, table, "speed")
    with pytest.raises(SourceError, match="is empty or cut off"):
        Transaction(spark, table).number_taken("speed")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_text_that_is_cut_off_has_no_number(damage: Callable[[bytes], bytes]) -> None:
    action = {"txn": {"appId": "speed", "version": 7, "lastUpdated": 1}}
    text = f"{json.dumps({'commitInfo': {}})}\n{json.dumps(action)}\n"
    assert number_in(text, "speed") == 7
    assert number_in(text, "night") is None
    with pytest.raises(ValueError, match=r"."):
        number_in(damage(text.encode()).decode(), "speed")
