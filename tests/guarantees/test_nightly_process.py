"""The nightly job as a scheduler runs it: a process with an exit code, killed, doubled, in any time zone."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from demo.waiting import wait_until
from pipelines.delta.io import read
from pipelines.ledger.certifications import certified
from pipelines.steps.nightly import nightly
from pipelines.steps.serving import read_serving
from tests.support.lakes import Lake, Record, flight
from tests.support.processes import BRIEF_SETTINGS, Job, start_job

ROWS = 1_200


@pytest.fixture
def start(lake: Lake, tmp_path: Path, jobs: list[Job]) -> Callable[..., Job]:
    def start_one(name: str, *arguments: str, **environment: str) -> Job:
        common = ("--pipeline", "flights", f"--set=lake.root={lake.config.root}", *BRIEF_SETTINGS)
        common = (*common, "--set=batch.seal_by=bronze")
        jobs.append(start_job(name, tmp_path, *common, *arguments, **environment))
        return jobs[-1]

    return start_one


def day(number: int, rows: int) -> list[Record]:
    sent = datetime(2013, 1, number, 12, tzinfo=UTC)
    departure = f"2013-01-{number:02}T05:15:00-05:00"
    return [Record(flight(flight=n + 1, scheduled_departure=departure), sent=sent) for n in range(rows)]


def rows_of(frame: object, number: int) -> int:
    count: int = frame.where(f"_event_date = DATE'2013-01-{number:02}'").count()  # type: ignore[attr-defined]
    return count


def builds(log: Path) -> int:
    """How many commits of a Delta log have built days."""
    return sum('"userMetadata":"build ' in commit.read_text() for commit in log.glob("*.json"))


def test_a_nightly_run_killed_after_its_commit_leaves_nothing_to_be_seen_and_the_next_one_repairs(
    lake: Lake, start: Callable[..., Job]
) -> None:
    lake.ingest([*day(1, ROWS), *day(2, 1)])
    nightly(lake.pipeline, "run", [date(2013, 1, 1)])
    lake.ingest([*day(1, ROWS + 1), *day(2, ROWS)])
    log = Path(lake.config.table("batch")) / "_delta_log"
    before = builds(log)

    killed = start("nightly_batch", "--from", "2013-01-01", "--to", "2013-01-02")
    wait_until(lambda: killed.runs() and builds(log) > before, "the days are written")
    killed.kill()

    assert rows_of(lake.table("batch"), 1) == ROWS + 1
    assert rows_of(read_serving(lake.pipeline), 1) == ROWS
    again = start("nightly_batch", "--from", "2013-01-01", "--to", "2013-01-02")
    assert again.wait() == 0, again.log.read_text()[-3000:]
    assert again.summary()["days"] == {"2013-01-01": "certified", "2013-01-02": "certified"}
    serving = read_serving(lake.pipeline)
    assert (rows_of(serving, 1), rows_of(serving, 2)) == (ROWS + 1, ROWS)
    assert serving.groupBy("flight", "_event_date").count().where("count > 1").isEmpty()


def test_a_nightly_run_that_stood_still_changes_nothing_after_another_has_taken_over(
    lake: Lake, start: Callable[..., Job]
) -> None:
    lake.ingest([*day(1, ROWS), *day(2, ROWS), *day(3, 1)])
    stopped = start("nightly_batch", "--date", "2013-01-01", "--set=batch.lease_duration=10 seconds")
    batch = Path(lake.config.table("batch"))
    wait_until(lambda: stopped.runs() and any(batch.glob("_event_date=*/*.parquet")), "the day is written")
    os.killpg(stopped.process.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: lease_is_over(lake), "its lease is over")
        lake.ingest(day(1, ROWS + 1)[-1:])
        for number in (2, 1):
            nightly(lake.pipeline, "the other", [date(2013, 1, number)])
        versions = len(list((batch / "_delta_log").glob("*.json")))
    finally:
        os.killpg(stopped.process.pid, signal.SIGCONT)
    assert stopped.wait() == 1, stopped.log.read_text()[-3000:]
    assert "this run lost its lease to a later one" in stopped.summary()["error"]
    assert len(list((batch / "_delta_log").glob("*.json"))) == versions
    state, serving = certified(lake.pipeline), read_serving(lake.pipeline)
    assert state is not None
    assert state.days == (date(2013, 1, 1), date(2013, 1, 2))
    assert (rows_of(serving, 1), rows_of(serving, 2)) == (ROWS + 1, ROWS)


def lease_is_over(lake: Lake) -> bool:
    row = read(lake.spark, lake.config.ops_table("leases")).first()
    return row is not None and row["until"].astimezone(UTC) <= datetime.now(UTC)


@pytest.mark.thorough
def test_of_two_nightly_processes_at_once_one_decides_in_any_time_zone_and_the_other_says_so(
    lake: Lake, start: Callable[..., Job]
) -> None:
    lake.ingest([*day(1, ROWS), *day(2, 1)])
    # The second day has fewer rows than the contract asks for.
    both = ("--from", "2013-01-01", "--to", "2013-01-02")
    first = start("nightly_batch", *both, TZ="Asia/Kolkata")
    # It is stopped while it holds the lease, so that the other cannot come too late.
    leases = Path(lake.config.ops_table("leases"))
    wait_until(lambda: first.runs() and any(leases.glob("pipeline=flights/*.parquet")), "the lease is taken")
    wait_until(lambda: first.runs() and len(list((leases / "_delta_log").glob("*.json"))) > 1, "it is held")
    os.killpg(first.process.pid, signal.SIGSTOP)
    second = start("nightly_batch", "--date", "2013-01-01")
    try:
        assert second.wait() == 1
        assert "is at work on this pipeline now; this run has changed nothing" in second.summary()["error"]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(first.process.pid, signal.SIGCONT)
    assert first.wait() == 3, first.log.read_text()[-3000:]
    summary = first.summary()
    assert (summary["exit_code"], summary["status"]) == (3, "failed")
    assert summary["days"] == {"2013-01-01": "certified", "2013-01-02": "failed"}
    state = certified(lake.pipeline)
    assert state is not None
    assert state.days == (date(2013, 1, 1),)
    assert rows_of(read(lake.spark, lake.config.table("batch"), state.version), 1) == ROWS
    serving = read_serving(lake.pipeline)
    assert rows_of(serving, 1) == ROWS
    row = serving.where("flight = 1").first()
    assert row is not None
    assert row["scheduled_departure"].astimezone(UTC) == datetime(2013, 1, 1, 10, 15, tzinfo=UTC)
