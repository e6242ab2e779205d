"""File systems of their own for parts of a run, in memory, so that they can be filled."""

import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_BALLAST: Final = "ballast"


def mount_disk(folder: Path, megabytes: int) -> bool:
    """Give a folder a file system of its own, in memory.

    Returns:
        Whether this user may do so.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    with suppress(OSError):
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    return False


def unmount_disk(folder: Path) -> None:
    """Take the file system of a folder away, when nobody uses it any more."""
    command = ["umount", str(folder)]
    for _ in range(20):
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.5)


def fill(folder: Path) -> None:
    """Leave no space in the file system of a folder."""
    with suppress(OSError), (folder / _BALLAST).open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(folder).free)
        # What others have given back meanwhile.
        while True:
            file.seek(0, os.SEEK_END)
            file.write(bytes(1 << 16))


def make_room(folder: Path) -> None:
    """Take back what `fill` has put into a folder."""
    (folder / _BALLAST).unlink(missing_ok=True)
