"""Files of text that people wrote: configuration, contracts, suites. What could not be one is not read."""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

LARGEST_YAML: Final = 4 << 20
"""Bytes of a file in YAML: four contracts of ten thousand columns. It is parsed within a minute."""

LARGEST_JSON: Final = 16 << 20
"""Bytes of a file in JSON: what a contract of that size stands for as a suite, with room for more."""

_KINDS: Final[tuple[tuple[Callable[[int], bool], str], ...]] = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe, whose end may never come"),
    (stat.S_ISSOCK, "a socket"),
)


class UnfitFile(OSError):
    """A file that is not read, since it is none of text, or is too large to have been written by people."""


def read_text(path: Path, most_bytes: int) -> str:
    """Return the text of a file.

    Args:
        path: The file.
        most_bytes: How large it may be.

    Raises:
        UnfitFile: It is no regular file, or is larger. To read a pipe or a device may take forever.
        OSError, UnicodeDecodeError: It cannot be read, or is no text; see `why_unreadable`.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(found.st_mode)), "a device")
        raise UnfitFile(f"expected a regular file, got {kind}; name a file, or copy the content to one")
    if found.st_size > most_bytes:
        raise UnfitFile(
            f"expected {most_bytes >> 20} MiB at most, got {found.st_size:,} bytes; name another file, or"
            " shorten this one"
        )
    return path.read_text(encoding="utf-8")


def why_unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Return why the text of a file cannot be read, and what to do where that is known."""
    match error:
        case UnicodeDecodeError():
            return f"the byte at position {error.start} is not UTF-8; save the file as plain text in UTF-8"
        case UnfitFile():
            return str(error)
        case PermissionError():
            return "permission denied; let the user that runs this command read the file"
        case _:
            return (error.strerror or str(error)).lower()
