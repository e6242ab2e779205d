"""Locks of files, by which processes of one machine exclude each other; those of a dead process are free."""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pipelines.errors import InfrastructureError

ASK_AGAIN_S: Final = 0.2
"""How long to wait before a lock that another process has is asked for again, in seconds."""


def lock_file(lake_root: str, pipeline: str, program: str) -> Path:
    """Return the file that is locked for a program of a pipeline.

    It is in the lake if that is a folder, so that all who share the folder see it; else among the temporary
    files of the user, so that it holds for this user on this machine.

    Args:
        lake_root: An absolute path, or an address.
        pipeline: The name of the pipeline.
        program: The name of the program, such as that of a stream.
    """
    address = urlsplit(lake_root) if "://" in lake_root else None
    if address is None or address.scheme == "file":
        folder = Path(unquote(address.path) if address else lake_root)
        return folder / "ops/checkpoints" / pipeline / f"{program}.run.lock"
    digest = sha256(f"{lake_root}\0{pipeline}/{program}".encode()).hexdigest()[:24]
    return Path(tempfile.gettempdir()) / f"oncelake-{os.getuid()}" / f"{digest}.run.lock"


@contextmanager
def file_lock(path: Path, within_s: float) -> Iterator[bool]:
    """Do something while no other process of this machine does it.

    Args:
        path: The file that is locked meanwhile.
        within_s: For so many seconds at most others are waited for.

    Yields:
        Whether the others have ended.

    Raises:
        InfrastructureError: The file cannot be locked.
    """
    deadline = time.monotonic() + within_s
    descriptor = open_lock_file(path)
    try:
        while not (is_ours := lock_if_free(descriptor, str(path))) and time.monotonic() < deadline:
            time.sleep(ASK_AGAIN_S)
        yield is_ours
    finally:
        os.close(descriptor)


def open_lock_file(path: Path) -> int:
    """Open a file that is to be locked, which is made when missing; return its descriptor.

    Raises:
        InfrastructureError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Who can open it can lock it.
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise InfrastructureError(
            f"{path}: cannot be locked: {error.strerror}; let the user that runs this command write there"
        ) from None


def lock_if_free(descriptor: int, what: str) -> bool:
    """Lock a file if no other process has it; return whether this process has it now.

    Args:
        descriptor: Of the file.
        what: Names it, for the message.

    Raises:
        InfrastructureError: The file cannot be locked.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise InfrastructureError(f"{what}: cannot be locked: {error.strerror}") from None
    return True
