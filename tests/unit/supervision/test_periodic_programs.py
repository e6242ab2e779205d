"""Programs beside the streams are run again and again, in bounded time, as real processes."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from pipelines.supervision.child import Program
from pipelines.supervision.output import Printer, ProgramName, label_text
from pipelines.supervision.periodic_programs import Repeated, RepeatedPrograms, RunResult
from testbed.waiting import wait_until

pytestmark = pytest.mark.patient

WITHIN_S = 60
BEGUN = """
import os, sys, time
from pathlib import Path
with Path(sys.argv[1]).open("a") as begun:
    begun.write(f"{{os.getpid()}}\\n")
{then}
"""
FOREVER = "time.sleep(600)"


class Programs:
    """Programs that are run again and again, and what came of their runs."""

    def __init__(self, folder: Path, held: ExitStack) -> None:
        self.folder, self._held = folder, held
        self.results: dict[str, list[RunResult]] = {}

    def repeat(self, take: Callable[[ProgramName, RunResult], None] | None = None, **then: str) -> None:
        """Runs a program of each name, which notes its process and then does as told."""
        repeated = [
            Repeated(
                Program(
                    ProgramName(name, "lag"),
                    (sys.executable, "-c", BEGUN.format(then=does), str(self.folder / name)),
                ),
                every_s=0.01,
                within_s=1.0 if does == FOREVER else WITHIN_S,
                first_after_s=0.01,
            )
            for name, does in then.items()
        ]
        self._held.enter_context(RepeatedPrograms(repeated, Printer(label_text), take or self.take))

    def take(self, name: ProgramName, result: RunResult) -> None:
        self.results.setdefault(name.pipeline, []).append(result)

    def of(self, name: str) -> list[RunResult]:
        return self.results.get(name, [])

    def begun(self, name: str) -> list[int]:
        path = self.folder / name
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []

    def end(self) -> None:
        self._held.close()


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    with ExitStack() as held:
        yield Programs(tmp_path, held)


def test_a_program_is_run_again_and_its_last_line_is_what_it_tells(
    programs: Programs, capfd: pytest.CaptureFixture[str]
) -> None:
    programs.repeat(
        flights="print('table'); print('{\"alerts\": {}}'); print('notified', file=sys.stderr)",
        weather='print(\'{"error": "no answer", "alerts": {}}\'); sys.exit(1)',
    )
    wait_until(lambda: min(len(programs.of(name)) for name in ("flights", "weather")) > 1, "runs", WITHIN_S)
    programs.end()
    assert programs.of("flights")[:2] == [RunResult({"alerts": {}})] * 2
    assert programs.of("weather")[0] == RunResult({"error": "no answer", "alerts": {}}, "no answer")
    said = capfd.readouterr()
    # What it tells is no line of the log.
    assert ("alerts" in said.out, "flights/lag | notified" in said.err) == (False, True)


def test_a_run_that_does_not_end_is_killed_and_holds_up_no_other_program(programs: Programs) -> None:
    programs.repeat(flights=FOREVER, weather="print('{}'); sys.exit(0)")
    wait_until(lambda: bool(programs.begun("flights")), "the first run", WITHIN_S)
    wait_until(lambda: len(programs.of("weather")) > 1, "runs of the other", WITHIN_S)
    wait_until(lambda: len(programs.begun("flights")) > 1, "the next run", WITHIN_S)
    assert programs.of("flights")[0] == RunResult({}, "timed out after 1 s and was killed")
    assert not psutil.pid_exists(programs.begun("flights")[0])


@pytest.mark.parametrize(
    ("then", "failure"),
    [
        ("print('half a li', end='')", "exit code 0"),
        ("print('[]'); sys.exit(3)", "exit code 3"),
        ("print('error: no memory', file=sys.stderr); os.kill(os.getpid(), 9)", "no memory"),
    ],
)
def test_a_run_that_tells_nothing_has_failed(programs: Programs, then: str, failure: str) -> None:
    programs.repeat(flights=then)
    wait_until(lambda: bool(programs.of("flights")), "a run", WITHIN_S)
    assert programs.of("flights")[0] == RunResult({}, failure)


def test_a_program_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    results = list[RunResult]()
    missing = Repeated(Program(ProgramName("flights", "lag"), (str(tmp_path / "no"),)), 0.01, 1.0, 0.0)
    with RepeatedPrograms([missing], Printer(label_text), lambda _, result: results.append(result)):
        wait_until(lambda: len(results) > 1, "two runs", WITHIN_S)
    assert "cannot be started" in str(results[0].failure)


def test_whoever_takes_a_result_may_fail_and_may_take_long(
    programs: Programs, caplog: pytest.LogCaptureFixture
) -> None:
    waits = threading.Event()

    def take(name: ProgramName, result: RunResult) -> None:
        programs.take(name, result)
        if name.pipeline == "weather":
            waits.wait(WITHIN_S)
        raise RuntimeError("no room in the file")

    programs.repeat(take, flights="print('{\"a\": 1}')", weather="print('{\"a\": 1}')")
    wait_until(lambda: bool(programs.of("weather")), "a run that is taken", WITHIN_S)
    before = len(programs.of("flights"))
    wait_until(lambda: len(programs.of("flights")) > before + 1, "further runs", WITHIN_S)
    waits.set()
    assert "no room in the file" in caplog.text


def test_the_end_ends_a_run_that_ignores_it(programs: Programs) -> None:
    programs.repeat(
        flights="import signal; signal.signal(15, signal.SIG_IGN); Path(sys.argv[1] + '.on').touch();"
        " time.sleep(600)"
    )
    wait_until((programs.folder / "flights.on").exists, "a run that ignores SIGTERM", WITHIN_S)
    (process,) = programs.begun("flights")
    programs.end()
    assert not psutil.pid_exists(process)
    # What was interrupted is nobody's failure.
    assert programs.of("flights") == []


def test_streams_come_first(programs: Programs) -> None:
    programs.repeat(flights="time.sleep(0.5); print('{\"niceness\": %d}' % os.nice(0))")
    wait_until(lambda: bool(programs.of("flights")), "a run", WITHIN_S)
    assert programs.of("flights")[0].printed["niceness"] == 10
