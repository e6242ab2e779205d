"""One `oncelake run` for each stream on a machine: a lock that its processes hold together.

The supervisor takes the lock, and each stream that it starts inherits it. So the lock is free only when the
last of them has ended, whatever they died of.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from pipelines.errors import InfrastructureError
from pipelines.runtime.file_lock import ASK_AGAIN_S, lock_if_free, open_lock_file
from pipelines.supervision.output import ProgramName


@dataclass(frozen=True)
class RunLock:
    """The lock of a stream, which this process holds.

    Attributes:
        descriptor: The file that is locked, to be inherited by the stream.
    """

    descriptor: int

    def note(self, child: int | None = None) -> None:
        """Write down who holds the lock, for the message that others see.

        Args:
            child: The process of the stream; None if it has none.
        """
        us = psutil.Process()
        text = json.dumps({"supervisor": us.pid, "began": us.create_time(), "stream": child}).encode()
        os.pwrite(self.descriptor, text, 0)
        os.ftruncate(self.descriptor, len(text))

    def release(self) -> None:
        """Let others run the stream, which has ended here for good."""
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)


@contextmanager
def run_locks(
    files: dict[ProgramName, Path], within_s: float, waiting: Callable[[str], None]
) -> Iterator[dict[ProgramName, RunLock]]:
    """Hold the locks of streams.

    Streams whose supervisor is gone are about to end, and are waited for.

    Args:
        files: See `pipelines.runtime.file_lock.lock_file`.
        within_s: For so many seconds at most.
        waiting: Told once for each stream that is waited for.

    Raises:
        InfrastructureError: Another `oncelake run` has one of them, or streams of one do not end; or a file
            cannot be locked.
    """
    deadline = time.monotonic() + within_s
    with ExitStack() as held:
        locks = {}
        for name, path in files.items():
            descriptor = open_lock_file(path)
            held.callback(os.close, descriptor)
            _take(descriptor, name, deadline, waiting)
            locks[name] = RunLock(descriptor)
            locks[name].note()
        yield locks


def _take(descriptor: int, name: ProgramName, deadline: float, waiting: Callable[[str], None]) -> None:
    has_told = False
    while not lock_if_free(descriptor, str(name)):
        holder = _holder(descriptor)
        supervisor, stream = holder.get("supervisor"), holder.get("stream")
        is_supervised = _is_alive(supervisor, holder.get("began"))
        if is_supervised or time.monotonic() >= deadline:
            who = f"process {supervisor}" if is_supervised else f"its process {stream} has not ended yet"
            raise InfrastructureError(
                f"{name}: another `oncelake run` runs this stream ({who}); stop it first"
            )
        if not has_told:
            waiting(f"{name}: waiting for process {stream} of an earlier `oncelake run` to end")
            has_told = True
        time.sleep(ASK_AGAIN_S)


def _holder(descriptor: int) -> dict[str, Any]:
    # It may be written at this moment.
    with suppress(ValueError, RecursionError):
        said = json.loads(os.pread(descriptor, 1024, 0))
        return said if isinstance(said, dict) else {}
    return {}


def _is_alive(pid: Any, began: Any) -> bool:
    """Return whether a process runs; an id that was given to another since is not taken for it."""
    with suppress(psutil.Error, TypeError, ValueError, OverflowError):
        return bool(psutil.Process(pid).create_time() == began)
    return False
