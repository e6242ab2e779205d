"""The faults: how each is injected and healed."""

import os
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from chaos.jobs import Job
from chaos.journal import Injected
from chaos.proxy import Link
from chaos.schedule import QUERIES, Kind
from chaos.state_files import file_to_tear, tear
from chaos.supervisor import names_of, newest_micro_batch
from chaos.traffic import DAYS
from chaos.world import World

_AFTERWARDS_S: Final = 20.0
_NIGHT_S: Final = 120.0
_NOT_RUNNING: Final = "not injected: the target did not run"
_JVM: Final = "SparkSubmit"
_WORKERS: Final = "pyspark.daemon"


class Effect(ABC):
    """A fault that is under way.

    Args:
        world: where it happens.
        injected: what is known of it.
    """

    def __init__(self, world: World, injected: Injected) -> None:
        self.world, self.injected = world, injected
        self.fault = injected.fault

    @abstractmethod
    def inject(self) -> None:
        """Let it happen."""

    def heal(self) -> None:
        """Put right what has to be put right when its time is over."""
        self.settle("over")

    def settle(self, outcome: str) -> None:
        """Say what came of it."""
        self.world.journal.settle(self.injected, outcome)

    def target(self) -> Job | None:
        """Return the job that is hit; None if it does not run, which is its outcome then."""
        job = self.world.job(self.fault.target)
        if job is None:
            self.settle(_NOT_RUNNING)
        return job


class Outside(Effect):
    """A fault of cluster, network or disk: jobs may fail with exit code 1 meanwhile, and somewhat longer."""

    def inject(self) -> None:
        """Let it happen."""
        self.world.disturbed += 1
        self.begin()

    def heal(self) -> None:
        """Put it right."""
        self.end()
        self.world.disturbed -= 1
        self.world.disturbed_until = time.monotonic() + _AFTERWARDS_S
        self.settle("over")

    @abstractmethod
    def begin(self) -> None:
        """Let it happen."""

    @abstractmethod
    def end(self) -> None:
        """Put it right."""


class Kill(Effect):
    """SIGKILL of all or some processes of a job."""

    _named: Final[Mapping[Kind, str]] = {Kind.KILL_JVM: _JVM, Kind.KILL_WORKER: _WORKERS}

    def inject(self) -> None:
        """Let it happen."""
        if job := self.target():
            count = job.send(signal.SIGKILL, self._named.get(self.fault.kind, ""))
            self.settle(f"{'killed' if count else 'nothing to kill'}")


class Pause(Effect):
    """SIGSTOP of a job; SIGCONT when its time is over."""

    _job: Job | None = None

    def inject(self) -> None:
        """Let it happen."""
        self._job = self.target()
        if self._job:
            self._job.send(signal.SIGSTOP)

    def heal(self) -> None:
        """Let it go on."""
        if self._job:
            self._job.send(signal.SIGCONT)
            self.settle("went on")


class KillBroker(Outside):
    """SIGKILL of a broker; it is started again when its time is over."""

    def begin(self) -> None:
        """Kill it."""
        self.world.cluster.brokers[int(self.fault.target)].kill()

    def end(self) -> None:
        """Start it again."""
        self.world.cluster.brokers[int(self.fault.target)].start()


class PauseBroker(Outside):
    """SIGSTOP of a broker; SIGCONT when its time is over."""

    def begin(self) -> None:
        """Let it stand still."""
        self.world.cluster.brokers[int(self.fault.target)].send(signal.SIGSTOP)

    def end(self) -> None:
        """Let it go on."""
        self.world.cluster.brokers[int(self.fault.target)].send(signal.SIGCONT)


class Network(Outside):
    """Connections of a broker that are cut or held back."""

    def begin(self) -> None:
        """Let it happen."""
        link = Link.CUT if self.fault.kind is Kind.CUT_NETWORK else Link.STALLED
        self.world.cluster.brokers[int(self.fault.target)].proxy.turn(link)

    def end(self) -> None:
        """Let bytes through again."""
        self.world.cluster.brokers[int(self.fault.target)].proxy.turn(Link.OPEN)


class Delay(Outside):
    """Packets of all brokers that are delayed."""

    def begin(self) -> None:
        """Let it happen."""
        self._delay(int(self.fault.detail.split()[0]) / 1000)

    def end(self) -> None:
        """Let them through at once."""
        self._delay(0.0)

    def _delay(self, seconds: float) -> None:
        for broker in self.world.cluster.brokers.values():
            broker.proxy.delay_s = seconds


class FillDisk(Outside):
    """A disk of the lake without space."""

    @property
    def _ballast(self) -> Path:
        return self.world.site.lake / "ballast"

    def begin(self) -> None:
        """Fill it."""
        if not self.world.has_own_disk:
            self.settle("not injected: no file system may be mounted here")
            return
        with suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(self.world.site.lake).free)
            # What others have given back meanwhile.
            while True:
                file.seek(0, os.SEEK_END)
                file.write(bytes(1 << 16))
        self._explain(is_under_way=True)

    def end(self) -> None:
        """Make room."""
        if self.world.has_own_disk:
            self._ballast.unlink(missing_ok=True)
            self._explain(is_under_way=False)

    def _explain(self, *, is_under_way: bool) -> None:
        """Explain refusals: a commit of Delta that is cut off stays so when there is room again."""
        supervisor = self.world.supervisor
        for name in names_of([self.fault.target], QUERIES):
            known = supervisor.explained.get(name)
            if known is None or known.injected is self.injected:
                supervisor.explain(name, self.injected, is_under_way=is_under_way)


class ReadOnly(Outside):
    """A lake that cannot be written: for root, who may write anything, its file system becomes read-only."""

    _is_remounted = False

    def begin(self) -> None:
        """Take the right away."""
        lake = self.world.site.lake
        if os.geteuid() != 0:
            lake.chmod(0o500)
        elif not self.world.has_own_disk:
            self.settle("not injected: no file system may be mounted here")
        elif not self._remount("ro"):
            self.settle("not injected: a file was open")

    def end(self) -> None:
        """Give it back."""
        if os.geteuid() != 0:
            self.world.site.lake.chmod(0o700)
        elif self._is_remounted:
            self._remount("rw")

    def _remount(self, mode: str) -> bool:
        command = ["mount", "-o", f"remount,{mode}", str(self.world.site.lake)]
        for _ in range(20):
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                self._is_remounted = mode == "ro"
                return True
            time.sleep(0.05)
        return False


class Tear(Effect):
    """A file of a checkpoint that is damaged while its stream is down."""

    def inject(self) -> None:
        """Kill the stream and damage the file; it is started again as after any death."""
        name, job = self.fault.target, self.target()
        if job is None:
            return
        which, how = self.fault.detail.split()
        held = self.world.supervisor.held
        held.add(name)
        job.kill()
        file = file_to_tear(self.world.site.checkpoint(name), which)
        if file is None:
            self.settle("not injected: there is no such file yet")
        else:
            tear(file, how)
            self.world.supervisor.explain(name, self.injected)
        held.discard(name)


class SecondCopy(Effect):
    """The same job once more, on the same checkpoint."""

    _copy: Job | None = None

    def inject(self) -> None:
        """Start it."""
        if self.target() is None:
            return
        pipeline, _, query = self.fault.target.partition("/")
        self._copy = self.world.site.stream(pipeline, query)
        self._copy.name = f"{self.fault.target} (copy {round(self.injected.at_s)})"
        self._copy.start()
        self._explain(is_under_way=True)

    def heal(self) -> None:
        """Kill it, unless it was refused."""
        if self._copy is None:
            return
        code = self._copy.code
        if code is not None:
            error = str(self._copy.summary().get("error", ""))
            self.world.journal.end(self._copy.name, code, error)
            self.settle(f"the copy ended with {code}")
        self._copy.kill()
        self._explain(is_under_way=False)

    def _explain(self, *, is_under_way: bool) -> None:
        self.world.supervisor.explain(
            self.fault.target, self.injected, needs_repair=False, is_under_way=is_under_way
        )


class RestoreCheckpoint(Effect):
    """A checkpoint that is put back as it was some time before."""

    def inject(self) -> None:
        """Take the backup, while the stream stands still."""
        job = self.target()
        if job is None:
            return
        job.send(signal.SIGSTOP)
        _copy(self._place, self._backup)
        job.send(signal.SIGCONT)

    def heal(self) -> None:
        """Kill the stream, and put the backup in the place of what is there."""
        name, held = self.fault.target, self.world.supervisor.held
        if not self._backup.exists() or name in held:
            self.settle("not injected: there was no backup, or the stream was at rest")
            return
        held.add(name)
        self.world.supervisor.streams[name].kill()
        has_gone_on = newest_micro_batch(self._place) != newest_micro_batch(self._backup)
        shutil.rmtree(self._place)
        shutil.move(self._backup, self._place)
        if has_gone_on:
            self.world.supervisor.explain(name, self.injected)
        else:
            self.settle("nothing was written since the backup")
        held.discard(name)

    @property
    def _place(self) -> Path:
        return self.world.site.checkpoint(self.fault.target)

    @property
    def _backup(self) -> Path:
        name = f"{self.fault.target.replace('/', '-')}-{round(self.injected.at_s)}"
        return self.world.site.folder / "backups" / name


class RestoreTable(Effect):
    """A table that is put back as it was some time before."""

    _writers: Final = {"bronze": "ingest", "speed": "speed", "certifications": "nightly"}
    _readers: Final = {"bronze": ("speed",), "speed": ("publish",), "certifications": ("publish",)}
    _newer: Path | None = None

    def inject(self) -> None:
        """Take the backup, while its writer stands still."""
        writer = self.world.job(f"{self.fault.target}/{self._writers[self.fault.detail]}")
        if not (self._place / "_delta_log").is_dir():
            self.settle("not injected: there is no such table yet")
            return
        if writer:
            writer.send(signal.SIGSTOP)
        _copy(self._place, self._backup)
        if writer:
            writer.send(signal.SIGCONT)

    def heal(self) -> None:
        """Kill who writes and reads it, and put the backup in its place."""
        if not self._backup.exists():
            return
        if (self._backup / "_delta_log").is_dir() and _commits(self._backup) == _commits(self._place):
            self.settle("nothing was written since the backup")
            return
        supervisor, pipeline = self.world.supervisor, self.fault.target
        queries = (self._writers[self.fault.detail], *self._readers[self.fault.detail])
        names = [f"{pipeline}/{query}" for query in queries]
        if supervisor.held & set(names):
            self.settle("not injected: the stream was at rest")
            return
        streams = [name for name in names if name in supervisor.streams]
        supervisor.held |= set(streams)
        for name in streams:
            supervisor.streams[name].kill()
        if self.fault.detail == "certifications":
            supervisor.aside(set(streams), partial(self._put_back_verdicts, pipeline))
            return
        self.world.watches[pipeline].pause()
        shutil.rmtree(self._place)
        shutil.move(self._backup, self._place)
        self.world.watches[pipeline].resume()
        for name in streams:
            supervisor.explain(name, self.injected)
        supervisor.held -= set(streams)

    def _put_back_verdicts(self, pipeline: str) -> None:
        """Let a nightly run see the older ledger, and then restore the right one, as the runbook says."""
        self.world.nights[pipeline].kill()
        watch = self.world.watches[pipeline]
        watch.pause()
        certified, newer = watch.reader.certified(), self._backup.with_name(f"{self._backup.name}-newer")
        shutil.move(self._place, newer)
        shutil.move(self._backup, self._place)
        is_older = watch.reader.certified().version != certified.version
        night = self.world.site.nightly(pipeline)
        night.name = f"{pipeline}/nightly (older verdicts)"
        night.start("--to", str(DAYS[-1]))
        code = night.wait(_NIGHT_S)
        error = str(night.summary().get("error", ""))
        night.kill()
        self.world.journal.end(night.name, -1 if code is None else code, error)
        if code == 0 and is_older:
            self.world.journal.violate("verdicts that are gone are noticed", f"{pipeline}: exit code 0")
        shutil.rmtree(self._place)
        shutil.move(newer, self._place)
        watch.resume()
        self.settle(f"the nightly run ended with {code}; the newer table was restored")

    @property
    def _place(self) -> Path:
        lake, detail = self.world.site.lake, self.fault.detail
        return lake / "ops" / detail if detail == "certifications" else lake / detail / self.fault.target

    @property
    def _backup(self) -> Path:
        name = f"{self.fault.target}-{self.fault.detail}-{round(self.injected.at_s)}"
        return self.world.site.folder / "backups" / name


class SkewClock(Effect):
    """The clock of a producer that is wrong: the traffic was made so."""

    def inject(self) -> None:
        """Nothing is left to do."""
        self.settle("sent so")


class StartJob(Effect):
    """A nightly run, or `maintain`."""

    def inject(self) -> None:
        """Start it, unless it runs."""
        jobs = self.world.nights if self.fault.kind is Kind.NIGHTLY else self.world.upkeep
        job = jobs[self.fault.target]
        if job.is_running:
            self.settle("not started: the one before runs still")
        else:
            job.start(*(("--to", self.fault.detail) if self.fault.detail else ()))
            self.settle("started")


EFFECTS: Final[Mapping[Kind, Callable[[World, Injected], Effect]]] = {
    Kind.KILL_DRIVER: Kill,
    Kind.KILL_JVM: Kill,
    Kind.KILL_WORKER: Kill,
    Kind.PAUSE_DRIVER: Pause,
    Kind.KILL_BROKER: KillBroker,
    Kind.PAUSE_BROKER: PauseBroker,
    Kind.CUT_NETWORK: Network,
    Kind.STALL_NETWORK: Network,
    Kind.DELAY_NETWORK: Delay,
    Kind.TEAR: Tear,
    Kind.SECOND_COPY: SecondCopy,
    Kind.RESTORE_CHECKPOINT: RestoreCheckpoint,
    Kind.RESTORE_TABLE: RestoreTable,
    Kind.FILL_DISK: FillDisk,
    Kind.READ_ONLY: ReadOnly,
    Kind.SKEW_CLOCK: SkewClock,
    Kind.NIGHTLY: StartJob,
    Kind.MAINTAIN: StartJob,
}


def _copy(place: Path, backup: Path) -> None:
    backup.parent.mkdir(exist_ok=True)
    # What is no longer there when it is its turn was being written, and is not part of the moment.
    with suppress(shutil.Error, OSError):
        shutil.copytree(place, backup)


def _commits(table: Path) -> set[str]:
    return {path.name for path in (table / "_delta_log").glob("*.json")}
