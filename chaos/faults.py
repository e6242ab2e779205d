"""The faults: how each is injected and healed."""

import os
import signal
import subprocess
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import psutil

from chaos.cluster import Broker, Denied
from chaos.disks import fill, make_room
from chaos.effects import Effect
from chaos.jobs import Job
from chaos.journal import Injected
from chaos.proxy import Link
from chaos.reading import output_topic
from chaos.schedule import QUERIES, Kind
from chaos.state_faults import RestoreCheckpoint, RestoreTable, SecondCopy, Tear, TearCommit
from chaos.supervisor import names_of
from chaos.upgrade import Upgrade
from chaos.world import World
from pipelines.errors import InfrastructureError
from testbed.waiting import wait_until

_AFTERWARDS_S: Final = 20.0
_LOOK_S: Final = 0.5
_WHOLE_S: Final = 10.0
_GIVEN_BACK_S: Final = 60.0
_JVM: Final = "SparkSubmit"
_WORKERS: Final = "pyspark.daemon"
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"


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
    """SIGKILL of a job, or of its JVM."""

    def inject(self) -> None:
        """Let it happen."""
        if job := self.target():
            count = job.send(signal.SIGKILL, _JVM if self.fault.kind is Kind.KILL_JVM else "")
            self.settle("killed" if count else "nothing to kill")


class KillWorkers(Effect):
    """SIGKILL of the Python workers of a job, as soon as there are some."""

    def inject(self) -> None:
        """Look for them; they come with the first task that needs Python."""
        self.keep()

    def keep(self) -> None:
        """Kill them once."""
        job = None if self.injected.outcome else self.world.job(self.fault.target)
        if job and job.send(signal.SIGKILL, _WORKERS):
            self.settle("killed")

    def heal(self) -> None:
        """Look no longer."""
        self.settle("nothing to kill")


class Pause(Effect):
    """SIGSTOP of a job; SIGCONT when its time is over."""

    _stopped: Sequence[psutil.Process] = ()

    def inject(self) -> None:
        """Let it happen."""
        if job := self.target():
            self._stopped = job.processes()
            self.keep()

    def keep(self) -> None:
        """Stop it once more: others on this machine may let stopped processes go on."""
        for process in self._stopped:
            with suppress(psutil.Error):
                process.suspend()

    def heal(self) -> None:
        """Let it go on."""
        for process in self._stopped:
            with suppress(psutil.Error):
                process.resume()
        if self._stopped:
            self.settle("went on")


class KillExecutor(Effect):
    """SIGKILL of one executor of a job; Spark starts another."""

    def inject(self) -> None:
        """Let it happen."""
        if job := self.target():
            executors = _executors(job)
            for process in executors[:1]:
                with suppress(psutil.Error):
                    process.kill()
            self.settle("killed" if executors else "nothing to kill")


class PauseExecutor(Pause):
    """SIGSTOP of one executor of a job; SIGCONT when its time is over."""

    def inject(self) -> None:
        """Let it happen."""
        if job := self.target():
            self._stopped = _executors(job)[:1]
            self.keep()

    def heal(self) -> None:
        """Let it go on."""
        super().heal()
        self.settle("nothing to stop")


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
        self.keep()

    def keep(self) -> None:
        """Stop it once more, as with `Pause`."""
        self.world.cluster.brokers[int(self.fault.target)].send(signal.SIGSTOP)

    def end(self) -> None:
        """Let it go on."""
        self.world.cluster.brokers[int(self.fault.target)].send(signal.SIGCONT)


class CutPeers(Outside):
    """A broker from which the others get nothing: no replica of what it leads stays in sync.

    It reaches the others, and the controllers, all the time.
    """

    def begin(self) -> None:
        """Let it happen."""
        self._turn(Link.STALLED if self.fault.detail == "held back" else Link.CUT)

    def end(self) -> None:
        """Let them reach it."""
        self._turn(Link.OPEN)

    def _turn(self, link: Link) -> None:
        self.world.cluster.brokers[int(self.fault.target)].peers.turn(link)


class FillBroker(Outside):
    """A broker whose disk has no space, which ends it at its next write; it is started again."""

    def begin(self) -> None:
        """Fill it."""
        if not self._broker.has_own_disk:
            self.settle("not injected: no file system may be mounted here")
            return
        fill(self._broker.data)

    def end(self) -> None:
        """Make room, and start it again; it may be about to end."""
        if self._broker.has_own_disk:
            make_room(self._broker.data)
            self.settle("had ended" if self._broker.has_ended else "had not written")
            self._broker.kill()
            self._broker.start()

    @property
    def _broker(self) -> Broker:
        return self.world.cluster.brokers[int(self.fault.target)]


class RestartBrokers(Outside):
    """Brokers that are restarted in turn, each when all replicas are in sync again, or after a while."""

    def begin(self) -> None:
        """Begin with the first; the others follow by themselves."""
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name="restarts of brokers", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Wait for the one that is being restarted."""
        self._enough.set()
        self._thread.join()

    def _run(self) -> None:
        cluster, count = self.world.cluster, 0
        for broker in cluster.brokers.values():
            if self._enough.is_set():
                break
            broker.stop()
            broker.start()
            count += 1
            # Clients may be cut off from what is whole.
            until_s = time.monotonic() + _WHOLE_S
            while not self._enough.is_set() and time.monotonic() < until_s and not cluster.is_whole():
                time.sleep(_LOOK_S)
        self.settle(f"{count} restarted")


class Deny(Outside):
    """A permission of Kafka that all clients lose."""

    def begin(self) -> None:
        """Take it away."""
        pipeline = self.fault.target
        operation, _, what = self.fault.detail.partition(" of ")
        name = {"the topic": pipeline, "the output topic": output_topic(pipeline)}.get(what)
        self.world.cluster.deny(Denied(operation, name or "oncelake.", is_transactional_id=name is None))

    def end(self) -> None:
        """Give all back, as often as it takes."""
        self.world.aside(self._allow)

    def _allow(self) -> None:
        self.world.disturbed += 1
        with suppress(InfrastructureError):
            wait_until(self.world.cluster.allow_all, "permissions are given back", _GIVEN_BACK_S)
        self.world.disturbed -= 1
        self.world.disturbed_until = time.monotonic() + _AFTERWARDS_S


class CutRegistry(Outside):
    """A registry that refuses connections, or does not answer."""

    def begin(self) -> None:
        """Let it happen."""
        self._turn(Link.STALLED if self.fault.detail == "hangs" else Link.CUT)

    def end(self) -> None:
        """Let it answer."""
        self._turn(Link.OPEN)

    def _turn(self, link: Link) -> None:
        if registry := self.world.site.registry:
            registry.proxy.turn(link)


class Network(Outside):
    """Connections of a broker that are cut or held back."""

    def begin(self) -> None:
        """Let it happen."""
        self._links.append(self._link)
        self._turn(self._link)

    def end(self) -> None:
        """Let bytes through again, unless another fault of that broker goes on."""
        self._links.remove(self._link)
        self._turn(self._links[-1] if self._links else Link.OPEN)

    @property
    def _link(self) -> Link:
        return Link.CUT if self.fault.kind is Kind.CUT_NETWORK else Link.STALLED

    @property
    def _links(self) -> list[Link]:
        return self.world.links[int(self.fault.target)]

    def _turn(self, link: Link) -> None:
        self.world.cluster.brokers[int(self.fault.target)].proxy.turn(link)


class Delay(Outside):
    """Packets of all brokers that are delayed."""

    def begin(self) -> None:
        """Let it happen."""
        self.world.delays.append(self._delay_s)
        self._delay()

    def end(self) -> None:
        """Let them through at once, unless another delay goes on."""
        self.world.delays.remove(self._delay_s)
        self._delay()

    @property
    def _delay_s(self) -> float:
        return int(self.fault.detail.split()[0]) / 1000

    def _delay(self) -> None:
        for broker in self.world.cluster.brokers.values():
            broker.proxy.delay_s = max(self.world.delays, default=0.0)


class OfDisk(Outside):
    """A fault of the disk of the lake, during which the harness cannot write to it either."""

    def inject(self) -> None:
        """Let it happen."""
        self.world.disk_faults += 1
        super().inject()

    def heal(self) -> None:
        """Put it right."""
        super().heal()
        self.world.disk_faults -= 1


class FillDisk(OfDisk):
    """A disk of the lake without space."""

    def begin(self) -> None:
        """Fill it."""
        if not self.world.has_own_disk:
            self.settle("not injected: no file system may be mounted here")
            return
        fill(self.world.site.lake)
        self._explain(is_under_way=True)

    def end(self) -> None:
        """Make room."""
        if self.world.has_own_disk:
            make_room(self.world.site.lake)
            self._explain(is_under_way=False)

    def _explain(self, *, is_under_way: bool) -> None:
        """Explain refusals: a commit of Delta that is cut off stays so when there is room again."""
        supervisor = self.world.supervisor
        for name in names_of([self.fault.target], QUERIES):
            known = supervisor.explained.get(name)
            if known is None or known.injected is self.injected:
                supervisor.explain(name, self.injected, is_under_way=is_under_way)


class ReadOnly(OfDisk):
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
        elif job.name in self.world.supervisor.held:
            self.settle("not started: the code is being upgraded")
        else:
            job.start(*(("--to", self.fault.detail) if self.fault.detail else ()))
            self.settle("started")


def _executors(job: Job) -> list[psutil.Process]:
    found = list[psutil.Process]()
    for process in job.processes():
        with suppress(psutil.Error):
            if _EXECUTOR in " ".join(process.cmdline()):
                found.append(process)
    return found


EFFECTS: Final[Mapping[Kind, Callable[[World, Injected], Effect]]] = {
    Kind.KILL_DRIVER: Kill,
    Kind.KILL_JVM: Kill,
    Kind.KILL_WORKER: KillWorkers,
    Kind.KILL_EXECUTOR: KillExecutor,
    Kind.PAUSE_EXECUTOR: PauseExecutor,
    Kind.PAUSE_DRIVER: Pause,
    Kind.KILL_BROKER: KillBroker,
    Kind.PAUSE_BROKER: PauseBroker,
    Kind.CUT_PEERS: CutPeers,
    Kind.FILL_BROKER: FillBroker,
    Kind.CUT_NETWORK: Network,
    Kind.STALL_NETWORK: Network,
    Kind.DELAY_NETWORK: Delay,
    Kind.RESTART_BROKERS: RestartBrokers,
    Kind.DENY: Deny,
    Kind.CUT_REGISTRY: CutRegistry,
    Kind.TEAR_COMMIT: TearCommit,
    Kind.TEAR: Tear,
    Kind.SECOND_COPY: SecondCopy,
    Kind.RESTORE_CHECKPOINT: RestoreCheckpoint,
    Kind.RESTORE_TABLE: RestoreTable,
    Kind.FILL_DISK: FillDisk,
    Kind.READ_ONLY: ReadOnly,
    Kind.SKEW_CLOCK: SkewClock,
    Kind.NIGHTLY: StartJob,
    Kind.MAINTAIN: StartJob,
    Kind.UPGRADE: Upgrade,
}
