"""Who holds a lease: a process on a machine, and the row of `ops/leases` that says so."""

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psutil

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/pid")


@dataclass(frozen=True)
class Holder:
    """A process.

    Attributes:
        host: The name of its machine or container, for people.
        boot: What the kernel calls the machine's run since it was switched on; None where it does not say.
        pid_namespace: The namespace of `pid`; None if there is none.
        pid: The process id.
        process_started: Seconds from the machine's start to the process's.
    """

    host: str
    boot: str | None
    pid_namespace: str | None
    pid: int
    process_started: float

    def is_gone(self) -> bool:
        """Return whether the process is known to have ended.

        That is known only of a process of this boot and this PID namespace. Host names are no proof: two
        containers may have the same, and a process of the one cannot be seen from the other.
        """
        if not self._is_near():
            return False
        try:
            process = psutil.Process(self.pid)
            # One that has ended keeps its number until its parent asks how; some parents never do.
            is_zombie = process.status() == psutil.STATUS_ZOMBIE
            return is_zombie or not self._has_started_with(process)
        except psutil.NoSuchProcess:
            return True

    def is_this_process(self) -> bool:
        """Return whether it is the process that asks."""
        return self._is_near() and self.pid == os.getpid() and self._has_started_with(psutil.Process())

    def _is_near(self) -> bool:
        """Return whether the process that asks would see this one."""
        current = this_process()
        if None in (self.boot, self.pid_namespace):
            return False
        return (self.boot, self.pid_namespace, self.host) == (
            current.boot,
            current.pid_namespace,
            current.host,
        )

    def _has_started_with(self, process: psutil.Process) -> bool:
        return abs(started(process) - self.process_started) < 1


def this_process() -> Holder:
    """Return the process that asks."""
    process = psutil.Process()
    return Holder(
        socket.gethostname(),
        _BOOT.read_text().strip() if _BOOT.exists() else None,
        os.readlink(_NAMESPACE) if _NAMESPACE.exists() else None,  # noqa: PTH115 - it names no file
        process.pid,
        started(process),
    )


def started(process: psutil.Process) -> float:
    """Return seconds from the machine's start to the process's.

    Setting the clock changes nothing about it.
    """
    return float(process.create_time() - psutil.boot_time())


def backfill_lease_name(pipeline: str) -> str:
    """Return the name of the lease of a pipeline's backfills, which is the first column of its row."""
    return f"{pipeline}@backfill"


@dataclass(frozen=True)
class HeldLease:
    """What `ops/leases` says of a pipeline's lease.

    Attributes:
        run_id: The run that holds it, or held it last.
        process: The process of that run.
        since: When the run took it, in UTC.
        until: Until when the run holds it, in UTC.
        epoch: The epoch of the run; None in rows of code that had none.
        job: The command that the run is of; None in rows of code that did not tell.
    """

    run_id: str
    process: Holder
    since: datetime
    until: datetime
    epoch: int | None
    job: str | None = None

    @property
    def words(self) -> str:
        """The run and its process, as messages name them."""
        of_job = f" of {self.job}" if self.job else ""
        return f"run {self.run_id}{of_job} on {self.process.host} (pid {self.process.pid})"

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "HeldLease":
        """Return the lease that a row of the table describes."""
        process = Holder(**{field.name: row[field.name] for field in fields(Holder)})
        since, until = (row[name].astimezone(UTC) for name in ("since", "until"))
        # Who only looks at a table of an earlier release does not add what it lacks.
        return cls(row["holder"], process, since, until, row["epoch"], row.get("job"))

    def row(self, name: str) -> dict[str, Any]:
        """Return the row of the table, for the lease of a name."""
        return {
            "pipeline": name,
            "holder": self.run_id,
            "since": self.since,
            "until": self.until,
            "epoch": self.epoch,
            "job": self.job,
            **asdict(self.process),
        }
