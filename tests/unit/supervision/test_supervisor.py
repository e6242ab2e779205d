"""Streams are started again, given up and stopped, as real processes."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from pipelines.errors import InfrastructureError
from pipelines.supervision.child import Child, Program
from pipelines.supervision.output import Printer, ProgramName, label_text
from pipelines.supervision.restarts import RestartPolicy
from pipelines.supervision.run_lock import run_locks
from testbed.waiting import wait_until
from tests.support.signalled_programs import Program as Running
from tests.support.signalled_programs import program
from tests.support.supervised_streams import POLICY, STREAM, WITHIN_S, Supervised

pytestmark = pytest.mark.patient

FOREVER = "time.sleep(600)"


@pytest.fixture
def stream(tmp_path: Path) -> Callable[..., Program]:
    """Makes a stand-in for a stream, with what it does once it runs: `stream("speed", "sys.exit(1)")`."""

    def make(name: str, then: str = FOREVER) -> Program:
        words = (sys.executable, "-c", STREAM.format(then=then), str(tmp_path / name))
        return Program(ProgramName("flights", name), words)

    return make


def test_a_process_that_nobody_could_watch_is_ended(
    stream: Callable[..., Program], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more(thread: threading.Thread) -> None:
        wait_until((tmp_path / "speed").exists, "it runs")
        raise RuntimeError("can't start new thread")

    before = children()
    monkeypatch.setattr(threading.Thread, "start", no_more)
    with pytest.raises(InfrastructureError, match="can't start new thread; it was stopped again"):
        Child(stream("speed"), Printer(label_text), lambda child, ended: None)
    assert children() <= before


def children() -> set[psutil.Process]:
    """Return this process's children: brokers and Spark of other tests may be among them."""
    return set(psutil.Process().children())


@pytest.fixture
def starts(tmp_path: Path) -> Callable[[str], int]:
    """How often a stream has been started."""

    def count(name: str) -> int:
        path = tmp_path / name
        return len(path.read_text().splitlines()) if path.exists() else 0

    return count


def running(*names: str) -> list[psutil.Process]:
    """The children of this process that stand for streams."""
    found = []
    for each in psutil.Process().children():
        # One that has just ended has no command line any more.
        with suppress(psutil.Error):
            if any(each.cmdline()[-1].endswith(name) for name in names):
                found.append(each)
    return found


def test_a_stream_that_keeps_failing_is_given_up_and_told_of_and_the_others_go_on(
    stream: Callable[..., Program], starts: Callable[[str], int]
) -> None:
    failing = stream("ingest", "print('error: the broker is gone', file=sys.stderr); sys.exit(1)")
    supervised = Supervised(failing, stream("speed"))
    wait_until(lambda: bool(supervised.alarms), "it is given up", WITHIN_S)
    assert starts("ingest") == 4
    assert starts("speed") == 1
    (told,) = supervised.alarms
    assert (told.status, told.exit_code, told.restarts) == ("failed", 1, 3)
    assert "after 3 restarts" in str(told.error)
    assert "the broker is gone" in str(told.error)
    assert [(each.status, each.exit_code) for each in supervised.stop()] == [("failed", 1), ("stopped", 0)]


def test_a_stream_that_is_refused_is_not_started_again_and_the_end_of_all_is_the_end(
    stream: Callable[..., Program], starts: Callable[[str], int]
) -> None:
    supervised = Supervised(*(stream(f"code-{code}", f"sys.exit({code})") for code in (2, 3, 4)))
    assert [each.exit_code for each in supervised.wait()] == [2, 3, 4]
    # The last may be a refusal while a stream of an earlier supervisor still ends.
    assert [starts(f"code-{code}") for code in (2, 3, 4)] == [1, 1, 1 + POLICY.most_restarts]
    assert len(supervised.alarms) == 3


def test_a_stream_that_is_killed_is_started_again(
    stream: Callable[..., Program], starts: Callable[[str], int]
) -> None:
    supervised = Supervised(stream("killed"))
    wait_until(lambda: starts("killed") == 1, "it runs", WITHIN_S)
    (first,) = running("killed")
    first.kill()
    wait_until(lambda: starts("killed") == 2, "it runs again", WITHIN_S)
    (outcome,) = supervised.stop()
    assert (outcome.status, outcome.exit_code, outcome.restarts) == ("stopped", 0, 1)


def test_a_stream_that_does_not_end_is_killed_with_all_that_it_has_started(
    stream: Callable[..., Program], starts: Callable[[str], int]
) -> None:
    deaf = (
        "import subprocess; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen(['sleep', '600'])\n"
        "Path(sys.argv[1] + '-deaf').write_text('deaf\\n')\n"
        "while True: time.sleep(600)"
    )
    supervised = Supervised(stream("deaf", deaf), stream("good"), stop_within_s=0.5)
    wait_until(lambda: starts("deaf-deaf") == 1 and starts("good") == 1, "both run", WITHIN_S)
    (process,) = running("deaf")
    family = [process, *process.children()]
    assert len(family) == 2
    first, second = supervised.stop()
    assert (first.status, first.exit_code) == ("failed", 1)
    assert "was killed" in str(first.error)
    assert second.status == "stopped"
    assert psutil.wait_procs(family, WITHIN_S)[1] == []


def test_a_program_that_is_not_there_is_a_failure_like_others() -> None:
    supervised = Supervised(Program(ProgramName("flights", "speed"), ["/no/such/program"]))
    (outcome,) = supervised.wait()
    assert (outcome.status, outcome.exit_code, outcome.restarts) == ("failed", 1, 3)


def test_a_stop_between_two_starts_is_a_good_end(
    stream: Callable[..., Program], starts: Callable[[str], int], caplog: pytest.LogCaptureFixture
) -> None:
    supervised = Supervised(stream("speed", "sys.exit(1)"), policy=RestartPolicy(first_pause_s=600))
    wait_until(lambda: "is started again in" in caplog.text, "its end is taken", WITHIN_S)
    (outcome,) = supervised.stop()
    assert (outcome.status, outcome.exit_code, starts("speed")) == ("stopped", 0, 1)


def test_a_stream_holds_the_lock_that_its_supervisor_has_taken(
    stream: Callable[..., Program], starts: Callable[[str], int], tmp_path: Path
) -> None:
    path, one = tmp_path / "run.lock", stream("speed")
    with run_locks({one.name: path}, 0, print) as locks:
        supervised = Supervised(replace(one, lock=locks[one.name]))
        wait_until(lambda: starts("speed") == 1, "it runs", WITHIN_S)
        (process,) = running("speed")
        assert str(path) in {each.path for each in process.open_files()}
        assert json.loads(path.read_text())["stream"] == process.pid
        supervised.stop()


def test_a_stream_that_is_given_up_can_be_run_by_another_supervisor_beside_the_rest(
    stream: Callable[..., Program], tmp_path: Path
) -> None:
    failing, path = stream("ingest", "sys.exit(2)"), tmp_path / "run.lock"
    with run_locks({failing.name: path}, 0, print) as locks:
        supervised = Supervised(replace(failing, lock=locks[failing.name]), stream("speed"))
        wait_until(lambda: bool(supervised.alarms), "it is given up", WITHIN_S)
        with run_locks({failing.name: path}, WITHIN_S, print) as again:
            assert set(again) == {failing.name}
        supervised.stop()


SUPERVISOR = f"""
import signal, sys
from pipelines.supervision.child import Program
from pipelines.supervision.output import Printer, ProgramName, label_json
from pipelines.supervision.restarts import RestartPolicy
from pipelines.supervision.supervisor import Supervisor
from pipelines.runtime.processes import stop_signals
supervisor = Supervisor(RestartPolicy(), Printer(label_json), print)
for number in stop_signals():
    signal.signal(number, lambda *_: supervisor.request_stop())
words = (sys.executable, "-c", {STREAM.format(then=FOREVER)!r})
programs = [
    Program(ProgramName("flights", name), (*words, f"{{sys.argv[1]}}/{{name}}")) for name in ("one", "two")
]
sys.exit(sum(each.exit_code for each in supervisor.run(programs)))
"""


@pytest.fixture
def process(tmp_path: Path, starts: Callable[[str], int]) -> Iterator[Running]:
    """A supervisor of two streams, as a process."""
    with program(tmp_path, "-c", SUPERVISOR, str(tmp_path)) as started:
        started.wait_for(f"{tmp_path}/one")
        started.wait_for(f"{tmp_path}/two")
        wait_until(lambda: starts("one") == 1 and starts("two") == 1, "both run", WITHIN_S)
        yield started


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_supervisor_ends_all_streams_well(process: Running, number: signal.Signals) -> None:
    process.process.send_signal(number)
    assert process.process.wait(WITHIN_S) == 0
    wait_until(process.is_gone, "nothing is left", WITHIN_S)


def test_streams_end_when_the_supervisor_is_killed(process: Running) -> None:
    process.process.kill()
    process.process.wait(WITHIN_S)
    wait_until(process.is_gone, "nothing is left", WITHIN_S)


def test_streams_are_in_the_process_group_of_the_supervisor(process: Running) -> None:
    group = os.getpgid(process.process.pid)
    assert {os.getpgid(each.pid) for each in process.below} == {group}
