"""A job that is told to stop, as a whole group or twice, ends with its summary."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from testbed.waiting import wait_until
from tests.support.processes import BRIEF_SETTINGS, Job, start_job


def stream(folder: Path, jobs: list[Job]) -> Job:
    """A stream on an empty lake; its JVM has been started."""
    job = start_job(
        "speed_stream", folder, "--pipeline=flights", f"--set=lake.root={folder}/lake", *BRIEF_SETTINGS
    )
    jobs.append(job)
    wait_until(lambda: job.runs() and has_jvm(job), "Spark's JVM has started")
    return job


def has_jvm(job: Job) -> bool:
    return any(map(is_spark, psutil.Process(job.process.pid).children(recursive=True)))


def is_spark(process: psutil.Process) -> bool:
    # A Java that was only asked for its version may have ended meanwhile.
    with suppress(psutil.Error):
        return process.name() == "java" and "SparkSubmit" in " ".join(process.cmdline())
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.thorough)])
def test_a_group_that_is_told_while_spark_starts(
    number: signal.Signals, tmp_path: Path, jobs: list[Job]
) -> None:
    job = stream(tmp_path, jobs)
    os.killpg(job.process.pid, number)
    assert job.wait() == 0, job.log.read_text()[-3000:]
    assert job.summary()["status"] == "stopped"
    assert "Traceback" not in job.log.read_text()


def test_a_night_that_is_interrupted_has_not_been_done(tmp_path: Path, jobs: list[Job]) -> None:
    bronze = tmp_path / "lake"
    arguments = ("--pipeline=flights", f"--set=lake.root={bronze}", "--date=2013-01-01", *BRIEF_SETTINGS)
    job = start_job("nightly_batch", tmp_path, *arguments)
    jobs.append(job)
    wait_until(lambda: job.runs() and has_jvm(job), "Spark's JVM has started")
    os.killpg(job.process.pid, signal.SIGINT)
    assert job.wait() == 1, job.log.read_text()[-3000:]
    # Ends with the last process that could write to it, the JVM included.
    assert job.summary()["status"] == "stopped"
    assert "Traceback" not in job.log.read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.thorough)])
def test_a_stream_that_is_interrupted_twice(number: signal.Signals, tmp_path: Path, jobs: list[Job]) -> None:
    job = stream(tmp_path, jobs)
    checkpoint = tmp_path / "lake/ops/checkpoints/flights/speed"
    wait_until(lambda: job.runs() and checkpoint.exists(), "the query has started")
    os.killpg(job.process.pid, number)
    os.killpg(job.process.pid, number)
    assert job.wait() == 0, job.log.read_text()[-3000:]
    assert job.summary()["exit_code"] == 0
    assert "Traceback" not in job.log.read_text()
