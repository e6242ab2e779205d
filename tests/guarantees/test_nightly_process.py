"""The nightly job as a scheduler runs it: a process with an exit code, killed, doubled, in any time zone."""

import itertools
import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.config.loader import load_config
from pipelines.contracts.contract import DataContract
from pipelines.delta.io import read
from pipelines.ledger.certifications import certified
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.nightly import nightly
from pipelines.steps.serving import read_serving
from testbed.waiting import wait_until
from tests.support.command_process import CommandProcess, command_process
from tests.support.delta_rows import rows_in
from tests.support.lakes import Lake, Record, flight
from tests.support.nights import ONE, TWO, run
from tests.support.processes import BRIEF_SETTINGS, Job, start_job

ROWS = 510
"""Few, and as many as the contract asks for."""
FLIGHTS = "contract: flights.odcs.yaml\nkafka: {topic: flights}\nspeed: {watermark_delay: 6 hours"
BOTH = ("--from", "2013-01-01", "--to", "2013-01-02")


@dataclass
class Process:
    """A process for one nightly job after the other; another one where that was killed."""

    stack: ExitStack
    running: CommandProcess | None = None

    def alive(self) -> CommandProcess:
        if self.running is None or self.running.process.poll() is not None:
            self.running = self.stack.enter_context(command_process())
        return self.running

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the process that has begun the last job, and to no other."""
        assert self.running is not None
        assert self.running.process.poll() is None
        self.running.send(number)


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    with ExitStack() as stack:
        yield Process(stack)


@dataclass
class FirstNight:
    """A lake, and what `nightly_batch --all` said of its pipelines."""

    root: Path
    code: int
    summary: dict[str, Any]
    told: Any

    def copy(self, lake: Lake) -> Lake:
        """Has a lake begin as this one."""
        shutil.copytree(self.root, lake.config.root)
        return Lake(lake.pipeline, {0: itertools.count(ROWS + 1)}, itertools.count(1))


@pytest.fixture(scope="module")
def first_night(
    process: Process, spark: SparkSession, contract: DataContract, tmp_path_factory: pytest.TempPathFactory
) -> FirstNight:
    folder = tmp_path_factory.mktemp("nights")
    settings = (f"lake.root={folder}/lake", "batch.seal_by=bronze")
    lake = Lake(Pipeline(spark, load_config("flights", environ={}, settings=settings), contract))
    lake.ingest([*day(1, ROWS), *day(2, 1)])
    # By name: one whose Spark does not start, one that is refused, one that passes, one without records.
    conf = shutil.copytree("conf", folder / "conf")
    (conf / "local/pipelines").mkdir()
    (conf / "local/pipelines/astray.yml").write_text("spark: {master: nowhere}\n")
    pipelines = conf / "base/pipelines"
    (pipelines / "weather.yml").unlink()
    (pipelines / "astray.yml").write_text(FLIGHTS + "}\n")
    (pipelines / "broken.yml").write_text(FLIGHTS + ", oops: 1}\n")
    told = folder / "told.json"
    hook = f"notify: {{when: [source_error], command: [tee, {told}]}}\n"
    (pipelines / "silent.yml").write_text(FLIGHTS + "}\n" + hook)
    # Not sealed by Kafka, where another test's broker may answer at the usual port.
    given = [f"--set={setting}" for setting in settings]
    job = process.alive().start(
        folder, "nightly_batch", "--all", "--date=2013-01-01", f"--conf-dir={conf}", *given, *BRIEF_SETTINGS
    )
    code = job.wait()
    return FirstNight(folder / "lake", code, job.summary(), json.loads(told.read_text()))


def night(process: Process, lake: Lake, folder: Path, *arguments: str) -> Job:
    common = ("--pipeline", "flights", f"--set=lake.root={lake.config.root}", *BRIEF_SETTINGS)
    return process.alive().start(folder, "nightly_batch", *common, "--set=batch.seal_by=bronze", *arguments)


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


def test_every_pipeline_has_its_night_whatever_becomes_of_the_others(
    first_night: FirstNight, lake: Lake
) -> None:
    assert first_night.code == 2, first_night.summary
    summary = first_night.summary
    ended = {one["pipeline"]: (one["status"], one["exit_code"]) for one in summary["pipelines"]}
    assert ended == {
        "broken": ("failed", 2),
        "astray": ("failed", 1),
        "flights": ("done", 0),
        "silent": ("failed", 4),
    }, summary
    assert next(iter(ended)) == "broken", "a mistake is told before anything starts"
    state = certified(first_night.copy(lake).pipeline)
    assert state is not None
    assert state.days == (date(2013, 1, 1),)
    assert first_night.told == summary["pipelines"][-1]


@pytest.mark.thorough
def test_a_nightly_run_that_stood_still_changes_nothing_after_another_has_taken_over(
    first_night: FirstNight, process: Process, lake: Lake, tmp_path: Path
) -> None:
    lake = first_night.copy(lake)
    lake.ingest([*day(2, ROWS), *day(3, 1)])
    stopped = night(process, lake, tmp_path, "--date", "2013-01-02", "--set=batch.lease_duration=5 seconds")
    batch = Path(lake.config.table("batch"))
    written = "_event_date=2013-01-02/*.parquet"
    wait_until(lambda: stopped.runs() and any(batch.glob(written)), "the day is written")
    process.send(signal.SIGSTOP)
    try:
        wait_until(lambda: lease_is_over(lake), "its lease is over")
        lake.ingest([*day(1, ROWS + 1)[-1:], *day(2, ROWS + 1)[-1:]])
        run(lake, ONE, TWO)
        versions = len(list((batch / "_delta_log").glob("*.json")))
    finally:
        process.send(signal.SIGCONT)
    assert stopped.wait() == 1, stopped.log.read_text()[-3000:]
    assert "this run lost its lease to a later one" in stopped.summary()["error"]
    assert len(list((batch / "_delta_log").glob("*.json"))) == versions
    state, serving = certified(lake.pipeline), read_serving(lake.pipeline)
    assert state is not None
    assert state.days == (date(2013, 1, 1), date(2013, 1, 2))
    assert (rows_of(serving, 1), rows_of(serving, 2)) == (ROWS + 1, ROWS + 1)


def test_a_nightly_run_killed_after_its_commit_leaves_nothing_to_be_seen_and_the_next_one_repairs(
    first_night: FirstNight, process: Process, lake: Lake, tmp_path: Path
) -> None:
    lake = first_night.copy(lake)
    lake.ingest([*day(1, ROWS + 1), *day(2, ROWS)])
    log = Path(lake.config.table("batch")) / "_delta_log"
    before = builds(log)

    killed = night(process, lake, tmp_path, *BOTH)
    wait_until(lambda: killed.runs() and builds(log) > before, "the days are written")
    process.send(signal.SIGKILL)
    assert killed.wait() == 137

    written = Counter(day for (day,) in rows_in(lake.config.table("batch"), "_event_date"))
    assert written[ONE] == ROWS + 1
    assert rows_of(read_serving(lake.pipeline), 1) == ROWS
    done = nightly(lake.pipeline, "again", [ONE, TWO])
    assert done.days == {ONE: "certified", TWO: "certified"}
    assert done.counts.days_repaired == 1, done
    served = [tuple(row) for row in read_serving(lake.pipeline).select("_event_date", "flight").collect()]
    assert Counter(day for day, _ in served) == {ONE: ROWS + 1, TWO: ROWS}
    assert len({*served}) == len(served)


def lease_is_over(lake: Lake) -> bool:
    row = read(lake.spark, lake.config.ops_table("leases")).first()
    return row is not None and row["until"].astimezone(UTC) <= datetime.now(UTC)


@pytest.mark.thorough
def test_of_two_nightly_processes_at_once_one_decides_in_any_time_zone_and_the_other_says_so(
    lake: Lake, start: Callable[..., Job]
) -> None:
    lake.ingest([*day(1, ROWS), *day(2, 1)])
    # The second day has fewer rows than the contract asks for.
    first = start("nightly_batch", *BOTH, TZ="Asia/Kolkata")
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
