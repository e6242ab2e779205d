"""Damage to files of checkpoints: cut, missing, or with a bit flipped."""

from pathlib import Path
from typing import Final

_FOLDERS: Final = ("offsets", "commits")
_BESIDE: Final = ("note", "progress")


def file_to_tear(checkpoint: Path, which: str) -> Path | None:
    """Return a file of a checkpoint: the newest micro-batch of a log, the metadata, or the newest state.

    Args:
        checkpoint: its folder.
        which: `offsets`, `commits`, `metadata` or `state`; `note` or `progress` are files beside it.

    Returns:
        The file; None if there is none yet.
    """
    if which == "metadata":
        file = checkpoint / "metadata"
        return file if file.is_file() else None
    if which in _BESIDE:
        file = checkpoint.with_name(f"{checkpoint.name}.{which}.json")
        return file if file.is_file() else None
    if which in _FOLDERS:
        numbered = [path for path in (checkpoint / which).glob("*") if path.name.isdigit()]
        return max(numbered, key=lambda path: int(path.name), default=None)
    whole = [path for path in (checkpoint / "state").rglob("*") if path.suffix in {".zip", ".changelog"}]
    return max(whole, key=lambda path: path.stat().st_mtime_ns, default=None)


def tear(file: Path, how: str) -> None:
    """Damage a file, and its checksum file as little as a disk would.

    Args:
        file: the file.
        how: `cut`, `missing` or `flipped`.
    """
    if how == "missing":
        file.unlink()
        return
    data = bytearray(file.read_bytes())
    if how == "cut":
        file.write_bytes(data[: len(data) // 2])
        return
    data[len(data) // 2] ^= 0b100
    file.write_bytes(data)
