"""The jars that Spark and the embedded broker need: fetched once by Ivy, checked against `conf/jars.lock`."""

import fcntl
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipelines.errors import InfrastructureError
from pipelines.resources import home, resource
from pipelines.runtime.ivy import retrieve

Use = Literal["spark", "broker", "compiler", "s3"]
USES: tuple[Use, ...] = ("spark", "broker", "compiler", "s3")
LOCK = "conf/jars.lock"

_log = logging.getLogger(__name__)
_STAMP = ".verified.json"


@dataclass(frozen=True)
class LockedJar:
    """One line of the lock: a jar, what it is for, and the SHA-256 (in hex) its bytes must have."""

    sha256: str
    use: str
    name: str


def locked_jars(use: Use) -> list[LockedJar]:
    """Read the jars for one use from `conf/jars.lock`.

    Args:
        use: ``spark`` (on the class path of every session), ``broker`` (the embedded broker),
            ``compiler`` (of our own Java, where only a runtime is) or ``s3`` (where the lake is on S3).

    Returns:
        The jars in the order of the file.

    Raises:
        InfrastructureError: A line of the lock cannot be read.
    """
    path = resource(LOCK)
    jars = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split()
        if len(fields) != 3 or len(fields[0]) != 64 or fields[1] not in USES:
            raise InfrastructureError(
                f"{path}, line {number}: expected `SHA-256 {'|'.join(USES)} FILE`, found {line!r}. "
                "Write the lock again with `make lock-jars`."
            )
        jars.append(LockedJar(*fields))
    return [jar for jar in jars if jar.use == use]


def jars_folder(use: Use) -> Path:
    """Tell where the jars for one use are kept; the folder need not exist yet."""
    return home() / "jars" / use


def ensure_jars(use: Use) -> list[Path]:
    """Have the jars for one use on this machine, fetched by Ivy only where they are missing.

    Every jar is checked against the lock once; afterwards its size and modification time stand for its bytes.
    Several processes may call this at once: one fetches, the others wait.

    Args:
        use: As `locked_jars`.

    Returns:
        The paths of the jars, in the order of the lock.

    Raises:
        InfrastructureError: Ivy could not fetch them after retries, or a jar's bytes are not the locked ones;
            such a jar is not kept.
    """
    jars, folder = locked_jars(use), jars_folder(use)
    paths = [folder / jar.name for jar in jars]
    if _is_stamped(folder, jars):
        return paths
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InfrastructureError(
            f"The folder for jars, {folder}, cannot be created: {error}. Name another one in $ONCELAKE_HOME."
        ) from None
    with exclusively(folder / ".lock", "another process is fetching jars; waiting for it"):
        if not _is_stamped(folder, jars):
            missing = [jar for jar in jars if not _is_sound(folder / jar.name, jar)]
            if missing:
                _fetch(use, missing, folder)
            _stamp(folder, jars)
    return paths


@dataclass(frozen=True)
class JarState:
    """How the jars for some uses are on this machine.

    Attributes:
        missing: Those that are not there.
        damaged: Those whose bytes are not the locked ones.
    """

    missing: tuple[str, ...]
    damaged: tuple[str, ...]


def jar_state(*uses: Use) -> JarState:
    """Compare the bytes of all jars with the lock, whatever was seen of them before; fetch nothing.

    Args:
        uses: As `locked_jars`.
    """
    jars = [(jars_folder(use) / jar.name, jar) for use in uses for jar in locked_jars(use)]
    there = [(path, jar) for path, jar in jars if path.exists()]
    return JarState(
        tuple(jar.name for path, jar in jars if not path.exists()),
        tuple(jar.name for path, jar in there if sha256(path) != jar.sha256),
    )


def sha256(path: Path) -> str:
    """Compute a file's SHA-256, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def exclusively(lock_file: Path, waiting: str) -> Iterator[None]:
    """Hold a lock that one process has at a time; the system frees it when its holder dies.

    Args:
        lock_file: A file for the purpose; made when missing and left there.
        waiting: What to log when another process has it.

    Yields:
        Nothing, while the lock is held.
    """
    with lock_file.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _log.warning("%s (%s)", waiting, lock_file)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def write_lock(path: Path) -> None:
    """Fetch what `conf/ivy.xml` asks for, trust it, and write the lock from it. For maintainers.

    Args:
        path: The lock to write.
    """
    lines = ["# SHA-256, use, file. Written by `make lock-jars` from conf/ivy.xml."]
    for use in USES:
        with _scratch(home()) as scratch:
            retrieve(use, scratch, total=None)
            lines += [f"{sha256(jar)}  {use:<8}  {jar.name}" for jar in sorted((scratch / use).glob("*.jar"))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _fetch(use: Use, missing: list[LockedJar], folder: Path) -> None:
    """Retrieve all jars for a use beside `folder` and move the missing ones in, each after its check."""
    _log.info("fetching %d jars for %s into %s", len(missing), use, folder)
    with _scratch(folder.parent) as scratch:
        retrieve(use, scratch, total=len(locked_jars(use)))
        for jar in missing:
            fetched = scratch / use / jar.name
            if not fetched.exists():
                raise InfrastructureError(
                    f"{jar.name} is in {resource(LOCK)} but was not fetched for conf/ivy.xml: "
                    "the two do not match. Write the lock again with `make lock-jars`."
                )
            digest = sha256(fetched)
            if digest != jar.sha256:
                raise InfrastructureError(
                    f"{jar.name}, as fetched, is not the file this release was tested with: expected SHA-256 "
                    f"{jar.sha256}, found {digest}. It was not kept. The download was damaged, or the "
                    "repository serves something else: try again, or name another repository by an Ivy "
                    "settings file in $ONCELAKE_IVY_SETTINGS."
                )
            fetched.replace(folder / jar.name)


def _is_sound(path: Path, jar: LockedJar) -> bool:
    if not path.exists():
        return False
    if sha256(path) == jar.sha256:
        return True
    _log.warning("%s does not have the SHA-256 of %s; it is removed and fetched again", path, LOCK)
    path.unlink()
    return False


@contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    """Yield a folder on the disk of `parent`, so that moving out of it is atomic; always removed."""
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".fetch-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fingerprint(folder: Path, jars: Iterable[LockedJar]) -> dict[str, list[str | int]]:
    """Return what the stamp holds.

    For each jar the hash asked for, and the size and time (ns) of the file seen.
    """
    result: dict[str, list[str | int]] = {}
    for jar in jars:
        status = (folder / jar.name).stat()
        result[jar.name] = [jar.sha256, status.st_size, status.st_mtime_ns]
    return result


def _is_stamped(folder: Path, jars: list[LockedJar]) -> bool:
    try:
        stamp = json.loads((folder / _STAMP).read_text(encoding="utf-8"))
        return bool(stamp == _fingerprint(folder, jars))
    except (OSError, ValueError, RecursionError):
        return False


def _stamp(folder: Path, jars: list[LockedJar]) -> None:
    draft = folder / f"{_STAMP}.{os.getpid()}"
    draft.write_text(json.dumps(_fingerprint(folder, jars)), encoding="utf-8")
    draft.replace(folder / _STAMP)
