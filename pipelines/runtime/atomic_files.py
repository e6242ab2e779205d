"""Writes text files, each complete or not at all, whenever the process dies or the disk is full."""

import errno
import os
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from uuid import uuid4

from pipelines.errors import InfrastructureError


def write_files(out: Path, contents: Mapping[str, str], what: str, option: str = "--out") -> list[Path]:
    """Write text files into a folder, each complete or not at all; who reads meanwhile gets the old one.

    None is replaced before all of them are written.

    Args:
        out: The folder; made if it is not there.
        contents: The texts by name of the file.
        what: What is written, for the message.
        option: The option that names the folder, for the message.

    Returns:
        The paths, in the order of `contents`.

    Raises:
        InfrastructureError: The folder cannot be made or written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        with ExitStack() as drafts:
            written = {out / name: _draft(out / name, text, drafts) for name, text in contents.items()}
            for path in filter(Path.is_dir, written):
                raise IsADirectoryError(errno.EISDIR, f"{path.name} is a folder")
            for path, draft in written.items():
                draft.replace(path)
    except OSError as error:
        raise InfrastructureError(
            f"{what}: cannot write to {out}: {error.strerror or error}; "
            f"expected a folder that this user may write to; name another one with {option}"
        ) from error
    return [out / name for name in contents]


def _draft(path: Path, text: str, drafts: ExitStack) -> Path:
    """Write a file beside the one that it is to replace; what is left of it goes with `drafts`."""
    draft = path.with_name(f".{path.name}.{uuid4().hex[:8]}.tmp")
    # Who may read it is for the user's umask to say.
    with draft.open("x", encoding="utf-8", newline="\n") as file:
        drafts.callback(partial(draft.unlink, missing_ok=True))
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return draft
