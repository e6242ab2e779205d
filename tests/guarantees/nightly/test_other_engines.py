"""Engines that know nothing of Oncelake read certified days from one table, and no others."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pipelines.cli import nightly
from pipelines.cli.job_runner import JobFailed
from pipelines.contracts.contract import DataContract
from pipelines.delta.io import append, read
from pipelines.delta.tables import version
from pipelines.errors import ConfigError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.steps.maintain import maintain
from pipelines.steps.nightly import Night
from pipelines.steps.serving_table import refresh_readers_or_warn, refresh_table
from tests.support.engines import rows_of
from tests.support.lakes import Lake
from tests.support.nights import ONE, TWO, on, run
from tests.support.prepared_lakes import Nights, PreparedLake

FIRST_NIGHT = [(ONE, 1)]
BOTH_NIGHTS = [(ONE, 1), (TWO, 2), (TWO, 4)]


class Killed(Exception):
    """Stands for the end of the process."""


def kill() -> None:
    raise Killed


@pytest.fixture
def served_lake(certified_lake: Callable[[Nights], Lake]) -> Lake:
    """A lake after one night, with a serving table."""
    lake = certified_lake("one night")
    lake.config = served(lake, is_served=True)
    refresh_table(lake.pipeline)
    return lake


def served(lake: Lake, *, is_served: bool) -> Any:
    serving = lake.config.serving.model_copy(update={"table": is_served})
    return lake.config.model_copy(update={"serving": serving})


def night(lake: Lake, monkeypatch: pytest.MonkeyPatch, day: str) -> dict[str, Any]:
    """What `nightly_batch --date DAY` does once there is a session."""
    bodies: list[Any] = []
    with monkeypatch.context() as patched:
        patched.setattr(nightly, "run_job", lambda job, options: bodies.append(job.body))
        CliRunner().invoke(
            nightly.nightly_batch, ["--pipeline", "flights", "--date", day], catch_exceptions=False
        )
    told: dict[str, Any] = bodies[0](lake.pipeline, "run")
    return told


def test_they_see_a_day_when_it_is_certified_whole_and_each_key_once(
    served_lake: Lake,
    prepared_lake: PreparedLake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake, table = served_lake, served_lake.config.serving_table
    assert rows_of(table) == FIRST_NIGHT

    # A day that is built and not certified, by a run that dies.
    begun = Night(lake.pipeline, "begun", [TWO])
    with begun.hold():
        for step in (begun.plan_days, begun.restore_base, begun.build):
            list(step())
    assert lake.table("batch").count() == len(BOTH_NIGHTS)
    before = version(lake.spark, table)
    assert refresh_readers_or_warn(lake.pipeline) == []
    assert (rows_of(table), version(lake.spark, table)) == (FIRST_NIGHT, before)

    # It is certified, and the run dies when it has copied the files.
    run(lake, TWO)
    with armed(Point.FILES_COPIED, kill), pytest.raises(Killed):
        refresh_table(lake.pipeline)
    assert rows_of(table) == FIRST_NIGHT
    refresh_table(lake.pipeline)
    assert rows_of(table) == BOTH_NIGHTS

    # A copy of an event and another one come late, and the day is rebuilt.
    lake.ingest([on(2, 2, tailnum="N2"), on(2, 7)])
    assert night(lake, monkeypatch, TWO.isoformat())["warnings"] == []
    rebuilt = [*BOTH_NIGHTS, (TWO, 7)]
    assert rows_of(table) == rebuilt

    # A batch table that took the place of the certified one is not taken for it.
    batch = lake.config.table("batch")
    shutil.rmtree(batch)
    shutil.copytree(prepared_lake.table("one night", lake, batch), batch)
    with pytest.raises(SourceError):
        refresh_table(lake.pipeline)
    (warning,) = refresh_readers_or_warn(lake.pipeline)
    assert warning.startswith(f"serving.table: {table} could not be brought up to date")
    assert rows_of(table) == rebuilt


@pytest.mark.thorough
def test_a_failed_night_changes_nothing_and_upkeep_removes_what_the_table_has_had(
    served_lake: Lake, contract: DataContract, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, table = served_lake, served_lake.config.serving_table
    lake.ingest([on(1, 7)])
    small, lake.contract = lake.contract, contract
    with pytest.raises(JobFailed, match="rows: found 2"):
        night(lake, monkeypatch, ONE.isoformat())
    assert rows_of(table) == FIRST_NIGHT
    lake.contract = small
    night(lake, monkeypatch, ONE.isoformat())
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
