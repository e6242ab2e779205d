"""A program that is told to stop ends what it started, to the end, whatever else it is told meanwhile."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testbed.waiting import wait_until
from tests.support.signalled_programs import Program, program

pytestmark = pytest.mark.patient

CHILD = "import subprocess, sys, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"
PROGRAM = f"""
import signal, subprocess, sys, time
from pipelines.runtime.processes import graceful_shutdown
{{before}}
with graceful_shutdown(), graceful_shutdown():
    child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], start_new_session=True)
    try:
        {{work}}
    finally:
        {{clearing_up}}
        print("cleared up", flush=True)
"""

Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def run(before: str = "", work: str = "time.sleep(600)", clearing_up: str = "pass") -> Program:
            code = PROGRAM.format(before=before, work=work, clearing_up=clearing_up)
            running = stack.enter_context(program(tmp_path, "-c", code))
            running.wait_for("sleep 600")
            return running

        yield run


def ended_by(running: Program, number: signal.Signals) -> bool:
    """True when it ended with the code of the signal, cleared up, and with all below it."""
    assert running.process.wait(60) == 128 + number
    wait_until(running.is_gone, "nothing is left", 20)
    return running.log.read_text() == "cleared up\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_children_and_their_children_end_with_it(number: signal.Signals, start: Start) -> None:
    running = start()
    running.process.send_signal(number)
    assert ended_by(running, number)


def test_what_was_below_a_child_that_ended_first_ends_too(start: Start) -> None:
    running = start(clearing_up="child.kill(); child.wait()")
    running.process.send_signal(signal.SIGTERM)
    assert ended_by(running, signal.SIGTERM)


def test_another_signal_does_not_interrupt_the_clearing_up(start: Start) -> None:
    running = start(clearing_up="for n in (2, 1, 15): signal.raise_signal(n)")
    running.process.send_signal(signal.SIGTERM)
    assert ended_by(running, signal.SIGTERM)


def test_under_nohup_it_stays(start: Start) -> None:
    running = start(before="signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    running.process.send_signal(signal.SIGHUP)
    running.process.send_signal(signal.SIGTERM)
    assert ended_by(running, signal.SIGTERM)


def test_it_ends_nothing_at_a_good_end(start: Start) -> None:
    running = start(before="import atexit; atexit.register(time.sleep, 600)", work="pass")
    wait_until(lambda: running.log.read_text() == "cleared up\n", "it is done")
    assert not running.is_gone()
