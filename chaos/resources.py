"""What the streams of a run hold on to, sampled all the time, and whether it grows."""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from statistics import median
from typing import Final

import psutil

from chaos.jobs import Job
from chaos.oracle import Violation

_MB: Final = 1e6
_LEAST: Final = 120
"""Samples below which nothing is said of growth: Spark keeps files of a hundred micro-batches."""
SHORTEST_S: Final = 1800.0
"""A run of less has too few samples, which take some time themselves, and is not judged."""
_MORE: Final = 1.1
_BEHIND_S: Final = 60.0


@dataclass(frozen=True)
class Holding:
    """What a stream holds at a moment: its processes together, and its checkpoint.

    Attributes:
        memory_mb: resident memory, in MB.
        handles: open files and sockets.
        threads: threads.
        checkpoint_mb: the files of its checkpoint, state included, in MB.
        checkpoint_files: their number.
    """

    memory_mb: float
    handles: float
    threads: float
    checkpoint_mb: float
    checkpoint_files: float


_SLACK: Final = Holding(memory_mb=100, handles=50, threads=30, checkpoint_mb=5, checkpoint_files=100)
"""What may come on top at any size, such as a further file of a log."""


@dataclass
class Sampler:
    """Samples streams in a thread.

    Attributes:
        jobs: the streams, by name, with their checkpoints.
        every_s: the pause between two samples, in seconds.
        samples: what each held.
    """

    jobs: Mapping[str, tuple[Job, Path]]
    every_s: float = 10.0
    samples: dict[str, list[Holding]] = field(default_factory=dict)
    _enough: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Sample until this ends."""
        thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._enough.set()
            thread.join()

    def _run(self) -> None:
        while not self._enough.wait(self.every_s):
            for name, (job, checkpoint) in self.jobs.items():
                if job.is_running:
                    self.samples.setdefault(name, []).append(holding(job.processes(), checkpoint))


def holding(processes: Sequence[psutil.Process], checkpoint: Path) -> Holding:
    """Return what processes hold together, those left out that have just ended, and a checkpoint."""
    memory, handles, threads = 0.0, 0, 0
    for process in processes:
        with suppress(psutil.Error):
            memory += process.memory_info().rss / _MB
            handles += process.num_fds()
            threads += process.num_threads()
    sizes = list[int]()
    for file in checkpoint.rglob("*"):
        # Streams remove files meanwhile.
        with suppress(OSError):
            if file.is_file():
                sizes.append(file.stat().st_size)
    return Holding(memory, handles, threads, sum(sizes) / _MB, len(sizes))


def growing(samples: Mapping[str, Sequence[Holding]]) -> list[Violation]:
    """Return what has grown all the time: its median in the last quarter against that in the third.

    Args:
        samples: of each stream, in their order.
    """
    found = list[str]()
    for stream, held in samples.items():
        if len(held) < _LEAST:
            continue
        for what in (each.name for each in fields(Holding)):
            early, late = quarters(held, what)
            if late > (allowed := early * _MORE + getattr(_SLACK, what)):
                found.append(f"{stream}: {what}: found {late:,.0f}, expected {allowed:,.0f} at most")
    return [Violation("what a stream holds is bounded", len(found), tuple(found))] if found else []


def unsampled(samples: Mapping[str, Sequence[Holding]], streams: Iterable[str]) -> list[Violation]:
    """Return the streams of a long run that were sampled too seldom to say anything."""
    found = [(name, len(samples.get(name, ()))) for name in streams]
    few = tuple(f"{name}: {count}, expected {_LEAST} at least" for name, count in found if count < _LEAST)
    return [Violation("streams are sampled all the time", len(few), few)] if few else []


def behind(lacking: Mapping[str, int], rate: float) -> list[Violation]:
    """Return the pipelines of which bronze lacks more than what producers usually send in a minute.

    Args:
        lacking: how many records, by pipeline.
        rate: records a second, without a burst.
    """
    allowed = int(rate * _BEHIND_S)
    found = [
        f"{pipeline}: found {count:,} records, expected {allowed:,} at most"
        for pipeline, count in lacking.items()
        if count > allowed
    ]
    return [Violation("streams keep up", len(found), tuple(found))] if found else []


def quarters(held: Sequence[Holding], what: str) -> tuple[float, float]:
    """Return the medians of the third and of the last quarter of samples.

    State grows until the watermark has passed what came first: for a third of a run, however long it is.
    """
    values, quarter = [getattr(each, what) for each in held], len(held) // 4
    return median(values[2 * quarter : 3 * quarter]), median(values[-quarter:])


def lines(samples: Mapping[str, Sequence[Holding]]) -> Iterator[str]:
    """Yield what each stream held, as text."""
    for stream, held in samples.items():
        if len(held) < _LEAST:
            yield f"  {stream}: {len(held)} samples, too few to say anything"
            continue
        told = list[str]()
        for each in fields(Holding):
            early, late = quarters(held, each.name)
            told.append(f"{each.name} {early:,.0f} -> {late:,.0f}")
        yield f"  {stream}: {', '.join(told)} ({len(held)} samples, third and last quarter)"


def document(samples: Mapping[str, Sequence[Holding]]) -> dict[str, list[dict[str, float]]]:
    """Return all samples as JSON has them."""
    return {stream: [asdict(each) for each in held] for stream, held in samples.items()}
