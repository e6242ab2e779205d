"""A supervisor that is killed leaves no stream behind, and no Java of one."""

from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from testbed.waiting import wait_until
from tests.support.processes import BRIEF_SETTINGS, Job, start_job

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


def test_streams_and_their_java_end_with_a_supervisor_that_is_killed(tmp_path: Path, jobs: list[Job]) -> None:
    words = ("--pipeline=flights", "--streams=speed", f"--set=lake.root={tmp_path}/lake", *BRIEF_SETTINGS)
    job = start_job("run", tmp_path, *words)
    jobs.append(job)
    checkpoint = tmp_path / "lake/ops/checkpoints/flights/speed"
    wait_until(lambda: job.runs() and checkpoint.exists(), "the query has started")
    below = psutil.Process(job.process.pid).children(recursive=True)
    assert "java" in {name_of(each) for each in below}
    job.process.kill()
    job.wait()
    _, left = psutil.wait_procs(below, timeout=120)
    assert [name_of(each) for each in left] == []


def name_of(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return process.name()
    return ""
