"""Jobs as their users run them: processes of their own, with real signals."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.short_lived_settings import BRIEF_JAVA, BRIEF_SPARK

WITHIN_S = 240.0
BRIEF_ENVIRONMENT = {"JDK_JAVA_OPTIONS": BRIEF_JAVA}
# A session that lives for many tests: what the second compiler costs comes back later, for code that runs
# often. By its own thresholds, a thirtieth of these, it takes too much of the processor, which other workers
# need. Its memory is there from the start: while a heap or the space for classes grows, it is collected again
# and again.
LASTING_JAVA = (
    "-XX:Tier4InvocationThreshold=150000 -XX:Tier4MinInvocationThreshold=18000"
    " -XX:Tier4CompileThreshold=450000 -XX:Tier4BackEdgeThreshold=1200000 -XX:ReservedCodeCacheSize=512m"
    " -XX:-UseCodeCacheFlushing -XX:+UseSerialGC -Xms2200m -Xmn1400m -XX:MetaspaceSize=400m"
)
BRIEF_SETTINGS = tuple(f"--set={setting}" for setting in BRIEF_SPARK)


@dataclass
class Job:
    """A running job."""

    process: "subprocess.Popen[str]"
    log: Path

    def runs(self) -> bool:
        """True; fails with the job's log when it has ended."""
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        return True

    def send(self, number: signal.Signals) -> int:
        """Sends a signal and returns the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """The exit code of the job when it has ended."""
        return self.process.wait(WITHIN_S)

    def summary(self) -> dict[str, Any]:
        """The last line of standard output, which is one JSON object."""
        assert self.process.stdout is not None
        lines = self.process.stdout.read().splitlines()
        result: dict[str, Any] = json.loads(lines[-1])
        return result

    def kill(self) -> None:
        """Ends the job and its JVM, whatever state they are in."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(WITHIN_S)


def _heeds_signals() -> None:
    # What tests run under may ignore these, as `nohup` does: then jobs would, and should.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def start_job(name: str, folder: Path, *arguments: str, **environment: str) -> Job:
    """Starts `oncelake NAME ...` in a process group of its own, with these additions to the environment."""
    words = (*name.split(), "--log-format", "json", *arguments)
    return _start("pipelines.cli", folder / f"{name}-{time.monotonic_ns()}.log", words, environment)


def start_program(module: str, folder: Path, *arguments: str) -> Job:
    """Starts `python -m MODULE ...` in a process group of its own."""
    return _start(module, folder / f"{module}-{time.monotonic_ns()}.log", arguments, {})


def _start(module: str, log: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> Job:
    with log.open("w") as errors:
        process = subprocess.Popen(  # the arguments are the tests' own
            [sys.executable, "-m", module, *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            preexec_fn=_heeds_signals,  # noqa: PLW1509, it sets two signals and takes no lock
            env={**os.environ, **BRIEF_ENVIRONMENT, **environment},
        )
    return Job(process, log)
