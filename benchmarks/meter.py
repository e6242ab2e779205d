"""What a piece of work costs: wall time, CPU time and memory of a process and all that it started."""

import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Self

import psutil

_EVERY_S: Final = 0.25
# Names of threads as the system shows them, cut to 15 characters.
_COMPILERS: Final = ("C1 CompilerThre", "C2 CompilerThre")


@dataclass(frozen=True)
class Cost:
    """The cost of a piece of work.

    Attributes:
        began: when it began, in seconds since the epoch.
        wall_s: how long it took.
        cpu_s: the CPU seconds of the process and its descendants, the JVM and its threads included.
        compile_s: what Java's compilers took of it; 0 where the system does not tell threads apart.
        peak_mb: the largest sum of their resident memory seen, in megabytes.
    """

    began: float
    wall_s: float
    cpu_s: float
    compile_s: float
    peak_mb: float


class _Sample(NamedTuple):
    at: float
    cpu_s: float
    compile_s: float
    memory_mb: float


class Meter:
    """Measures this process and its descendants while a block runs.

    Looks every quarter of a second, so that a part of the work can be told from the whole afterwards.
    """

    def __init__(self) -> None:
        self._samples: list[_Sample] = []
        self._compilers = _Compilers()
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
        first = self._samples[0]
        end = self._samples[-1].at if until is None else until
        samples = [sample for sample in self._samples if until is None or sample.at <= until]
        return Cost(
            first.at,
            end - first.at,
            samples[-1].cpu_s - first.cpu_s,
            samples[-1].compile_s - first.compile_s,
            max(sample.memory_mb for sample in samples),
        )

    def _watch(self) -> None:
        while not self._end.wait(_EVERY_S):
            self._look()

    def _look(self) -> None:
        cpu = memory = 0.0
        here = psutil.Process()
        processes = [here, *here.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                # The times of children that have ended and were waited for are kept by their parent.
                cpu += times.user + times.system + times.children_user + times.children_system
                memory += process.memory_info().rss / 1e6
        compiling = self._compilers.seconds([process.pid for process in processes])
        self._samples.append(_Sample(time.time(), cpu, compiling, memory))


class _Compilers:
    """Adds up the CPU seconds of Java's compilers, which are threads with names of their own."""

    def __init__(self) -> None:
        self._is_compiler: dict[Path, bool] = {}
        self._seconds: dict[Path, float] = {}

    def seconds(self, processes: Iterable[int]) -> float:
        """Return what the compilers of these processes have taken so far, those that have ended included."""
        for process in processes:
            # Only Linux has such files; a thread or process may have ended.
            with suppress(OSError):
                for thread in Path(f"/proc/{process}/task").iterdir():
                    with suppress(OSError):
                        self._look_at(thread)
        return sum(self._seconds.values())

    def _look_at(self, thread: Path) -> None:
        if thread not in self._is_compiler:
            self._is_compiler[thread] = (thread / "comm").read_text().strip() in _COMPILERS
        if self._is_compiler[thread]:
            # Fields 14 and 15, counted behind the name, which may hold spaces.
            fields = (thread / "stat").read_text().rpartition(")")[2].split()
            self._seconds[thread] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
