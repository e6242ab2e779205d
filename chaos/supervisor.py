"""Runs streams: starts again what ends, and asks of each refusal which fault explains it."""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from chaos.jobs import Job
from chaos.journal import Injected, Journal
from chaos.runbook import Runbook, damaged_commit, lacks_permission
from chaos.schedule import OF_STATE, QUERIES

_NOTICED_S: Final = 90.0
_UNREPORTED: Final = 3
_START_AGAIN: Final = "Stop the other run, then start again"
# Of a checkpoint that goes on, this many further micro-batches are seen.
_GONE_ON: Final = 2


@dataclass
class Explained:
    """A refusal that a fault explains.

    Attributes:
        injected: the fault.
        since: the last micro-batch that was done then.
        needs_repair: whether a command of the runbook has to follow; otherwise a start is enough.
        is_under_way: whether the fault is still there, so that micro-batches mean nothing.
        failures: how often the job has failed with exit code 1 since.
        refusals: how often it was refused since, and told to be started again.
    """

    injected: Injected
    since: int
    needs_repair: bool
    is_under_way: bool = False
    failures: int = 0
    refusals: int = 0


@dataclass
class Supervisor:
    """Runs the streams of all pipelines.

    Attributes:
        runbook: what is done of refusals.
        streams: by their names, `PIPELINE/QUERY`.
        journal: what happened.
        is_quiet: whether cluster, network and disk are whole now.
        explained: refusals that a fault explains, by the name of the stream.
        held: jobs that are not to be started now: somebody works on their files, or changes their code.
        again_s: the pause before a stream that failed is started again, in seconds.
        refused_s: the same for one that was refused.
    """

    runbook: Runbook
    streams: Mapping[str, Job]
    journal: Journal
    is_quiet: Callable[[], bool]
    explained: dict[str, Explained] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    again_s: float = 1.0
    refused_s: float = 3.0
    _starts: dict[str, float] = field(default_factory=dict)
    _asides: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Start all streams."""
        for job in self.streams.values():
            job.start()

    def check(self) -> None:
        """Start what is due, and see to what has ended."""
        for name, job in self.streams.items():
            if name in self.held:
                continue
            if job.is_running:
                self._see_it_go_on(name)
                continue
            due = self._starts.pop(name, None)
            if due is None:
                self._ended(name, job)
            elif due <= time.monotonic():
                job.start()
            else:
                self._starts[name] = due

    def stop(self) -> None:
        """Stop all streams as an operator does, and expect good ends of those that run."""
        self.join()
        due = {
            name: job
            for name, job in self.streams.items()
            if job.is_running or (name not in self._starts and job.code is not None)
        }
        # Of one that has ended since the last look, this is its exit code.
        for (name, job), code in zip(due.items(), stop_all(due.values()), strict=True):
            error = str(job.summary().get("error", ""))
            self.journal.end(name, 0 if code is None else code, error)
            # One that was just failing ends as it would have.
            is_denied = code == 2 and lacks_permission(error)
            is_early = code == -signal.SIGTERM and not job.has_begun
            if code not in (0, 1, 4, -signal.SIGKILL) and not is_denied and not is_early:
                self.journal.violate("a stream that is told to stop ends with 0", f"{name}: {code}")

    def join(self) -> None:
        """Wait for what is done while streams are held."""
        for thread in self._asides:
            thread.join()

    def explain(
        self, name: str, injected: Injected, *, needs_repair: bool = True, is_under_way: bool = False
    ) -> None:
        """Note that a refusal of a stream is explained from now on, until it has gone on.

        Args:
            name: of the stream; jobs that are no streams need nothing.
            injected: the fault.
            needs_repair: as in `Explained`.
            is_under_way: as in `Explained`.
        """
        if name in self.streams:
            self.explained[name] = Explained(injected, self._last_done(name), needs_repair, is_under_way)

    def awaits_repair(self, pipeline: str) -> bool:
        """Return whether a fault of state of a pipeline may not have been noticed: it explains one refusal.

        What nobody has noticed for a while does no harm.
        """
        since_s = self.journal.now_s() - _NOTICED_S
        return any(
            each.needs_repair and each.injected.fault.kind in OF_STATE and each.injected.at_s > since_s
            for name, each in self.explained.items()
            if name.partition("/")[0] == pipeline
        )

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
        self._asides.append(threading.Thread(target=run, name=f"work on {', '.join(sorted(held))}"))
        self._asides[-1].start()

    def handle(self, name: str, job: Job) -> bool:
        """See to the end of a run that took what there was.

        Returns:
            Whether it was a good one; if not, what can be repaired is repaired.
        """
        code, error = job.code, str(job.summary().get("error", ""))
        self.journal.end(name, -1 if code is None else code, error)
        if code == 4:
            self._refused(name, error)
        elif code == 1:
            self._failed(name, error)
        self.join()
        return code == 0

    def _last_done(self, name: str) -> int:
        return newest_micro_batch(self.runbook.site.checkpoint(name))

    def _see_it_go_on(self, name: str) -> None:
        explained = self.explained.get(name)
        if explained is None or explained.is_under_way:
            return
        if self._last_done(name) >= explained.since + _GONE_ON:
            del self.explained[name]
            # Of a table that several streams use, the others may not have looked at it yet.
            if all(other.injected is not explained.injected for other in self.explained.values()):
                self.journal.settle(explained.injected, "not refused: went on by itself")

    def _ended(self, name: str, job: Job) -> None:
        job.bury()
        code, error = job.code or 0, str(job.summary().get("error", ""))
        self.journal.end(name, code, error)
        self._starts[name] = time.monotonic() + (self.again_s if code > 0 else 0)
        if code == 4:
            self._refused(name, error)
        elif code == 1:
            self._failed(name, error)
        elif code == 2 and lacks_permission(error) and not self.is_quiet():
            self.journal.say(f"{name} is not allowed to do its work, and will be")
        elif code >= 0:
            self.journal.violate("a stream runs until it is stopped", f"{name}: {code}: {error}")

    def _failed(self, name: str, error: str) -> None:
        """Count failures that nothing outside explains: a job that cannot read its state has to say so."""
        name = self._blamed(name, error)
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
            self._repair(name, error, "reported with 1 again and again, then repaired as if with 4")

    def _refused(self, name: str, error: str) -> None:
        if not any(way in error for way in ("oncelake ", "docs/", _START_AGAIN)):
            self.journal.violate("a refusal names a way back", f"{name}: {error}")
        name = self._blamed(name, error)
        explained = self.explained.get(name)
        if explained and (not explained.needs_repair or _START_AGAIN in error):
            explained.refusals += 0 if explained.is_under_way else 1
            if explained.refusals < _UNREPORTED:
                self._starts[name] = time.monotonic() + self.refused_s
                return
            fault = explained.injected.fault
            self.journal.violate(
                "what a refusal tells to do leads back",
                f"{name} is refused again and again after {fault.kind} ({fault.detail}): {error}",
            )
        if explained is None and not self.held_with(name) & self.held:
            self.journal.violate("exit code 4 has a cause", f"{name}: {error}")
        self._repair(name, error, "refused with 4, repaired by the runbook")

    def _blamed(self, name: str, error: str) -> str:
        """Return the stream whose checkpoint an error is about: jobs read those of others, too."""
        checkpoints = {other: str(self.runbook.site.checkpoint(other)) for other in self.explained}
        return next((other for other, checkpoint in checkpoints.items() if checkpoint in error), name)

    @staticmethod
    def held_with(name: str) -> set[str]:
        """Return the streams that are stopped while one of them is repaired."""
        pipeline, _, query = name.partition("/")
        return {name} if query == "publish" else set(names_of([pipeline], QUERIES))

    def _repair(self, name: str, error: str, outcome: str) -> None:
        held = self.held_with(name)
        if held & self.held:
            # It is refused once more when the others are done, if it still has to be.
            self._starts[name] = time.monotonic() + self.refused_s
            return
        explained = self.explained.pop(name, None)
        if explained:
            self.journal.settle(explained.injected, outcome)
        self.aside(held, partial(self._follow, name, held, error, explained.injected if explained else None))

    def _follow(self, name: str, held: set[str], error: str, injected: Injected | None) -> None:
        stop_all([self.streams[each] for each in held])
        pipeline, _, query = name.partition("/")
        self.runbook.follow(pipeline, query, error)
        for each in held:
            self.explained.pop(each, None)
            # Without its commit the table is older than the checkpoints, which they have to notice.
            if injected and damaged_commit(error):
                self.explain(each, injected)


def stop_all(jobs: Iterable[Job]) -> list[int | None]:
    """Stop jobs, all at once; return their exit codes."""
    with ThreadPoolExecutor() as threads:
        return [*threads.map(Job.stop, jobs)]


def names_of(pipelines: Sequence[str], queries: Sequence[str]) -> list[str]:
    """Return the names of all streams."""
    return [f"{pipeline}/{query}" for pipeline in pipelines for query in queries]


def newest_micro_batch(checkpoint: Path) -> int:
    """Return the newest micro-batch that a checkpoint has as done; -1 if there is none."""
    numbers = (int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdigit())
    return max(numbers, default=-1)
