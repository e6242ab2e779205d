"""A run that stood still while another took its lease over changes nothing any more, at whichever commit."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from delta.exceptions import MetadataChangedException
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pipelines.contracts.contract import DataContract
from pipelines.delta.epochs import StaleEpoch, Stamp
from pipelines.delta.fenced_commits import restore_fenced
from pipelines.delta.fencing import Restored
from pipelines.delta.io import append, read
from pipelines.delta.table_properties import set_table_property
from pipelines.errors import InfrastructureError, SourceError
from pipelines.fault_points import Point
from pipelines.ledger.certifications import certified, history
from pipelines.nightly import rebuild
from pipelines.nightly.commit_order import steps
from pipelines.records.kept_copies import kept_copies
from pipelines.steps.nightly import Night
from pipelines.steps.serving import read_serving
from testbed.waiting import wait_until
from tests.support.lake_copies import continued
from tests.support.lakes import Lake
from tests.support.nights import ONE, THREE, begin, flights_of, on, run

pytestmark = pytest.mark.usefixtures("two_partitions")

FOUR = date(2013, 1, 4)


@pytest.fixture
def lake(two_days: Lake, make_lake: Callable[..., Lake], small: DataContract) -> Lake:
    """A lake with two certified days, whose runs hold their lease for a second at most."""
    made = make_lake("batch.max_duration=1 second", "batch.lookback_days=0", contract=small)
    lake = continued(two_days, made)
    lake.ingest([on(3, 6), on(4, 7)])
    return lake


def lease_ends(lake: Lake) -> None:
    def has_ended() -> bool:
        row = read(lake.spark, lake.config.ops_table("leases")).first()
        return row is not None and row["until"].astimezone(UTC) <= datetime.now(UTC)

    wait_until(has_ended, "the lease has ended", 60)


def served(lake: Lake) -> dict[int, list[int]]:
    state, rows = certified(lake.pipeline), read_serving(lake.pipeline)
    assert state is not None
    return {day.day: [number for number, _ in flights_of(rows, day)] for day in state.days}


def commits(lake: Lake) -> int:
    return len(list(Path(lake.config.table("batch"), "_delta_log").glob("*.json")))


class HeldUp:
    """Rows that come to be written, and to no end before they are let go."""

    def __init__(self, folder: Path) -> None:
        self.at_work, self.go_on = folder / "at work", folder / "go on"

    def kept_copies(self, *args: Any) -> DataFrame:
        """The rows that a run builds, which its transaction waits for."""
        rows, wait_for, tell = kept_copies(*args), str(self.go_on), str(self.at_work)

        def wait(batches: Iterator[Any]) -> Iterator[Any]:
            import time
            from pathlib import Path

            Path(tell).touch()
            while not Path(wait_for).exists():
                time.sleep(0.05)
            yield from batches

        return rows.coalesce(1).mapInArrow(wait, rows.schema)


@contextmanager
def writing(night: Night, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[BaseException]]:
    """The transaction by which a run builds its days lasts as long as the block; how it ended, afterwards."""
    rows, failures = HeldUp(folder), list[BaseException]()

    def build() -> None:
        try:
            list(night.build())
        except InfrastructureError as error:
            failures.append(error)

    with monkeypatch.context() as patched:
        patched.setattr(rebuild, "kept_copies", rows.kept_copies)
        thread = threading.Thread(target=build)
        thread.start()
        try:
            wait_until(rows.at_work.exists, "its rows are being written", 120)
            patched.undo()
            yield failures
        finally:
            rows.go_on.touch()
            thread.join()


def test_a_run_that_is_overtaken_before_a_commit_or_while_it_writes_cannot_make_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # So many that the third day fails its audit, and is taken back; the fourth passes.
    lake.ingest([*(on(3, n) for n in range(100, 160)), on(1, 20)])
    night = Night(lake.pipeline, "stood still", [THREE, FOUR])
    rest = steps(night)
    # It has all that its commits need, and stands still until it has lost the right to its lease.
    assert Point.DAYS_KEPT in iter(rest)
    lease_ends(lake)
    # This transaction was begun before the other run claimed the table.
    with writing(night, tmp_path, monkeypatch) as failures:
        assert run(lake, ONE).days == {ONE: "certified"}
    before, holds = (len(history(lake.pipeline)), commits(lake)), {1: [1, 2, 4, 20], 2: [3, 5]}
    assert [type(error) for error in failures] == [StaleEpoch]
    assert served(lake) == holds
    assert flights_of(lake.table("batch"), FOUR) == []
    for name, step in (
        ("undo", night.restore_base()),
        ("build", night.build()),
        ("keep", night.restore_failed_days()),
        ("certify", rest),
    ):
        with pytest.raises(StaleEpoch, match="this run lost its lease to a later one") as lost:
            list(step)
        assert (name, lost.value.exit_code) == (name, 1)
        assert (name, len(history(lake.pipeline)), commits(lake)) == (name, *before)
    assert served(lake) == holds


@pytest.mark.thorough
def test_rows_of_others_are_not_certified_and_the_next_night_removes_them(lake: Lake) -> None:
    holds = {1: [1, 2, 4], 2: [3, 5]}
    night = steps(Night(lake.pipeline, "beside another", [THREE]))
    assert Point.BATCH_CLAIMED in iter(night)
    append(lake.table("batch").where("flight = 1"), lake.config.table("batch"))
    with pytest.raises(SourceError, match=r"others wrote to it .* version \d+ \(WRITE\)") as refused:
        list(night)
    assert refused.value.exit_code == 4
    assert served(lake) == holds
    assert [len(flights_of(lake.table("batch"), day)) for day in (ONE, THREE)] == [4, 1]
    begin(lake, THREE)
    assert [len(flights_of(lake.table("batch"), day)) for day in (ONE, THREE)] == [3, 0]


@pytest.mark.thorough
def test_upkeep_and_properties_between_are_no_rows_of_others(lake: Lake) -> None:
    night = Night(lake.pipeline, "beside upkeep", [THREE])
    for point in steps(night):
        if point in (Point.BATCH_CLAIMED, Point.DAYS_BUILT):
            batch = lake.config.table("batch")
            set_table_property(lake.spark, batch, "oncelake.test", point)
            DeltaTable.forPath(lake.spark, batch).optimize().executeCompaction()
            lake.spark.sql(f"VACUUM delta.`{batch}`")
    assert night.result().days == {THREE: "certified"}
    assert served(lake) == {1: [1, 2, 4], 2: [3, 5], 3: [6]}


@pytest.mark.thorough
def test_a_conflict_that_follows_a_restore_does_not_make_it_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, conflicts = str(tmp_path / "table"), [MetadataChangedException("others changed it", "trace")]
    append(spark.range(1), table)
    append(spark.range(1), table)

    sql = spark.sql

    def conflicting(statement: str) -> DataFrame:
        if conflicts and statement.startswith("ALTER TABLE"):
            raise conflicts.pop()
        return sql(statement)

    monkeypatch.setattr(spark, "sql", conflicting)
    assert restore_fenced(spark, table, 0, Stamp("application", 1, "undo")) == Restored(2, has_differed=True)
    assert not conflicts
    assert read(spark, table).count() == 1
