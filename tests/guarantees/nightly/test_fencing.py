"""A run that stood still while another took its lease over changes nothing any more, at whichever commit."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from delta.exceptions import MetadataChangedException
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from demo.waiting import wait_until
from pipelines.contracts.contract import DataContract
from pipelines.delta import fenced_commits
from pipelines.delta.epochs import Stamp
from pipelines.delta.fenced_commits import restore_fenced
from pipelines.delta.io import append, read
from pipelines.delta.tables import set_table_property
from pipelines.delta.transaction import StaleEpoch
from pipelines.errors import InfrastructureError, SourceError
from pipelines.ledger.certifications import certified, history
from pipelines.nightly import rebuild
from pipelines.nightly.commit_order import steps
from pipelines.records import dedup
from pipelines.steps.nightly import Night
from pipelines.steps.serving import read_serving
from tests.support.lakes import Lake
from tests.support.nights import ONE, THREE, TWO, flights_of, on, run


@pytest.fixture
def lake(make_lake: Callable[..., Lake], small: DataContract) -> Lake:
    """A lake with a certified first day, whose runs hold their lease for a second at most."""
    made = make_lake("batch.max_duration=1 second", "batch.lookback_days=0", contract=small)
    made.ingest([on(1, 1), on(2, 2), on(3, 3), on(4, 4)])
    run(made, ONE)
    return made


def begun(lake: Lake, until: str, days: list[date]) -> Iterator[str]:
    """A run that has come to a step, and stands still until it has lost the right to its lease."""
    night = steps(Night(lake.pipeline, "stood still", days))
    assert until in iter(night)
    lease_ends(lake)
    return night


def lease_ends(lake: Lake) -> None:
    def has_ended() -> bool:
        row = read(lake.spark, lake.config.ops_table("leases")).first()
        return row is not None and row["until"].astimezone(UTC) <= datetime.now(UTC)

    wait_until(has_ended, "the lease has ended", 60)


def served(lake: Lake) -> dict[int, list[int]]:
    state, rows = certified(lake.pipeline), read_serving(lake.pipeline)
    assert state is not None
    return {day.day: [number for number, _ in flights_of(rows, day)] for day in state.days}


def test_a_run_that_is_overtaken_before_a_commit_cannot_make_it(lake: Lake) -> None:
    # So many that the second day fails its audit, and is taken back; the third passes.
    lake.ingest([on(2, n) for n in range(100, 160)])
    holds = [1]
    for number, step in enumerate(("undo", "build", "keep", "certify"), 20):
        overtaken = begun(lake, step, [TWO, THREE])
        lake.ingest([on(1, number)])
        holds.append(number)
        assert run(lake, ONE)["days"] == {"2013-01-01": "certified"}
        before = len(history(lake.pipeline)), commits(lake)
        with pytest.raises(StaleEpoch, match="this run lost its lease to a later one") as lost:
            list(overtaken)
        assert lost.value.exit_code == 1
        assert (len(history(lake.pipeline)), commits(lake)) == before
        assert served(lake) == {1: holds}


def commits(lake: Lake) -> int:
    return len(list(Path(lake.config.table("batch"), "_delta_log").glob("*.json")))


def test_a_run_that_is_overtaken_while_it_writes_cannot_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its transaction was begun before the other run claimed the table."""
    inner, go_on, at_work = dedup.winners_on_known_days, tmp_path / "go on", tmp_path / "at work"

    def held_up(*args: Any) -> DataFrame:
        rows, wait_for, tell = inner(*args), str(go_on), str(at_work)

        def wait(batches: Iterator[Any]) -> Iterator[Any]:
            import time
            from pathlib import Path

            Path(tell).touch()
            while not Path(wait_for).exists():
                time.sleep(0.05)
            yield from batches

        return rows.coalesce(1).mapInArrow(wait, rows.schema)

    monkeypatch.setattr(rebuild, "winners_on_known_days", held_up)
    night = begun(lake, "build", [TWO])
    failures: list[BaseException] = []

    def finish() -> None:
        try:
            list(night)
        except InfrastructureError as error:
            failures.append(error)

    writing = threading.Thread(target=finish)
    writing.start()
    try:
        wait_until(at_work.exists, "its rows are being written", 120)
        monkeypatch.setattr(rebuild, "winners_on_known_days", inner)
        run(lake, THREE)
    finally:
        go_on.touch()
        writing.join()
    assert [type(error) for error in failures] == [StaleEpoch]
    assert served(lake) == {1: [1], 3: [3]}
    assert flights_of(lake.table("batch"), TWO) == []


def test_rows_of_others_are_not_certified_and_the_next_night_removes_them(lake: Lake) -> None:
    night = steps(Night(lake.pipeline, "beside another", [TWO]))
    assert "build" in iter(night)
    append(lake.table("batch").where("flight = 1"), lake.config.table("batch"))
    with pytest.raises(SourceError, match=r"others wrote to it .* version \d+ \(WRITE\)") as refused:
        list(night)
    assert refused.value.exit_code == 4
    assert served(lake) == {1: [1]}
    assert run(lake, TWO)["days"] == {"2013-01-02": "certified"}
    assert served(lake) == {1: [1], 2: [2]}


@pytest.mark.thorough
def test_upkeep_and_properties_between_are_no_rows_of_others(lake: Lake) -> None:
    night = Night(lake.pipeline, "beside upkeep", [TWO])
    for step in steps(night):
        if step in ("build", "audit"):
            batch = lake.config.table("batch")
            set_table_property(lake.spark, batch, "oncelake.test", step)
            DeltaTable.forPath(lake.spark, batch).optimize().executeCompaction()
            lake.spark.sql(f"VACUUM delta.`{batch}`")
    assert night.result()["days"] == {"2013-01-02": "certified"}
    assert served(lake) == {1: [1], 2: [2]}


@pytest.mark.thorough
def test_a_conflict_that_follows_a_restore_does_not_make_it_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, conflicts = str(tmp_path / "table"), [MetadataChangedException("others changed it", "trace")]
    append(spark.range(1), table)
    append(spark.range(1), table)

    def keep(*_: Any) -> None:
        if conflicts:
            raise conflicts.pop()

    monkeypatch.setattr(fenced_commits, "keep_versions", keep)
    assert restore_fenced(spark, table, 0, Stamp("application", 1, "undo")) == (2, True)
    assert not conflicts
    assert read(spark, table).count() == 1
