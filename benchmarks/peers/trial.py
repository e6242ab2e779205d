"""`python -m benchmarks.peers.trial`: one run of a peer's program, metered, and killed if asked for.

Takes its task as one line of JSON on standard input, and ends with one line of JSON.
"""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import pyarrow.dataset as ds

from benchmarks.events import Truth
from benchmarks.meter import Meter
from benchmarks.peers.catalogue import PEERS, Peer

_PR_SET_CHILD_SUBREAPER: Final = 36
_LEFT_WITHIN_S: Final = 30.0
_LOOK_S: Final = 0.1


@dataclass(frozen=True)
class Order:
    """What a program is told.

    Attributes:
        servers: where the cluster is.
        topic: the topic.
        folder: where it writes.
        group: a consumer group of its own, for those that need one.
        cores: how many it may use.
        batch_records: how many records it takes at once, where it takes records so.
        jars: what is on its class path.
    """

    servers: str
    topic: str
    folder: str
    group: str
    cores: int
    batch_records: int
    jars: list[str]


@dataclass(frozen=True)
class Task:
    """A run of a program.

    Attributes:
        python: what runs it.
        program: its module.
        order: what it is told.
        variables: its environment.
        log: where its output goes.
        kill_after_s: seconds after which it is killed with SIGKILL, if it has not ended.
        killed_peer: the peer that is killed as soon as it has committed rows; empty for none.
    """

    python: str
    program: str
    order: dict[str, Any]
    variables: dict[str, str]
    log: str
    kill_after_s: float
    killed_peer: str = ""

    def run(self) -> dict[str, Any]:
        """Run it in a process of its own, so that nothing else is metered; return `cost` and `exit`."""
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.peers.trial"],
            input=json.dumps(asdict(self)),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return dict(json.loads(done.stdout.splitlines()[-1]))

    def complaint(self) -> str:
        """Return the last line of its output that says something."""
        lines = Path(self.log).read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "nothing said")


@dataclass(frozen=True)
class Outcome:
    """What a program has made of the topic.

    Attributes:
        rows: rows that it has written.
        duplicates: rows beyond one for each event; only the events' numbers are compared.
        missing: events without a row.
    """

    rows: int
    duplicates: int
    missing: int


def outcome(peer: Peer, folder: Path, truth: Truth) -> Outcome:
    """Return what a peer has written, held against what the topic has."""
    files = [str(path) for path in peer.files(folder)]
    if not files:
        return Outcome(0, 0, truth.unique)
    column = ds.dataset(files).to_table(columns=["sequence"])["sequence"]
    numbers = column.drop_null().to_numpy()
    # Events are numbered from 0; whatever else there is, is no event.
    different = len(np.unique(numbers[(numbers >= 0) & (numbers < truth.unique)]))
    return Outcome(len(column), len(column) - different, truth.unique - different)


def _main() -> None:
    _adopt_orphans()
    task: dict[str, Any] = json.loads(sys.stdin.readline())
    command = [task["python"], "-m", f"benchmarks.peers.programs.{task['program']}"]
    with Path(task["log"]).open("w", encoding="utf-8") as log, Meter() as meter:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            env=task["variables"],
            start_new_session=True,
        )
        if process.stdin:
            with suppress(BrokenPipeError), process.stdin as told:
                told.write(json.dumps(task["order"]) + "\n")
        if is_due(process, task):
            _kill(process.pid)
        process.wait()
        _reap()
    # What a process took last is not seen by looking at it from time to time, and Java may take much then.
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cost = replace(meter.cost(), cpu_s=used.ru_utime + used.ru_stime)
    print(json.dumps({"cost": asdict(cost), "exit": process.returncode}), flush=True)


def is_due(process: "subprocess.Popen[str]", task: dict[str, Any]) -> bool:
    """Wait until a program has ended, or is to be killed.

    Args:
        process: of the program.
        task: as `Task` has it.

    Returns:
        Whether it is to be killed.
    """
    if not task["killed_peer"]:
        try:
            process.wait(task["kill_after_s"])
        except subprocess.TimeoutExpired:
            return True
        return False
    peer, folder = PEERS[task["killed_peer"]], Path(task["order"]["folder"])
    deadline = time.monotonic() + task["kill_after_s"]
    while process.poll() is None:
        if peer.has_committed(folder) or time.monotonic() > deadline:
            return True
        time.sleep(_LOOK_S)
    return False


def _adopt_orphans() -> None:
    """Become the parent of what a program leaves behind, so that its time is counted when it has ended.

    Source: `PR_SET_CHILD_SUBREAPER` of https://man7.org/linux/man-pages/man2/prctl.2.html
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _reap() -> None:
    """Wait for what a program has left behind; what does not end is killed."""
    left = psutil.Process().children(recursive=True)
    _, alive = psutil.wait_procs(left, timeout=_LEFT_WITHIN_S)
    for one in alive:
        one.kill()
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _kill(pid: int) -> None:
    """Kill a process and all below it, none of which can do anything about it."""
    below = psutil.Process(pid).children(recursive=True)
    for one in [pid, *(child.pid for child in below)]:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


if __name__ == "__main__":
    _main()
