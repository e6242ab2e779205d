"""Commands of `oncelake`, one after the other in one process, whose Java they share.

A Java that has just started is slow, so a process for each command takes several times as long. Each command
has the arguments, the folder, the environment, the output and the exit code that it would have alone.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.waiting import wait_until
from tests.support.processes import BRIEF_ENVIRONMENT, Job

_PROGRAM: Final = Path(__file__).with_name("command_server.py")
_WITHIN_S: Final = 60.0


@dataclass
class CommandProcess:
    """What runs commands.

    Attributes:
        process: leads a process group that its Java is in.
        path: the socket where it is asked.
    """

    process: "subprocess.Popen[bytes]"
    path: Path

    def asking(self, *arguments: str) -> list[str]:
        """The command that has it run one of `oncelake`, and ends as that does."""
        return [sys.executable, "-S", "-P", str(_PROGRAM), "ask", str(self.path), *arguments]

    def start(self, folder: Path, name: str, *arguments: str) -> Job:
        """Starts `oncelake NAME ...`; to kill that job is to stop waiting for it."""
        return self._start(folder / name, "oncelake", name, "--log-format", "json", *arguments)

    def start_program(self, folder: Path, program: str) -> Job:
        """Starts a program in Python, likewise."""
        return self._start(folder / "program", "python", "-", program=program)

    def _start(self, name: Path, *arguments: str, program: str = "") -> Job:
        log = name.with_name(f"{name.name}-{time.monotonic_ns()}.log")
        written = log.with_suffix(".in")
        written.write_text(program)
        with log.open("w") as errors, written.open() as entered:
            process = subprocess.Popen(  # the arguments are the tests' own
                self.asking(*arguments),
                stdin=entered,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                env={**os.environ, **BRIEF_ENVIRONMENT},
            )
        return Job(process, log)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to it and its Java."""
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """Ends it and its Java, whatever state they are in."""
        with suppress(ProcessLookupError):
            self.send(signal.SIGKILL)
        self.process.wait(_WITHIN_S)


@contextmanager
def command_process(
    python: Path = Path(sys.executable), environment: Mapping[str, str] = os.environ
) -> Iterator[CommandProcess]:
    """Runs such a process for the length of a block.

    Args:
        python: the interpreter, which has Oncelake.
        environment: of the process; each command brings its own, but for what Python has read at its start.
    """
    # The path of a socket has a hundred characters at most.
    with tempfile.TemporaryDirectory(prefix="oncelake-") as folder:
        path, log = Path(folder, "commands"), Path(folder, "log")
        with log.open("w") as said:
            process = subprocess.Popen(
                [python, "-P", _PROGRAM, "serve", path],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={**environment, **BRIEF_ENVIRONMENT},
                start_new_session=True,
            )
        running = CommandProcess(process, path)
        try:
            wait_until(lambda: process.poll() is not None or path.exists(), "it can be asked")
            assert process.poll() is None, log.read_text()
            yield running
        finally:
            running.kill()
