"""Runs streams: starts again what ends, and does what the runbook says of a refusal that a fault explains."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from chaos.commands import Site
from chaos.jobs import Job
from chaos.journal import Injected, Journal

_AGAIN_S: Final = 1.0
_UNREPORTED: Final = 3
_COMMAND_S: Final = 180.0
_TRIES_S: Final = 240.0
_PAUSE_S: Final = 5.0


@dataclass
class Explained:
    """A refusal that a fault explains.

    Attributes:
        injected: the fault.
        needs_repair: whether a command of the runbook has to follow; otherwise a start is enough.
        failures: how often the job has failed with exit code 1 since.
    """

    injected: Injected
    needs_repair: bool
    failures: int = 0


@dataclass
class Supervisor:
    """Runs the streams of all pipelines.

    Attributes:
        site: where they are.
        streams: by their names, `PIPELINE/QUERY`.
        journal: what happened.
        is_quiet: whether cluster, network and disk are whole now.
        explained: refusals that a fault explains, by the name of the stream.
        held: streams that are not to be started now: somebody works on their files.
        repeats: how often publishing of a pipeline was started again from the beginning.
    """

    site: Site
    streams: Mapping[str, Job]
    journal: Journal
    is_quiet: Callable[[], bool]
    explained: dict[str, Explained] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    repeats: dict[str, int] = field(default_factory=dict)
    _starts: dict[str, float] = field(default_factory=dict)
    _repairs: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Start all streams."""
        for name in self.streams:
            self._start(name)

    def check(self) -> None:
        """Start what is due, and see to what has ended."""
        for name, job in self.streams.items():
            if name in self.held or job.is_running:
                continue
            due = self._starts.pop(name, None)
            if due is None:
                self._ended(name, job)
            elif due <= time.monotonic():
                self._start(name)
            else:
                self._starts[name] = due

    def stop(self) -> None:
        """Stop all streams as an operator does, and expect good ends of those that run."""
        self.join()
        for name, job in self.streams.items():
            if not job.is_running:
                continue
            code = job.stop()
            self.journal.end(name, 0 if code is None else code, str(job.summary().get("error", "")))
            if code not in (0, 1, 4):
                self.journal.violate("a stream that is told to stop ends with 0", f"{name}: {code}")

    def join(self) -> None:
        """Wait for the repairs that are under way."""
        for repair in self._repairs:
            repair.join()

    def explain(self, name: str, injected: Injected, *, needs_repair: bool) -> None:
        """Note that a refusal of a stream is explained from now on."""
        if name in self.streams:
            self.explained[name] = Explained(injected, needs_repair)

    def handle(self, name: str, job: Job) -> bool:
        """See to the end of a run that took what there was.

        Returns:
            Whether it was a good one; if not, what can be repaired is repaired.
        """
        code, error = job.code, str(job.summary().get("error", ""))
        self.journal.end(name, -1 if code is None else code, error)
        if code == 4:
            self._refused(name, error)
            self.join()
        elif code == 1:
            self._failed(name, error)
        return code == 0

    def _start(self, name: str) -> None:
        self.streams[name].start()

    def _ended(self, name: str, job: Job) -> None:
        job.bury()
        code, error = job.code or 0, str(job.summary().get("error", ""))
        self.journal.end(name, code, error)
        self._starts[name] = time.monotonic() + (_AGAIN_S if code > 0 else 0)
        if code == 4:
            self._refused(name, error)
        elif code == 1:
            self._failed(name, error)
        elif code >= 0:
            self.journal.violate("a stream runs until it is stopped", f"{name}: {code}: {error}")

    def _failed(self, name: str, error: str) -> None:
        """Count failures that nothing outside explains: a job that cannot read its state has to say so."""
        explained = self.explained.get(name)
        if explained is None or not explained.needs_repair or not self.is_quiet():
            return
        explained.failures += 1
        if explained.failures == _UNREPORTED:
            fault = explained.injected.fault
            self.journal.violate(
                "state that cannot be read is reported with exit code 4",
                f"{name} fails with 1 again and again after {fault.kind} ({fault.detail}): {error}",
            )
            self._repair(name, "reported with 1 only, reset")

    def _refused(self, name: str, error: str) -> None:
        if "oncelake " not in error and "docs/" not in error and "Stop" not in error:
            self.journal.violate("a refusal names a way back", f"{name}: {error}")
        explained = self.explained.get(name)
        if explained is None:
            self.journal.violate("exit code 4 has a cause", f"{name}: {error}")
        if explained and not explained.needs_repair:
            self.journal.settle(explained.injected, "refused with 4, started again")
            self._starts[name] = time.monotonic() + _PAUSE_S
            return
        self._repair(name, "refused with 4, the command of the runbook")

    def _repair(self, name: str, outcome: str) -> None:
        explained = self.explained.pop(name, None)
        if explained:
            self.journal.settle(explained.injected, outcome)
        pipeline, _, query = name.partition("/")
        held = {name} if query != "speed" else {name, f"{pipeline}/publish"}
        if not held & self.held:
            self.aside(held, partial(self._follow_the_runbook, pipeline, query, held))

    def aside(self, held: set[str], work: Callable[[], None]) -> None:
        """Do something in a thread, while streams are not started; they are afterwards.

        Args:
            held: the streams.
            work: what.
        """

        def run() -> None:
            try:
                work()
            finally:
                for name in held:
                    self._starts[name] = time.monotonic()
                self.held -= held

        self.held |= held
        self._repairs.append(threading.Thread(target=run, name=f"work on {', '.join(sorted(held))}"))
        self._repairs[-1].start()

    def _follow_the_runbook(self, pipeline: str, query: str, held: set[str]) -> None:
        for name in held:
            self.streams[name].stop()
        if query == "publish":
            self._begin_publishing(pipeline)
        else:
            self._command(pipeline, "checkpoint reset", "--query", query)
            self._command(pipeline, f"{query}_stream", "--once")
            if query == "speed":
                self._begin_publishing(pipeline)
            else:
                self._command(pipeline, "reconcile")
        for name in held:
            self.explained.pop(name, None)

    def _begin_publishing(self, pipeline: str) -> None:
        checkpoint = self.site.checkpoint(f"{pipeline}/publish")
        if checkpoint.exists():
            checkpoint.rename(checkpoint.with_name(f"publish-old-{time.time_ns()}"))
        self.repeats[pipeline] = self.repeats.get(pipeline, 0) + 1
        self._command(pipeline, "publish reset", "--to", "beginning")

    def _command(self, pipeline: str, command: str, *options: str) -> None:
        """Run a command of the runbook, again if the cluster or another run is in its way."""
        deadline = time.monotonic() + _TRIES_S
        while True:
            job = self.site.job(
                f"{pipeline}/{command} {' '.join(options)}".strip(), pipeline, command, *options
            )
            job.start()
            code = job.wait(_COMMAND_S)
            job.kill()
            error = str(job.summary().get("error", ""))
            self.journal.end(job.name, -1 if code is None else code, error)
            if code == 0:
                return
            if code != 1 or time.monotonic() > deadline:
                self.journal.violate("the commands of the runbook lead back", f"{job.name}: {code}: {error}")
                return
            time.sleep(_PAUSE_S)


def names_of(pipelines: Sequence[str], queries: Sequence[str]) -> list[str]:
    """Return the names of all streams."""
    return [f"{pipeline}/{query}" for pipeline in pipelines for query in queries]
