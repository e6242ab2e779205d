"""What a run consists of, for the faults that happen in it."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from chaos.cluster import Cluster
from chaos.commands import Site
from chaos.jobs import Job
from chaos.journal import NOT_DONE, Journal
from chaos.observations import Poll
from chaos.proxy import Link
from chaos.reading import LakeReader
from chaos.schedule import OF_STATE
from chaos.supervisor import Supervisor

# What was refused is settled when its repair begins.
_REPAIRED_S: Final = 90.0


@dataclass
class Watch:
    """A reader that polls all the time, in a thread.

    Attributes:
        reader: of the pipeline.
        journal: tells the time.
        every_s: the pause between two reads, in seconds.
        polls: what it found.
        refused: how many reads failed.
    """

    reader: LakeReader
    journal: Journal
    every_s: float
    polls: list[Poll] = field(default_factory=list)
    refused: int = 0
    _paused: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _enough: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(
            target=self._run, name=f"reader of {self.reader.pipeline}", daemon=True
        )
        self._thread.start()

    def pause(self) -> None:
        """Read nothing until `resume`: the tables are being put back, and no reader may trust them."""
        with self._lock:
            self._paused += 1

    def resume(self) -> None:
        """Go on after `pause`."""
        with self._lock:
            self._paused -= 1

    def finish(self) -> None:
        """Read no more."""
        self._enough.set()
        if self._thread:
            self._thread.join()

    def _run(self) -> None:
        while not self._enough.wait(self.every_s):
            self.poll()

    def poll(self) -> None:
        """Read once; a table that is just moved aside or put back cannot be read, which is no answer."""
        with self._lock:
            if self._paused:
                return
            try:
                self.polls.append(self.reader.poll(self.journal.now_s()))
            except Exception as error:  # noqa: BLE001 - delta-rs and DuckDB have many, and all mean the same
                self.refused += 1
                self.journal.say(f"a reader was refused: {str(error)[:200]}")


@dataclass
class World:
    """What a run consists of.

    Attributes:
        site: where the pipelines are.
        cluster: the brokers.
        journal: what happened.
        supervisor: runs the streams.
        nights: the nightly run of each pipeline.
        upkeep: `maintain` of each pipeline.
        watches: the reader of each pipeline.
        has_own_disk: whether the lake has a file system of its own, which can be filled.
        disk_faults: how many faults of the disk are under way.
        disturbed: how many faults of cluster, network and disk are under way.
        disturbed_until: until when, by the monotonic clock, jobs may still feel one that is over.
        links: what the faults of the network that are under way make of the connections of each broker.
        delays: how long each such fault delays packets, in seconds.
    """

    site: Site
    cluster: Cluster
    journal: Journal
    supervisor: Supervisor
    nights: Mapping[str, Job]
    upkeep: Mapping[str, Job]
    watches: Mapping[str, Watch]
    has_own_disk: bool = False
    disk_faults: int = 0
    disturbed: int = 0
    disturbed_until: float = 0.0
    links: defaultdict[int, list[Link]] = field(default_factory=lambda: defaultdict(list))
    delays: list[float] = field(default_factory=list)
    _asides: list[threading.Thread] = field(default_factory=list)

    @property
    def is_quiet(self) -> bool:
        """Whether cluster, network and disk have been whole for a while."""
        return self.disturbed == 0 and time.monotonic() > self.disturbed_until

    def has_damaged_state(self, pipeline: str, since_s: float) -> bool:
        """Return whether state of a pipeline was damaged or put back, and not repaired long before.

        Args:
            pipeline: its name.
            since_s: when the job began that asks, in seconds since the run began.
        """
        return any(
            each.fault.target.partition("/")[0] == pipeline
            and not each.outcome.startswith(NOT_DONE)
            and (each.settled_s is None or each.settled_s + _REPAIRED_S > since_s)
            for each in self.journal.injected
            if each.fault.kind in OF_STATE
        )

    def aside(self, work: Callable[[], None]) -> None:
        """Do in a thread what may have to wait for the cluster."""
        self._asides.append(threading.Thread(target=work, daemon=True))
        self._asides[-1].start()

    def join(self) -> None:
        """Wait for what is done aside."""
        for thread in self._asides:
            thread.join()

    def job(self, name: str) -> Job | None:
        """Return a job by its name; None if it does not run or its files are being worked on."""
        pipeline, _, query = name.partition("/")
        job = self.nights[pipeline] if query == "nightly" else self.supervisor.streams[name]
        return job if job.is_running and name not in self.supervisor.held else None
