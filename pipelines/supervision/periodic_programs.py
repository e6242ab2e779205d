"""Programs that are run again and again beside the streams, each run in bounded time.

The streams wait for none of it: each program has a thread and processes of its own.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import psutil

from pipelines.errors import InfrastructureError
from pipelines.supervision.child import Child, Program
from pipelines.supervision.output import Printer, ProgramName, ResultTaker
from pipelines.supervision.restarts import StreamExit

_KILLED_WITHIN_S: Final = 10.0
_STOPPED_WITHIN_S: Final = 5.0
# Streams that share the processors come first.
_NICENESS: Final = 10

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Repeated:
    """A program that is run again and again.

    Attributes:
        program: The program; it prints one JSON object at its end.
        every_s: Seconds from one start to the next.
        within_s: A run is killed after so many seconds.
        first_after_s: Seconds until the first start.
    """

    program: Program
    every_s: float
    within_s: float
    first_after_s: float


@dataclass(frozen=True)
class RunResult:
    """What came of a run.

    Attributes:
        printed: The JSON object that it printed; empty if it printed none.
        failure: Why it failed; None if it did not.
    """

    printed: Mapping[str, Any]
    failure: str | None = None


Take = Callable[[ProgramName, RunResult], None]
"""Takes what came of a run; called in the thread of its program."""


class RepeatedPrograms:
    """Runs programs while a block runs; the end of the block ends those that run at that moment.

    Args:
        repeated: The programs.
        printer: Prints what they say by standard error.
        take: Takes what came of each run.
    """

    def __init__(self, repeated: Sequence[Repeated], printer: Printer, take: Take) -> None:
        self._printer, self._take = printer, take
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._running: list[Child] = []
        self._threads = [
            threading.Thread(target=self._repeat, args=(each,), name=str(each.program.name), daemon=True)
            for each in repeated
        ]

    def __enter__(self) -> None:
        for each in self._threads:
            each.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._stopping.set()
            for child in self._running:
                child.stop()
        self._join()
        with self._lock:
            for child in self._running:
                child.kill()
        self._join()

    def _join(self) -> None:
        deadline = time.monotonic() + _STOPPED_WITHIN_S
        for each in self._threads:
            each.join(max(deadline - time.monotonic(), 0))

    def _repeat(self, repeated: Repeated) -> None:
        pause_s = repeated.first_after_s
        while not self._stopping.wait(pause_s):
            began_s = time.monotonic()
            result = self._run(repeated)
            if self._stopping.is_set():
                return
            try:
                self._take(repeated.program.name, result)
            except Exception:  # noqa: BLE001 - whatever it is, the next run is made
                _log.exception("%s", repeated.program.name)
            pause_s = max(began_s + repeated.every_s - time.monotonic(), 0)

    def _run(self, repeated: Repeated) -> RunResult:
        taker, has_ended, codes = ResultTaker(self._printer), threading.Event(), list[int]()

        def at_end(child: Child, ended: StreamExit) -> None:
            codes.append(ended.code)
            has_ended.set()

        with self._lock:
            if self._stopping.is_set():
                return RunResult({})
            try:
                child = Child(repeated.program, taker, at_end)
            except InfrastructureError as error:
                return RunResult({}, str(error))
            self._running.append(child)
        with suppress(psutil.Error):
            psutil.Process(child.pid).nice(_NICENESS)
        try:
            if not has_ended.wait(repeated.within_s):
                child.kill()
                has_ended.wait(_KILLED_WITHIN_S)
                return RunResult({}, f"timed out after {repeated.within_s:g} s and was killed")
        finally:
            with self._lock:
                self._running.remove(child)
        return _result(taker.last_line, codes[0], child.last_error.text)


def _result(line: str, code: int, said: str | None) -> RunResult:
    printed = dict[str, Any]()
    # A process that was killed has printed nothing, or half a line.
    with suppress(ValueError, RecursionError):
        document = json.loads(line)
        printed = document if isinstance(document, dict) else {}
    if code == 0 and printed:
        return RunResult(printed)
    return RunResult(printed, str(printed.get("error") or said or f"exit code {code}"))
