"""Who holds a lease: one process, told from every other that ever was."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/pid")


@dataclass(frozen=True)
class Holder:
    """A process.

    Attributes:
        host: the name of its machine or container, for people.
        boot: what the kernel calls the machine's run since it was switched on; None where it does not say.
        pid_namespace: the namespace in which `pid` counts; None where there is none.
        pid: the process id.
        process_started: seconds from the machine's start to the process's.
    """

    host: str
    boot: str | None
    pid_namespace: str | None
    pid: int
    process_started: float

    def is_gone(self) -> bool:
        """Whether the process is known to have ended.

        That can be told of a process of this boot and this PID namespace alone. Host names are no proof: two
        containers may have the same, and a process of the one cannot be seen from the other.
        """
        here = this_process()
        if None in (self.boot, self.pid_namespace):
            return False
        if (self.boot, self.pid_namespace, self.host) != (here.boot, here.pid_namespace, here.host):
            return False
        try:
            return abs(started(psutil.Process(self.pid)) - self.process_started) >= 1
        except psutil.NoSuchProcess:
            return True


def this_process() -> Holder:
    """The process that asks."""
    process = psutil.Process()
    return Holder(
        socket.gethostname(),
        _BOOT.read_text().strip() if _BOOT.exists() else None,
        os.readlink(_NAMESPACE) if _NAMESPACE.exists() else None,  # noqa: PTH115 - it names no file
        process.pid,
        started(process),
    )


def started(process: psutil.Process) -> float:
    """Seconds from the machine's start to the process's: setting the clock changes nothing about it."""
    return float(process.create_time() - psutil.boot_time())
