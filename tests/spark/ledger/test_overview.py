"""What the ledgers say of many pipelines is read at once, whatever their number."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from pipelines.config.model import PipelineConfig
from pipelines.delta.fenced_commits import append_few
from pipelines.delta.tables import ensure_table, shape, small_frame
from pipelines.ledger.lease_holders import HeldLease, backfill_lease_name, this_process
from pipelines.ledger.leases import backfill_lease, lease
from pipelines.ledger.ops_tables import LEASES, RUNS
from pipelines.ledger.overview import ledgers
from tests.support.lakes import Lake

pytestmark = pytest.mark.spark

DAYS = 31
NOW = datetime(2026, 1, 2, 3, tzinfo=UTC)
HOUR = timedelta(hours=1)


@contextmanager
def jobs_in(spark: SparkSession, group: str) -> Iterator[list[int]]:
    """The jobs that Spark starts for the block."""
    found = list[int]()
    spark.sparkContext.setJobGroup(group, "of a test")
    try:
        yield found
    finally:
        found += spark.sparkContext.statusTracker().getJobIdsForGroup(group)
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def named(lake: Lake, number: int) -> PipelineConfig:
    return lake.config.model_copy(update={"name": f"pipeline-{number}"})


def held(name: str, number: int) -> dict[str, object]:
    since = NOW - number * HOUR
    return HeldLease(f"run-{number}", this_process(), since, NOW + HOUR, number, job="maintain").row(name)


def step(name: str, number: int) -> dict[str, object]:
    at = {"started_at": NOW, "ended_at": NOW + HOUR, "first_day": NOW.date(), "last_day": NOW.date()}
    told = {"pipeline": name, "run_id": f"night-{number}", "step": "seal", "status": "done", "days": 1}
    return {**told, "detail": "", **at}


def test_two_hundred_pipelines_are_read_by_as_many_jobs_as_one(lake: Lake) -> None:
    configs = [named(lake, number) for number in range(200)]
    rows = [held(each.name, number) for number, each in enumerate(configs)]
    rows += [held(backfill_lease_name(each.name), 9) for each in configs[:50]]
    LEASES.ensure(lake.pipeline)
    append_few(small_frame(lake.spark, rows, LEASES.schema), LEASES.path(lake.pipeline))
    RUNS.ensure(lake.pipeline)
    steps = [step(each.name, number) for number, each in enumerate(configs)]
    append_few(small_frame(lake.spark, steps, RUNS.schema), RUNS.path(lake.pipeline))

    # Files that no process has listed yet are listed once.
    assert [*ledgers(lake.spark, configs[:1], DAYS)] == ["pipeline-0"]
    with jobs_in(lake.spark, "one") as of_one:
        ledgers(lake.spark, configs[:1], DAYS)
    with jobs_in(lake.spark, "all") as of_all:
        found = ledgers(lake.spark, configs, DAYS)
    assert len(of_all) == len(of_one) > 0
    for number, config in enumerate(configs):
        told = found[config.name]
        assert told.lease
        assert (told.lease.run_id, told.lease.job) == (f"run-{number}", "maintain")
        assert told.lease.since == NOW - number * HOUR
        assert (told.backfill_lease is not None) == (number < 50)
        assert [each.run_id for each in told.steps] == [f"night-{number}"]


def test_both_leases_of_a_pipeline_are_told_with_their_commands_while_they_are_held(lake: Lake) -> None:
    with lease(lake.pipeline, "night", "nightly_batch"), backfill_lease(lake.pipeline, "fill", "backfill"):
        told = ledgers(lake.spark, [lake.config], DAYS)["flights"]
        now = datetime.now(UTC)
        assert told.lease
        assert told.backfill_lease
        for state, run, job in (
            (told.lease, "night", "nightly_batch"),
            (told.backfill_lease, "fill", "backfill"),
        ):
            assert (state.run_id, state.job, state.pid) == (run, job, this_process().pid)
            assert (state.is_held(now), state.is_gone) == (True, False)
    told = ledgers(lake.spark, [lake.config], DAYS)["flights"]
    assert told.lease
    assert told.backfill_lease
    now = datetime.now(UTC)
    assert not told.lease.is_held(now)
    assert not told.backfill_lease.is_held(now)


def test_a_lease_of_an_earlier_release_has_no_command(make_lake: Callable[..., Lake]) -> None:
    lake = make_lake()
    old = shape(LEASES.ddl.removesuffix(", job string"))
    assert "job" not in old.names
    path = LEASES.path(lake.pipeline)
    ensure_table(lake.spark, path, old, partitions=LEASES.partitions)
    row = {name: value for name, value in held("flights", 1).items() if name != "job"}
    append_few(small_frame(lake.spark, [row], old), path)
    told = ledgers(lake.spark, [lake.config], DAYS)["flights"].lease
    assert told
    assert (told.run_id, told.job) == ("run-1", None)
    # The next run adds the column, and says what it is.
    with lease(lake.pipeline, "night", "nightly_batch"):
        told = ledgers(lake.spark, [lake.config], DAYS)["flights"].lease
    assert told
    assert (told.run_id, told.job) == ("night", "nightly_batch")
