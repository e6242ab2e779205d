"""Programs that get a signal while they run, and the processes below them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from testbed.waiting import wait_until
from tests.support.processes import BRIEF_ENVIRONMENT

# A shell in the background has Ctrl-C ignored, and what it starts inherits that.
_WITH_DEFAULTS = (
    "import os, signal, sys\n"
    "for number in (signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_DFL)\n"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


@dataclass
class Program:
    """A running program, and every process that was ever seen below it."""

    process: "subprocess.Popen[bytes]"
    log: Path
    below: set[psutil.Process] = field(default_factory=set)

    def wait_for(self, text: str) -> None:
        """Waits until a process below it has a text in its command line."""
        wait_until(lambda: self._runs() and any(text in _command(each) for each in self._look()), text)

    def left(self) -> list[str]:
        """The commands of the processes seen below it that live still."""
        return [_command(each) for each in self.below if each.is_running() and _command(each)]

    def is_gone(self) -> bool:
        """Whether nothing that was seen below it lives."""
        return not self.left()

    def _look(self) -> set[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            self.below.update(psutil.Process(self.process.pid).children(recursive=True))
        return self.below

    def _runs(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        return True


@contextmanager
def program(folder: Path, *words: str) -> Iterator[Program]:
    """Runs `python WORDS`; at the end of the block it and all that was seen below it are killed."""
    log = folder / "program.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", _WITH_DEFAULTS, sys.executable, *words],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env={**os.environ, **BRIEF_ENVIRONMENT},
        )
    started = Program(process, log)
    try:
        yield started
    finally:
        process.kill()
        process.wait()
        for each in started.below:
            with suppress(psutil.NoSuchProcess):
                each.kill()


def _command(process: psutil.Process) -> str:
    """Its command line; empty when it has ended, also if nobody has asked yet how."""
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""
