"""The demo's processes are started again when they die, and never outlive it."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from demo import processes
from demo.folder import MARKER, DemoFolder
from demo.processes import Job, StreamingJobs, end_leftovers
from pipelines.errors import ConfigError, InfrastructureError
from testbed.waiting import wait_until

pytestmark = pytest.mark.patient

FOREVER = "import time\nwhile True: time.sleep(1)"
STOPS_CLEANLY = (
    "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\nprint('up', flush=True)\n"
)
WITH_CHILD = (
    "import subprocess, sys, time\n"
    "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid, flush=True)\n"
    "time.sleep(600)"
)


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[list[Job]]:
    started: list[Job] = []
    yield started
    for job in started:
        job.end()


def job(jobs: list[Job], folder: Path, code: str, name: str = "job") -> Job:
    made = Job(name, [sys.executable, "-c", code], folder, folder)
    jobs.append(made)
    return made


def pid_of(job: Job) -> int:
    assert job.pid is not None
    return job.pid


def await_output(job: Job) -> str:
    wait_until(lambda: job.out.exists() and job.out.read_text().endswith("\n"), "the job speaks", 10)
    return job.out.read_text()


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_failed_job_is_an_error_with_its_last_words_and_its_log(tmp_path: Path, jobs: list[Job]) -> None:
    failing = job(jobs, tmp_path, "import sys; print('no such topic', file=sys.stderr); sys.exit(4)")
    failing.start()
    with pytest.raises(InfrastructureError, match=r"exit code 4.*no such topic") as error:
        failing.wait(10)
    assert str(failing.log) in str(error.value)


def test_a_job_that_does_not_end_is_an_error_within_bounds(tmp_path: Path, jobs: list[Job]) -> None:
    endless = job(jobs, tmp_path, FOREVER)
    endless.start()
    with pytest.raises(InfrastructureError, match=r"waited 0\.3 s in vain until job ends"):
        endless.wait(0.3)


def test_stopping_asks_by_sigterm_and_expects_a_clean_end(tmp_path: Path, jobs: list[Job]) -> None:
    clean = job(jobs, tmp_path, STOPS_CLEANLY + FOREVER)
    clean.start()
    await_output(clean)
    clean.stop()
    assert clean.exit_code() == 0


def test_a_job_that_dies_of_sigterm_did_not_stop_cleanly(tmp_path: Path, jobs: list[Job]) -> None:
    unclean = job(jobs, tmp_path, "print('up', flush=True)\n" + FOREVER)
    unclean.start()
    await_output(unclean)
    with pytest.raises(InfrastructureError, match="exit code -15"):
        unclean.stop()


def test_a_killed_streaming_job_is_started_again_and_said_so(tmp_path: Path, jobs: list[Job]) -> None:
    streaming = job(jobs, tmp_path, FOREVER)
    said: list[str] = []
    streams = StreamingJobs([streaming], restarts=1, report=said.append)
    streams.start()
    first = pid_of(streaming)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: streaming.exit_code() is not None, "it is dead", 10)
    streams.check()
    assert pid_of(streaming) != first
    assert streams.restarted == 1
    assert "job has died (signal SIGKILL)" in said[0]


def test_restarts_are_bounded(tmp_path: Path, jobs: list[Job]) -> None:
    streams = StreamingJobs([job(jobs, tmp_path, "raise SystemExit(2)")], restarts=2, report=lambda _: None)
    streams.start()
    with pytest.raises(InfrastructureError, match=r"died again \(exit code 2\)"):
        wait_until(lambda: False, "it gives up", 30, streams.check)
    assert streams.restarted == 2


def test_no_child_of_a_killed_job_is_left_when_it_starts_again(
    tmp_path: Path, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "ORPHANS_SECONDS", 0.5)
    parent = job(jobs, tmp_path, WITH_CHILD)
    parent.start()
    child = int(await_output(parent))
    os.kill(pid_of(parent), signal.SIGKILL)
    wait_until(lambda: parent.exit_code() is not None, "it is dead", 10)
    assert is_alive(child)
    parent.bury()
    assert not is_alive(child)


def test_ending_a_job_ends_its_children(tmp_path: Path, jobs: list[Job]) -> None:
    parent = job(jobs, tmp_path, WITH_CHILD)
    parent.start()
    child = int(await_output(parent))
    parent.end()
    assert not is_alive(child)
    assert parent.exit_code() is not None


def test_leftovers_of_a_killed_demo_are_ended_by_id_and_start_time(tmp_path: Path, jobs: list[Job]) -> None:
    left, other = job(jobs, tmp_path, FOREVER, "left"), job(jobs, tmp_path, FOREVER, "other")
    left.start()
    other.start()
    # A process id that was given to another process since.
    (tmp_path / "other.pid").write_text(json.dumps({"pid": pid_of(other), "started": 1.0}))
    end_leftovers(tmp_path)
    wait_until(lambda: left.exit_code() is not None, "the leftover is ended", 5)
    assert other.pid is not None


def test_a_fresh_run_empties_a_folder_that_a_demo_made(tmp_path: Path) -> None:
    folder = DemoFolder(tmp_path / "demo")
    folder.claim()
    (folder.root / MARKER).write_text(json.dumps({"pid": os.getpid(), "started": 1.0}))
    (folder.logs / "old.log").write_text("old")
    folder.claim()
    assert not (folder.logs / "old.log").exists()
    assert (folder.root / MARKER).exists()


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(ConfigError, match="files that no demo made"):
        DemoFolder(tmp_path).claim()
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_folder_in_which_a_demo_runs_is_left_alone(tmp_path: Path) -> None:
    folder = DemoFolder(tmp_path / "demo")
    folder.claim()
    with pytest.raises(ConfigError, match=f"a demo runs in it \\(process {os.getpid()}\\)"):
        folder.claim()
    assert folder.logs.exists()


def test_a_damaged_marker_still_marks(tmp_path: Path) -> None:
    folder = DemoFolder(tmp_path / "demo")
    folder.claim()
    (folder.root / MARKER).write_text("")
    folder.claim()
    assert folder.logs.exists()
