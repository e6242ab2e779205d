"""What happened in a run: printed as it happens, kept as lines of JSON, and counted at the end."""

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from chaos.oracle import Violation
from chaos.schedule import Fault

NOT_DONE: Final = (
    *("not injected", "not started", "nothing to kill", "nothing to stop", "nothing was written"),
    *("had not written", "failed"),
)
"""How the outcome of a fault begins that did nothing."""


@dataclass
class Injected:
    """A fault that was injected, or could not be.

    Attributes:
        fault: as it was planned.
        at_s: when, in seconds since the run began.
        outcome: what came of it, in words; empty as long as nothing is known.
        settled_s: when that was known, in seconds since the run began.
    """

    fault: Fault
    at_s: float
    outcome: str = ""
    settled_s: float | None = None


@dataclass(frozen=True)
class Ended:
    """A process that ended.

    Attributes:
        job: its name.
        code: its exit code; negative for a signal.
        error: what its summary says.
        at_s: when, in seconds since the run began.
    """

    job: str
    code: int
    error: str
    at_s: float


@dataclass
class Journal:
    """What happened in a run; threads may write to it.

    Attributes:
        file: one line of JSON for each thing that happened.
        injected: the faults.
        ended: the processes that ended.
        violations: what must not be.
    """

    file: Path
    injected: list[Injected] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def now_s(self) -> float:
        """Return the seconds since the run began."""
        return time.monotonic() - self._began

    def say(self, text: str, **more: Any) -> None:
        """Write down that something happened, and print it.

        Args:
            text: what.
            more: what else the file has of it.
        """
        at_s = round(self.now_s(), 1)
        with self._lock, self.file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"at_s": at_s, "what": text, **more}, default=str) + "\n")
            click.echo(f"{at_s:7.1f} s  {text}")

    def inject(self, fault: Fault) -> Injected:
        """Write down that a fault is injected; return where its outcome goes."""
        self.injected.append(Injected(fault, self.now_s()))
        detail = f", {fault.detail}" if fault.detail else ""
        self.say(f"FAULT {fault.kind} ({fault.target}{detail})")
        return self.injected[-1]

    def settle(self, injected: Injected, outcome: str) -> None:
        """Write down what came of a fault, once."""
        if not injected.outcome:
            injected.outcome, injected.settled_s = outcome, self.now_s()
            self.say(f"  {injected.fault.kind} ({injected.fault.target}): {outcome}")

    def end(self, job: str, code: int, error: str) -> None:
        """Write down that a process ended."""
        self.ended.append(Ended(job, code, error, self.now_s()))
        self.say(f"{job} ended with {code}{f': {error[:300]}' if error else ''}", error=error)

    def violate(self, rule: str, example: str) -> None:
        """Write down what must not be."""
        self.violations.append(Violation(rule, 1, (example,)))
        self.say(f"VIOLATION {rule}: {example}")

    def outcomes(self) -> dict[str, Counter[str]]:
        """Return how often each kind of fault had which outcome."""
        counts = dict[str, Counter[str]]()
        for each in self.injected:
            counts.setdefault(str(each.fault.kind), Counter())[each.outcome or "no outcome"] += 1
        return counts

    def exit_codes(self) -> dict[str, Counter[int]]:
        """Return how often each job ended with which exit code."""
        counts = dict[str, Counter[int]]()
        for each in self.ended:
            counts.setdefault(each.job, Counter())[each.code] += 1
        return counts
