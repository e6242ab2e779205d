"""Readers that know nothing of Oncelake get certified days from one table or a view, and no others."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli.job_runner import JobFailed
from pipelines.contracts.contract import DataContract
from pipelines.delta.io import append, read
from pipelines.delta.tables import ensure_table, shape, version
from pipelines.errors import ConfigError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.steps.maintain import maintain
from pipelines.steps.serving import refresh_view, stale_view
from pipelines.steps.serving_table import refresh_readers_or_warn, refresh_table
from tests.support.cli_calls import night
from tests.support.engines import Rows, rows_of
from tests.support.lakes import Lake
from tests.support.nights import ONE, TWO, on, run
from tests.support.prepared_lakes import Nights, PreparedLake

FIRST_NIGHT = [(ONE, 1)]
BOTH_NIGHTS = [(ONE, 1), (TWO, 2), (TWO, 4)]


class Killed(Exception):
    """Stands for the end of the process."""


def kill() -> None:
    raise Killed


@dataclass(frozen=True)
class Rebuilt:
    """A day was certified, and rebuilt for records that came late; what readers had and were told.

    The night that rebuilt it could neither record its steps nor make the view of the configuration.

    Attributes:
        lake: the lake.
        read: what was in the serving table, in order of `HISTORY`.
        uncertified: while the rebuilt day was not certified: the rows of the batch table, what was warned of,
            and by how many versions the serving table had changed.
        told: the summary of that night.
        stale: what was said of a view that showed the state before it: before, then, and when it was renewed.
    """

    lake: Lake
    read: list[Rows]
    uncertified: tuple[int, list[str], int]
    told: dict[str, Any]
    stale: list[list[str]]


HISTORY = (
    ("the first day is certified", FIRST_NIGHT),
    ("the second is certified, and the run dies when it has copied the files", FIRST_NIGHT),
    ("it comes to its end", BOTH_NIGHTS),
    ("the second is built again, and not certified", BOTH_NIGHTS),
    ("it is certified", [*BOTH_NIGHTS, (TWO, 7)]),
)


@pytest.fixture
def served_lake(certified_lake: Callable[[Nights], Lake]) -> Lake:
    """A lake after one night, with a serving table."""
    lake = certified_lake("one night")
    lake.config = served(lake, is_served=True)
    refresh_table(lake.pipeline)
    return lake


@pytest.fixture(scope="module")
def rebuilt(prepared_lake: PreparedLake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rebuilt]:
    lake = prepared_lake.copied(tmp_path_factory.mktemp("rebuilt") / "lake", "one night")
    lake.config = served(lake, is_served=True, view="no_such_schema.flights")
    table = lake.config.serving_table
    refresh_table(lake.pipeline)
    read = [rows_of(table)]

    prepared_lake.bring_on(lake, "two nights")
    with armed(Point.FILES_COPIED, kill), pytest.raises(Killed):
        refresh_table(lake.pipeline)
    read.append(rows_of(table))
    refresh_table(lake.pipeline)
    read.append(rows_of(table))

    # A copy of an event and another one come late.
    lake.ingest([on(2, 2, tailnum="N2"), on(2, 7)])
    shutil.rmtree(lake.config.ops_table("runs"))
    ensure_table(lake.spark, lake.config.ops_table("runs"), shape("something string"))
    before, uncertified = version(lake.spark, table), list[tuple[int, list[str], int]]()

    def look() -> None:
        warnings = refresh_readers_or_warn(lake.pipeline)
        uncertified.append((lake.count("batch"), warnings, version(lake.spark, table) - before))
        read.append(rows_of(table))

    viewed = lake.variant(config=served(lake, is_served=True, view="stale_flights")).pipeline
    refresh_view(viewed)
    try:
        stale = [stale_view(viewed)]
        with armed(Point.DAYS_BUILT, look):
            told = night(lake, "--date", TWO.isoformat())
        read.append(rows_of(table))
        stale.append(stale_view(viewed))
        refresh_view(viewed)
        stale.append(stale_view(viewed))
        yield Rebuilt(lake, read, uncertified[0], told, stale)
    finally:
        lake.spark.sql("DROP VIEW stale_flights")


def served(lake: Lake, *, is_served: bool, view: str | None = None) -> Any:
    serving = lake.config.serving.model_copy(update={"table": is_served, "view": view})
    return lake.config.model_copy(update={"serving": serving})


def test_they_see_a_day_when_it_is_certified_whole_and_each_key_once(
    rebuilt: Rebuilt, prepared_lake: PreparedLake
) -> None:
    assert list(zip((when for when, _ in HISTORY), rebuilt.read, strict=True)) == list(HISTORY)
    rows, (warned_of_view,), versions = rebuilt.uncertified
    assert (rows, versions) == (len(HISTORY[-1][1]), 0)
    assert warned_of_view.startswith("serving.view:")

    # A batch table that took the place of the certified one is not taken for it.
    lake, table = rebuilt.lake, rebuilt.lake.config.serving_table
    batch = lake.config.table("batch")
    shutil.rmtree(batch)
    shutil.copytree(prepared_lake.table("one night", lake, batch), batch)
    with pytest.raises(SourceError):
        refresh_table(lake.pipeline)
    _, warning = refresh_readers_or_warn(lake.pipeline)
    assert warning.startswith(f"serving.table: {table} could not be brought up to date")
    assert rows_of(table) == rebuilt.read[-1]


def test_neither_the_record_of_steps_nor_the_view_makes_a_certified_night_fail_and_both_are_told(
    rebuilt: Rebuilt,
) -> None:
    assert rebuilt.told["days"] == {"2013-01-02": "certified"}
    of_steps, of_view = rebuilt.told["warnings"]
    assert "the steps of run run are not recorded" in of_steps
    assert of_view.startswith("serving.view: no_such_schema.flights could not be recreated")
    assert of_view.endswith("oncelake maintain --pipeline flights")


def test_a_view_of_another_state_is_told(rebuilt: Rebuilt) -> None:
    before, (told_of_view,), renewed = rebuilt.stale
    assert before == renewed == []
    assert "stale_flights is stale: found version" in told_of_view


@pytest.mark.thorough
def test_a_failed_night_changes_nothing_and_upkeep_removes_what_the_table_has_had(
    served_lake: Lake, contract: DataContract
) -> None:
    lake, table = served_lake, served_lake.config.serving_table
    lake.ingest([on(1, 7)])
    small, lake.contract = lake.contract, contract
    with pytest.raises(JobFailed, match="rows: found 2"):
        night(lake, "--date", ONE.isoformat())
    assert rows_of(table) == FIRST_NIGHT
    lake.contract = small
    night(lake, "--date", ONE.isoformat())
    assert rows_of(table) == [(ONE, 1), (ONE, 7)]

    def files() -> set[Path]:
        return {*Path(table).glob("_event_date=*/*.parquet")}

    before = files()
    maintain(lake.pipeline, "upkeep", dry_run=False, vacuum_now=True)
    assert files() < before
    assert rows_of(table) == [(ONE, 1), (ONE, 7)]


@pytest.mark.thorough
def test_of_two_runs_the_one_that_knows_more_decides(served_lake: Lake) -> None:
    table = served_lake.config.serving_table
    run(served_lake, TWO)

    overtaken: list[bool] = []

    def overtake() -> None:
        # The other run comes here as well, and so does this one when it tries again.
        if not overtaken:
            overtaken.append(True)
            run(served_lake, ONE)
            refresh_table(served_lake.pipeline)

    served_lake.ingest([on(1, 7)])
    with armed(Point.FILES_COPIED, overtake):
        refresh_table(served_lake.pipeline)
    assert rows_of(table) == [(ONE, 1), (ONE, 7), *BOTH_NIGHTS[1:]]


@pytest.mark.thorough
def test_a_table_that_was_changed_or_lost_is_mended_and_another_one_is_left_alone(
    served_lake: Lake, tmp_path: Path
) -> None:
    lake, table = served_lake, served_lake.config.serving_table
    shutil.copytree(table, tmp_path / "backup")
    append(read(lake.spark, table), table)
    run(lake, TWO)
    refresh_table(lake.pipeline)
    assert rows_of(table) == BOTH_NIGHTS
    shutil.rmtree(table)
    shutil.copytree(tmp_path / "backup", table)
    refresh_table(lake.pipeline)
    assert rows_of(table) == BOTH_NIGHTS
    shutil.rmtree(table)
    refresh_table(lake.pipeline)
    assert rows_of(table) == BOTH_NIGHTS

    lake.config = served(lake, is_served=False)
    (warning,) = refresh_readers_or_warn(lake.pipeline)
    assert warning.startswith("serving.table: found false, and")
    lake.config = served(lake, is_served=True)
    shutil.rmtree(table)
    lake.spark.range(3).write.format("delta").save(table)
    with pytest.raises(ConfigError, match="is not the serving table of this pipeline"):
        refresh_table(lake.pipeline)
    assert read(lake.spark, table).count() == 3
