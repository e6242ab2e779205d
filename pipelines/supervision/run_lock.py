"""One `oncelake run` for each stream on a machine: a lock that its processes hold together.

The supervisor takes the lock, and each stream that it starts inherits it. So the lock is free only when the
last of them has ended, whatever they died of.
"""

import fcntl
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import psutil

from pipelines.errors import InfrastructureError
from pipelines.supervision.output import StreamName

_ASK_AGAIN_S: Final = 0.2


@dataclass(frozen=True)
class RunLock:
    """The lock of a stream, which this process holds.

    Attributes:
        descriptor: the file that is locked, to be inherited by the stream.
    """

    descriptor: int

    def note(self, child: int | None = None) -> None:
        """Write down who holds the lock, for the message that others see.

        Args:
            child: the process of the stream; None if it has none.
        """
        us = psutil.Process()
        text = json.dumps({"supervisor": us.pid, "began": us.create_time(), "stream": child}).encode()
        os.pwrite(self.descriptor, text, 0)
        os.ftruncate(self.descriptor, len(text))

    def release(self) -> None:
        """Let others run the stream, which has ended here for good."""
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)


def lock_file(lake_root: str, name: StreamName) -> Path:
    """Return the file that is locked for a stream.

    It is in the lake if that is a folder, so that all who share the folder see it; else among the temporary
    files of the user, so that it holds for this user on this machine.

    Args:
        lake_root: an absolute path, or an address.
        name: the stream.
    """
    address = urlsplit(lake_root) if "://" in lake_root else None
    if address is None or address.scheme == "file":
        folder = Path(unquote(address.path) if address else lake_root)
        return folder / "ops/checkpoints" / name.pipeline / f"{name.stream}.run.lock"
    digest = sha256(f"{lake_root}\0{name}".encode()).hexdigest()[:24]
    return Path(tempfile.gettempdir()) / f"oncelake-{os.getuid()}" / f"{digest}.run.lock"


@contextmanager
def run_locks(
    files: dict[StreamName, Path], within_s: float, waiting: Callable[[str], None]
) -> Iterator[dict[StreamName, RunLock]]:
    """Hold the locks of streams.

    Streams whose supervisor is gone are about to end, and are waited for.

    Args:
        files: see `lock_file`.
        within_s: for so many seconds at most.
        waiting: told once for each stream that is waited for.

    Raises:
        InfrastructureError: another `oncelake run` has one of them, or streams of one do not end; or a file
            cannot be locked.
    """
    deadline = time.monotonic() + within_s
    with ExitStack() as held:
        locks = {}
        for name, path in files.items():
            descriptor = _opened(path)
            held.callback(os.close, descriptor)
            _take(descriptor, name, deadline, waiting)
            locks[name] = RunLock(descriptor)
            locks[name].note()
        yield locks


@contextmanager
def turn(path: Path, within_s: float) -> Iterator[bool]:
    """Do something while no other process of this machine does it.

    Args:
        path: the file that is locked meanwhile.
        within_s: for so many seconds at most others are waited for.

    Yields:
        Whether the others have ended.

    Raises:
        InfrastructureError: the file cannot be locked.
    """
    deadline = time.monotonic() + within_s
    descriptor = _opened(path)
    try:
        while not (is_ours := _is_locked(descriptor, str(path))) and time.monotonic() < deadline:
            time.sleep(_ASK_AGAIN_S)
        yield is_ours
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise InfrastructureError(
            f"{path}: cannot be locked: {error.strerror}; let the user that runs this command write there"
        ) from None


def _take(descriptor: int, name: StreamName, deadline: float, waiting: Callable[[str], None]) -> None:
    has_told = False
    while not _is_locked(descriptor, str(name)):
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
        time.sleep(_ASK_AGAIN_S)


def _is_locked(descriptor: int, what: str) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise InfrastructureError(f"{what}: cannot be locked: {error.strerror}") from None
    return True


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
