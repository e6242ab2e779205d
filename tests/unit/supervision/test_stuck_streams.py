"""Streams that are stuck are ended and started again, as real processes."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from pipelines.supervision.child import Program
from pipelines.supervision.output import ProgramName
from testbed.waiting import wait_until
from tests.support.signalled_programs import Program as Running
from tests.support.signalled_programs import program
from tests.support.supervised_streams import POLICY, STREAM, WITHIN_S, Supervised

pytestmark = pytest.mark.patient

# Others may have the processor meanwhile.
STUCK_AFTER_S = 4.0
# Writes down the processes of each run; says every moment that it lives.
LIVING = """
import os, subprocess
from pipelines.runtime.life_signs import Motion, sign_sender, tell_parent_of_life
def note(*processes):
    with Path(sys.argv[1] + ".pids").open("a") as pids:
        pids.write(" ".join(map(str, [os.getpid(), *processes])) + "\\n")
sender = sign_sender()
tell_parent_of_life(0.05)
{then}
"""
MOVING = """
note()
for moves in range(10**9):
    sender.send(Motion(moves, {done}, 0.0))
    time.sleep(0.05)
"""
UNASKED = """
assert sender is None
note()
time.sleep(600)
"""
# The first run tells all the time that it does not move.
STILL_AT_FIRST = """
if not Path(sys.argv[1] + ".pids").exists():
    note()
    while True:
        sender.send(Motion(7, 0, 0.0))
        time.sleep(0.05)
"""
# Neither it nor its child hears SIGTERM, and the child does not end with it.
DEAF_AT_FIRST = """
sender.send(Motion(7, 0, 0.0))
if not Path(sys.argv[1] + ".pids").exists():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True)"
    child = subprocess.Popen([sys.executable, "-c", deaf + "; time.sleep(600)"], stdout=subprocess.PIPE)
    child.stdout.readline()
    note(child.pid)
    while True:
        time.sleep(600)
"""


class Streams:
    """Programs that stand for streams, and the processes of each of their runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self, then: str, name: str = "speed", stuck_after_s: float | None = STUCK_AFTER_S) -> Program:
        words = (sys.executable, "-c", STREAM.format(then=LIVING.format(then=then)), str(self._folder / name))
        return Program(ProgramName("flights", name), words, stuck_after_s=stuck_after_s)

    def runs(self, name: str = "speed") -> list[list[psutil.Process]]:
        """The processes of each run; those that are gone are left out."""
        path = self._folder / f"{name}.pids"
        lines = path.read_text().splitlines() if path.exists() else []
        pids = [map(int, line.split()) for line in lines]
        return [[psutil.Process(pid) for pid in each if psutil.pid_exists(pid)] for each in pids]

    def wait_for_run(self, number: int, name: str = "speed") -> list[psutil.Process]:
        wait_until(lambda: len(self.runs(name)) == number, f"run {number} has begun", WITHIN_S)
        return self.runs(name)[-1]


def works(process: psutil.Process) -> bool:
    """Whether it is there, and no zombie."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


@pytest.fixture
def streams(tmp_path: Path) -> Streams:
    return Streams(tmp_path)


def test_a_stream_whose_process_is_stopped_is_ended_and_started_again_and_people_are_told(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    supervised = Supervised(streams.make(MOVING.format(done=1)), streams.make(UNASKED, "ingest", None))
    (other,) = streams.wait_for_run(1, "ingest")
    (first,) = streams.wait_for_run(1)
    first.send_signal(signal.SIGSTOP)
    (second,) = streams.wait_for_run(2)
    assert not first.is_running()
    assert second.pid != first.pid
    assert streams.runs("ingest") == [[other]]
    told = supervised.alarms[0]
    assert (str(told.name), told.status, told.exit_code, told.restarts) == ("flights/speed", "stuck", 1, 0)
    assert str(told.error).startswith("its process has given no sign of life for ")
    assert str(told.error).endswith("; it is ended and started again")
    # Woken up, it has ended by SIGTERM, and with exit code 0: which is no reason to leave it stopped.
    assert "flights/speed: stuck, and ended for that: its process has given no sign of life" in caplog.text
    assert "SIGKILL" not in caplog.text
    assert [(each.status, each.restarts) for each in supervised.stop()] == [("stopped", 1), ("stopped", 0)]


def test_a_stream_that_does_not_hear_sigterm_is_killed_with_its_children_before_it_is_started_again(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    supervised = Supervised(streams.make(DEAF_AT_FIRST + MOVING.format(done=0)), stop_within_s=2.0)
    family = streams.wait_for_run(1)
    assert len(family) == 2
    streams.wait_for_run(2)
    assert [each for each in family if works(each)] == []
    assert [word in caplog.text for word in ("is asked to stop", "SIGTERM goes to", "SIGKILL goes to")] == [
        True,
        True,
        True,
    ]
    assert "its process lives, but neither its query nor its Java" in str(supervised.alarms[0].error)
    assert [each.status for each in supervised.stop()] == ["stopped"]


def test_what_an_ended_stream_has_left_running_is_killed_before_it_is_started_again(
    streams: Streams,
) -> None:
    hears = DEAF_AT_FIRST.replace("    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n", "", 1)
    supervised = Supervised(streams.make(hears + MOVING.format(done=0)))
    family = streams.wait_for_run(1)
    streams.wait_for_run(2)
    assert [each for each in family if works(each)] == []
    supervised.stop()


def test_a_stream_that_is_stuck_again_and_again_is_given_up_by_the_same_bound(streams: Streams) -> None:
    forever = "sender.send(Motion(7, 0, 0.0))\nnote()\ntime.sleep(600)"
    supervised = Supervised(streams.make(forever, stuck_after_s=0.1))
    (outcome,) = supervised.wait()
    assert (outcome.status, outcome.exit_code, outcome.restarts) == ("failed", 1, POLICY.most_restarts)
    assert "stuck, and ended for that, after 3 restarts" in str(outcome.error)
    assert [each.status for each in supervised.alarms] == [*["stuck"] * 4, "failed"]
    # Each time it was given twice as long, since no micro-batch had ended.
    seconds = [float(str(each.error).split(" for ")[1].split()[0]) for each in supervised.alarms[:4]]
    assert [found >= least for found, least in zip(seconds, (0.1, 0.2, 0.4, 0.8), strict=True)] == [True] * 4


def test_neither_a_start_nor_what_gives_no_signs_nor_what_nobody_asks_is_stuck(streams: Streams) -> None:
    starting = streams.make("note()\ntime.sleep(600)", "starting")
    words = (sys.executable, "-c", "import time; time.sleep(600)")
    silent = Program(ProgramName("flights", "silent"), words, stuck_after_s=STUCK_AFTER_S)
    not_asked = streams.make(UNASKED, "not-asked", None)
    supervised = Supervised(starting, silent, not_asked, streams.make(STILL_AT_FIRST + MOVING.format(done=1)))
    streams.wait_for_run(1, "starting")
    streams.wait_for_run(1, "not-asked")
    # One that is stuck shows how long that takes, here two times.
    (stuck,) = streams.wait_for_run(2)
    assert "no micro-batch and no task has ended" in str(supervised.alarms[0].error)
    stuck.send_signal(signal.SIGSTOP)
    streams.wait_for_run(3)
    assert {str(each.name) for each in supervised.alarms} == {"flights/speed"}
    assert [each.restarts for each in supervised.stop()] == [0, 0, 0, 2]


SUPERVISOR = f"""
import signal, sys
from pipelines.runtime.processes import stop_signals
from pipelines.supervision.child import Program
from pipelines.supervision.output import Printer, ProgramName, label_json
from pipelines.supervision.restarts import RestartPolicy
from pipelines.supervision.supervisor import Supervisor
supervisor = Supervisor(RestartPolicy(), Printer(label_json), print, look_every_s=0.05)
for number in stop_signals():
    signal.signal(number, lambda *_: supervisor.request_stop())
words = (sys.executable, "-c", {STREAM.format(then=LIVING.format(then=MOVING.format(done=1)))!r}, sys.argv[1])
(outcome,) = supervisor.run([Program(ProgramName("flights", "speed"), words, stuck_after_s={STUCK_AFTER_S})])
sys.exit(outcome.restarts)
"""


@pytest.fixture
def process(tmp_path: Path, streams: Streams) -> Iterator[Running]:
    """A supervisor of a stream, as a process."""
    with program(tmp_path, "-c", SUPERVISOR, str(tmp_path / "speed")) as started:
        started.wait_for(f"{tmp_path}/speed")
        streams.wait_for_run(1)
        yield started


def test_time_in_which_the_supervisor_did_not_run_does_not_count(process: Running, streams: Streams) -> None:
    (stream,) = streams.runs()[0]
    supervisor = psutil.Process(process.process.pid)
    # As a machine that is suspended, for longer than the stream may be silent.
    for each in (supervisor, stream):
        each.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    wait_until(lambda: time.monotonic() > began + STUCK_AFTER_S + 1, "the time is over", WITHIN_S)
    # The supervisor looks first, before the stream can give a sign.
    before = looked(supervisor)
    supervisor.send_signal(signal.SIGCONT)
    wait_until(lambda: looked(supervisor) > before + 3, "it has looked", WITHIN_S)
    stream.send_signal(signal.SIGCONT)
    supervisor.terminate()
    assert process.process.wait(WITHIN_S) == 0
    assert "stuck" not in process.log.read_text()


def looked(process: psutil.Process) -> int:
    """Grows with each look: the process sleeps between two of them."""
    return process.num_ctx_switches().voluntary


def test_no_run_leaves_a_file_open(streams: Streams) -> None:
    us = psutil.Process()
    before = us.num_fds()
    missing = Program(ProgramName("flights", "missing"), ["/no/such/program"], stuck_after_s=STUCK_AFTER_S)
    Supervised(streams.make("note()\nsys.exit(1)"), missing).wait()
    assert len(streams.runs()) == 1 + POLICY.most_restarts
    wait_until(lambda: us.num_fds() <= before, "all are closed", WITHIN_S)
