"""The jobs as the demo runs them: separate processes, as a user would start them, ended by their own ids."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from pipelines.errors import InfrastructureError
from pipelines.runtime.processes import end_processes
from testbed.waiting import wait_until

_STOP_SECONDS = 90.0
ORPHANS_SECONDS = 20.0


class Job:
    """One job, started at most once at a time.

    Args:
        name: How the demo calls it, e.g. `ingest_stream`.
        command: What to run.
        cwd: Where to run it.
        logs: Folder of `NAME.log` (its standard error) and `NAME.out` (its standard output), both appended.
    """

    def __init__(self, name: str, command: Sequence[str], cwd: Path, logs: Path) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        self.out = logs / f"{name}.out"
        self._identity = logs / f"{name}.pid"
        self._command = list(command)
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process, while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start it in a session of its own: Ctrl-C reaches the demo alone, which then end the job."""
        with self.out.open("ab") as out, self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
            )
        started = psutil.Process(self._process.pid).create_time()
        identity = {"pid": self._process.pid, "started": started}
        self._identity.write_text(json.dumps(identity), encoding="utf-8")

    def exit_code(self) -> int | None:
        """Tell how it ended.

        Returns:
            The exit code, negative for a signal; `None` while it runs.
        """
        return None if self._process is None else self._process.poll()

    def wait(self, seconds: float) -> None:
        """Wait for a good end.

        Args:
            seconds: How long at most.

        Raises:
            InfrastructureError: It failed or did not end in time; the message names its log.
        """
        wait_until(lambda: self.exit_code() is not None, f"{self.name} ends; see {self.log}", seconds)
        self._expect_success()

    def stop(self) -> None:
        """Ask it to stop, and expect that it does so cleanly.

        Raises:
            InfrastructureError: It did not stop in time, or not with exit code 0; the message names its log.
        """
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self.wait(_STOP_SECONDS)
        self._expect_success()

    def bury(self) -> None:
        """After its end, whatever end, wait for what it started itself (a JVM), and kill what stays."""
        if self._process is None:
            return
        _, alive = psutil.wait_procs(_session(self._process.pid), timeout=ORPHANS_SECONDS)
        end_processes(alive, ORPHANS_SECONDS)

    def end(self) -> None:
        """End it and all that it started, at once. For leaving early: nothing is checked."""
        if self._process is None:
            return
        end_processes(_session(self._process.pid), ORPHANS_SECONDS)
        self._process.wait()

    def _expect_success(self) -> None:
        code = self.exit_code()
        if code != 0:
            raise InfrastructureError(
                f"{self.name}: ended with exit code {code}, expected 0; it says: {self._last_words()}\n"
                f"Its log: {self.log}"
            )

    def _last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
        # Lines of a stack trace are indented; what went wrong is not.
        return next((line for line in reversed(lines) if line.strip() and not line[0].isspace()), "nothing")


class StreamingJobs:
    """Jobs that should run until they are stopped, and are started again when they die.

    Args:
        jobs: Not yet started.
        restarts: How often each may be started again.
        report: Gets a sentence about every death.
    """

    def __init__(self, jobs: Sequence[Job], restarts: int, report: Callable[[str], None]) -> None:
        self._jobs = list(jobs)
        self._left = dict.fromkeys((job.name for job in jobs), restarts)
        self._report = report
        self.restarted = 0

    def start(self) -> None:
        """Start all."""
        for job in self._jobs:
            job.start()

    def check(self) -> None:
        """Start again what has died.

        Raises:
            InfrastructureError: A job died more often than it may be started again.
        """
        for job in self._jobs:
            code = job.exit_code()
            if code is None:
                continue
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            if not self._left[job.name]:
                raise InfrastructureError(
                    f"{job.name}: died again ({how}) after it was started several times; see {job.log}"
                )
            self._left[job.name] -= 1
            self._report(f"{job.name} has died ({how}). It is started again; nothing may be lost or doubled.")
            # Two processes on one checkpoint would fight: the old JVM has to be gone.
            job.bury()
            job.start()
            self.restarted += 1

    def stop(self) -> None:
        """Stop all as an operator would, and expect clean ends.

        Raises:
            InfrastructureError: A job did not stop cleanly.
        """
        self.check()
        for job in self._jobs:
            job.stop()

    def end(self) -> None:
        """End all, without any check."""
        for job in self._jobs:
            job.end()


def end_leftovers(logs: Path) -> None:
    """End the jobs that a demo could not end itself, because it was killed.

    Args:
        logs: The folder that its jobs were given.
    """
    for identity in logs.glob("*.pid"):
        try:
            known = json.loads(identity.read_text(encoding="utf-8"))
            process = psutil.Process(known["pid"])
            # A process id alone may long belong to somebody else.
            if process.create_time() == known["started"]:
                end_processes(_session(process.pid), ORPHANS_SECONDS)
        except (ValueError, KeyError, psutil.NoSuchProcess):
            continue


def _session(leader: int) -> list[psutil.Process]:
    members = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
        except (psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            continue
    return members
