"""A run of a stream as a child process."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import psutil

from pipelines.errors import InfrastructureError
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


@dataclass(frozen=True)
class Program:
    """A program and its command line.

    Attributes:
        name: The stream.
        command: The program and its arguments.
        environment: Additions to that of this process.
        lock: What keeps others from running the stream, and what it inherits; None if nothing does.
    """

    name: ProgramName
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    lock: RunLock | None = None


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
        self._began_s = time.monotonic()
        try:
            self._process = subprocess.Popen(
                program.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **program.environment, PARENT_VARIABLE: "1"},
                pass_fds=(program.lock.descriptor,) if program.lock else (),
            )
        except OSError as error:
            raise InfrastructureError(
                f"{self.name}: {program.command[0]} cannot be started: {error.strerror}; check the memory and"
                " the number of processes that this machine allows"
            ) from None
        if program.lock:
            program.lock.note(self._process.pid)
        # It is there, if only as a zombie, until it is waited for.
        self._identity = psutil.Process(self._process.pid)
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
            raise InfrastructureError(
                f"{self.name}: {error}; it was stopped again. Check the number of threads and processes that"
                " this machine, or the container, allows"
            ) from None

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def stop(self) -> None:
        """Ask it to end, by SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """End it and all that it has started, whatever state they are in."""
        family = [self._identity]
        with suppress(psutil.Error):
            family += self._identity.children(recursive=True)
        for each in family:
            # Known by their start time, too: an id that was given away since is left alone.
            with suppress(psutil.NoSuchProcess):
                each.kill()

    def _wait(self, at_end: Callable[["Child", StreamExit], None]) -> None:
        code = self._process.wait()
        ended = StreamExit(code, self._began_s, time.monotonic())
        for each in self._printing:
            each.join(_LAST_LINES_S)
        if self._process.stdin:
            self._process.stdin.close()
        at_end(self, ended)
