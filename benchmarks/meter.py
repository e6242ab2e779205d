"""What a piece of work costs: wall time, CPU time and memory of a process and all that it started."""

import threading
import time
from dataclasses import dataclass
from typing import Final, Self

import psutil

_EVERY_S: Final = 0.25


@dataclass(frozen=True)
class Cost:
    """The cost of a piece of work.

    Attributes:
        began: when it began, in seconds since the epoch.
        wall_s: how long it took.
        cpu_s: the CPU seconds of the process and its descendants, the JVM and its threads included.
        peak_mb: the largest sum of their resident memory seen, in megabytes.
    """

    began: float
    wall_s: float
    cpu_s: float
    peak_mb: float


class Meter:
    """Measures this process and its descendants while a block runs.

    Looks every quarter of a second, so that a part of the work can be told from the whole afterwards.
    """

    def __init__(self) -> None:
        self._samples: list[tuple[float, float, float]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._look()

    def cost(self, until: float | None = None) -> Cost:
        """Return the cost of the block, once it has ended.

        Args:
            until: leaves out what came later than this, in seconds since the epoch.
        """
        began, first_cpu, _ = self._samples[0]
        samples = [sample for sample in self._samples if until is None or sample[0] <= until]
        end = self._samples[-1][0] if until is None else until
        return Cost(began, end - began, samples[-1][1] - first_cpu, max(memory for _, _, memory in samples))

    def _watch(self) -> None:
        while not self._end.wait(_EVERY_S):
            self._look()

    def _look(self) -> None:
        cpu, memory = _usage()
        self._samples.append((time.time(), cpu, memory))


def _usage() -> tuple[float, float]:
    """CPU seconds and resident megabytes of this process and its descendants."""
    here = psutil.Process()
    cpu = memory = 0.0
    for process in [here, *here.children(recursive=True)]:
        try:
            times = process.cpu_times()
            # The times of children that have ended and were waited for are kept by their parent.
            cpu += times.user + times.system + times.children_user + times.children_system
            memory += process.memory_info().rss / 1e6
        except psutil.NoSuchProcess:
            continue
    return cpu, memory
