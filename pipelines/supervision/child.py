"""A run of a stream as a child process."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import psutil

from pipelines.errors import InfrastructureError
from pipelines.runtime.life_signs import SIGNS_VARIABLE, Sign, SignPipe
from pipelines.runtime.processes import PARENT_VARIABLE
from pipelines.supervision.output import (
    STANDARD_ERROR,
    STANDARD_OUTPUT,
    LastError,
    LineTaker,
    ProgramName,
)
from pipelines.supervision.restarts import StreamExit
from pipelines.supervision.run_lock import RunLock

# Something that the stream has started may keep the pipes open.
_LAST_LINES_S: Final = 5.0
# A process that is killed does not end at once.
_REST_WITHIN_S: Final = 10.0
_ASK_AGAIN_S: Final = 0.05


@dataclass(frozen=True)
class Program:
    """A program and its command line.

    Attributes:
        name: The stream.
        command: The program and its arguments.
        environment: Additions to that of this process.
        lock: What keeps others from running the stream, and what it inherits; None if nothing does.
        stuck_after_s: After so many seconds without a sign that it moves it is stuck; None if nobody asks.
    """

    name: ProgramName
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    lock: RunLock | None = None
    stuck_after_s: float | None = None


class Child:
    """A running program, in the process group of this process.

    It ends with this process, whatever this process dies of (`pipelines.runtime.processes.end_with_parent`).

    Args:
        program: What to start.
        printer: Takes its lines.
        at_end: Called in another thread when it has ended.

    Raises:
        InfrastructureError: It cannot be started.
    """

    def __init__(
        self, program: Program, printer: LineTaker, at_end: Callable[["Child", StreamExit], None]
    ) -> None:
        self.name = program.name
        self.last_error = LastError()
        self.began_s = time.monotonic()
        self._signs = SignPipe() if program.stuck_after_s else None
        self._process = self._started(program)
        if program.lock:
            program.lock.note(self._process.pid)
        # It is there, if only as a zombie, until it is waited for.
        self._identity = psutil.Process(self._process.pid)
        self._family = frozenset([self._identity])
        self._printing = [
            threading.Thread(target=printer.pass_on, args=(pipe, to, self.name, self.last_error), daemon=True)
            for pipe, to in (
                (self._process.stdout, STANDARD_OUTPUT),
                (self._process.stderr, STANDARD_ERROR),
            )
        ]
        try:
            for each in (*self._printing, threading.Thread(target=self._wait, args=(at_end,), daemon=True)):
                each.start()
        except RuntimeError as error:
            # Nobody would see it end.
            self.kill()
            self._process.wait()
            self.close()
            raise InfrastructureError(
                f"{self.name}: {error}; it was stopped again. Check the number of threads and processes that"
                " this machine, or the container, allows"
            ) from None

    def _started(self, program: Program) -> "subprocess.Popen[bytes]":
        environment = {**os.environ, **program.environment, PARENT_VARIABLE: "1"}
        inherited = [program.lock.descriptor] if program.lock else []
        if self._signs:
            environment[SIGNS_VARIABLE] = str(self._signs.write_end)
            inherited.append(self._signs.write_end)
        try:
            return subprocess.Popen(
                program.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                pass_fds=inherited,
            )
        except OSError as error:
            self.close()
            raise InfrastructureError(
                f"{self.name}: {program.command[0]} cannot be started: {error.strerror}; check the memory and"
                " the number of processes that this machine allows"
            ) from None
        finally:
            if self._signs:
                self._signs.hand_over()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def signs(self) -> list[Sign]:
        """Return the signs of life that it has given since the last call."""
        return self._signs.received() if self._signs else []

    def close(self) -> None:
        """Take no signs any more; nobody may ask for them then."""
        if self._signs:
            self._signs.close()

    def stop(self) -> None:
        """Ask it to end, by SIGTERM."""
        self._process.terminate()

    def wake_and_stop(self) -> None:
        """Ask it to end, also if somebody has stopped it or what it has started (SIGSTOP)."""
        # Whoever loses its parent is no longer found below it.
        self._look_below()
        self.stop()
        self._send(signal.SIGCONT)

    def stop_all(self) -> None:
        """Ask it and all that it has started to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it and all that it has started, whatever state they are in."""
        self._send(signal.SIGKILL)

    def _look_below(self) -> None:
        with suppress(psutil.Error):
            self._family |= {*self._identity.children(recursive=True)}

    def _send(self, number: signal.Signals) -> None:
        self._look_below()
        for each in self._family:
            # Known by their start time, too: an id that was given away since is left alone.
            with suppress(psutil.NoSuchProcess):
                each.send_signal(number)

    def _wait(self, at_end: Callable[["Child", StreamExit], None]) -> None:
        code = self._process.wait()
        ended = StreamExit(code, self.began_s, time.monotonic())
        self._end_rest()
        for each in self._printing:
            each.join(_LAST_LINES_S)
        if self._process.stdin:
            self._process.stdin.close()
        at_end(self, ended)

    def _end_rest(self) -> None:
        """Kill what is left of those that got a signal with it: they may still write."""
        rest = self._family - {self._identity}
        for each in rest:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        deadline = time.monotonic() + _REST_WITHIN_S
        while not all(map(_has_ended, rest)) and time.monotonic() < deadline:
            time.sleep(_ASK_AGAIN_S)


def _has_ended(process: psutil.Process) -> bool:
    """Return whether a process does nothing any more, also if nobody asks how it has ended."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
