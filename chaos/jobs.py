"""Jobs of Oncelake as processes of their own, which can be killed and stopped with all that is below them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from chaos.releases import Release
from demo.cast import ROOT
from testbed.short_lived_settings import BRIEF_JAVA

CHAOS: Final = ROOT / "chaos"
ENVIRONMENT: Final = {**os.environ, "JDK_JAVA_OPTIONS": BRIEF_JAVA}
"""Of processes that run jobs, beside the path of their release."""


def planted_environment(name: str) -> dict[str, str]:
    """Return additions to the environment with which the workers of jobs have a fault, too."""
    return {"CHAOS_PLANTED": name, "PYTHONPATH": f"{CHAOS / 'planted_site'}{os.pathsep}{ROOT}"}


_STOP_S: Final = 90.0
_ORPHANS_S: Final = 5.0
_LOOK_S: Final = 0.1


@dataclass
class Job:
    """One job, which runs at most once at a time.

    Attributes:
        name: its name, such as `north/ingest`.
        words: the command, without `oncelake`.
        logs: where each of its runs has its standard output and error.
        entry: what Python runs as `oncelake`.
        environment: additions to `ENVIRONMENT`.
        release: the code that it runs from its next start on.
        started: when its last run began, by the monotonic clock.
    """

    name: str
    words: Sequence[str]
    logs: Path
    entry: Sequence[str] = ("-m", "pipelines.cli")
    environment: Mapping[str, str] = field(default_factory=dict)
    release: Release = field(default_factory=Release)
    started: float = 0.0
    _process: "subprocess.Popen[bytes] | None" = None
    _runs: int = 0
    _files: dict[str, Path] = field(default_factory=dict)

    def start(self, *more: str) -> None:
        """Start it, with more words for this run."""
        self._runs += 1
        self.started = time.monotonic()
        stem = f"{self.name.replace('/', '-').replace(' ', '-')}-{self._runs}"
        self._files = {kind: self.logs / f"{stem}.{kind}" for kind in ("out", "log")}
        with self._files["out"].open("wb") as out, self._files["log"].open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self.entry, *self.words, *more, "--log-format", "json"],
                cwd=self.release.root,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
                env={**ENVIRONMENT, "PYTHONPATH": self.release.python_path, **self.environment},
            )

    @property
    def is_running(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs or if it was never started."""
        return self._process.poll() if self._process else None

    @property
    def has_begun(self) -> bool:
        """Whether its last run has logged anything: before, Python may not yet handle signals."""
        return bool(self._files) and self._files["log"].stat().st_size > 0

    def summary(self) -> Mapping[str, Any]:
        """Return what its last run said at the end; empty if it could not."""
        lines = self._files["out"].read_text(errors="replace").splitlines() if self._files else []
        with suppress(IndexError, ValueError):
            told = json.loads(lines[-1])
            return told if isinstance(told, dict) else {}
        return {}

    def processes(self) -> list[psutil.Process]:
        """Return its processes that live: itself, its JVM and its Python workers."""
        return session_of(self._process.pid) if self._process else []

    def send(self, number: signal.Signals, named: str = "") -> int:
        """Send a signal to its processes.

        Args:
            number: the signal.
            named: only to those whose command line has this text.

        Returns:
            How many got it.
        """
        count = 0
        for process in self.processes():
            with suppress(psutil.Error):
                if named in " ".join(process.cmdline()):
                    process.send_signal(number)
                    count += 1
        return count

    def kill(self) -> None:
        """End it at once, with all that is below it."""
        self.send(signal.SIGKILL)
        self.bury(0)

    def bury(self, within_s: float = _ORPHANS_S) -> None:
        """After its end, wait for what it started itself, and kill what stays."""
        if self._process:
            # Before psutil waits for it, which would take its exit code away.
            self._process.wait(_STOP_S)
            _, alive = psutil.wait_procs(self.processes(), timeout=within_s)
            for process in alive:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(alive, timeout=_STOP_S)

    def stop(self) -> int | None:
        """Ask it to stop, as an operator does; kill it if it does not.

        Returns:
            Its exit code; None if it was never started.
        """
        if self._process is None:
            return None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_S)
        if self._process.poll() is None:
            self.send(signal.SIGKILL)
        self.bury()
        return self._process.wait()

    def forget(self) -> None:
        """Let its last run be no longer known, so that its end is seen once."""
        self._process = None

    def wait(self, within_s: float) -> int | None:
        """Return its exit code when it has ended; None if it did not in time."""
        left_s = within_s
        while self.is_running and left_s > 0:
            began = time.monotonic()
            time.sleep(_LOOK_S)
            # While this process stood still, so did the job.
            left_s -= min(time.monotonic() - began, 10 * _LOOK_S)
        return self.code


def session_of(leader: int) -> list[psutil.Process]:
    """Return the processes of a session that live: a job, its JVM and its Python workers."""
    members = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
    return members
