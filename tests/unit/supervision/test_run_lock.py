"""One `oncelake run` runs a stream on a machine, and its streams count until they have ended."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.errors import InfrastructureError
from pipelines.runtime.file_lock import lock_file
from pipelines.supervision.output import ProgramName
from pipelines.supervision.run_lock import run_locks
from testbed.waiting import wait_until

NAME, OTHER = ProgramName("flights", "ingest"), ProgramName("flights", "speed")
WITHIN_S = 60
# A supervisor with a stream that outlives it.
HOLDER = """
import subprocess, sys, time
from pathlib import Path
from pipelines.supervision.output import ProgramName
from pipelines.supervision.run_lock import run_locks
path = Path(sys.argv[1])
with run_locks({{ProgramName("flights", "ingest"): path}}, 0, print) as locks:
    (lock,) = locks.values()
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    lock.note(subprocess.Popen(words, pass_fds=(lock.descriptor,)).pid)
    path.with_suffix(".ready").touch()
    {then}
"""


def hold(path: Path, then: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER.format(then=then), path], start_new_session=True)
    wait_until(path.with_suffix(".ready").exists, "it holds the lock", WITHIN_S)
    return process


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return lock_file(str(tmp_path / "lake"), NAME.pipeline, NAME.stream)


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A supervisor that runs, with its stream."""
    process = hold(path, "time.sleep(600)")
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_stream_that_another_runs_is_refused_at_once_and_others_are_not(
    path: Path, holder: subprocess.Popen[bytes]
) -> None:
    with (
        pytest.raises(InfrastructureError, match=rf"flights/ingest: another .* \(process {holder.pid}\)"),
        run_locks({NAME: path}, WITHIN_S, print),
    ):
        pass
    with run_locks({OTHER: path.with_name("speed.run.lock")}, 0, print) as locks:
        assert set(locks) == {OTHER}


def test_a_stream_whose_supervisor_was_killed_is_waited_for_and_named(path: Path) -> None:
    process = hold(path, "time.sleep(600)")
    process.kill()
    process.wait()
    with (
        pytest.raises(InfrastructureError, match=r"its process [0-9]+ has not ended yet"),
        run_locks({NAME: path}, 0, print),
    ):
        pass

    def end(said: str) -> None:
        assert "waiting for process" in said
        os.killpg(process.pid, signal.SIGKILL)

    with run_locks({NAME: path}, WITHIN_S, end) as locks:
        assert set(locks) == {NAME}


def test_a_lock_is_free_again_after_its_holder(path: Path) -> None:
    for _ in range(2):
        with run_locks({NAME: path}, 0, print):
            pass


def test_a_place_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "lake").touch()
    with (
        pytest.raises(InfrastructureError, match=r"cannot be locked: .*; let the user"),
        run_locks({NAME: lock_file(str(tmp_path / "lake"), NAME.pipeline, NAME.stream)}, 0, print),
    ):
        pass
