"""What `oncelake contract check --against GITREF` compares with: contracts as a revision has them."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError, ContractError
from pipelines.formats.contract_files import load_contract


def in_use(path: Path, identifier: str, against: str) -> DataContract | None:
    """Return the contract that is in use where a new one is to be.

    Args:
        path: The file of the new contract.
        identifier: The new contract's id, by which one is found whose file had another name.
        against: A file, or a revision of the git that holds `path`.

    Returns:
        The contract; None if there is none.

    Raises:
        ConfigError: There is no such file or revision, or no git.
        ContractError: The contract in use cannot be read; the message names it by its revision.
    """
    if Path(against).is_file():
        return load_contract(Path(against))
    _verify(path.parent, against)
    if contract := _at(path, against):
        return contract
    for other in _missing(path.parent, against):
        try:
            old = _at(other, against)
        except ContractError:
            # Nobody can know whether it is the same; `gone` names it if all contracts are checked.
            continue
        if old and old.id == identifier:
            return old
    return None


def gone(folder: Path, ids: set[str], against: str) -> Iterator[Path]:
    """Yield the contracts that a revision has in a folder, and that are no longer there under any name.

    Args:
        folder: Of the contracts.
        ids: Of the contracts that are there.
        against: A file, which has nothing to do with a folder, or a revision.
    """
    for path in [] if Path(against).is_file() else _missing(folder, against):
        try:
            old = _at(path, against)
        except ContractError:
            old = None
        if not old or old.id not in ids:
            yield path


def _verify(folder: Path, against: str) -> None:
    if not _git(folder, "rev-parse", "--verify", "--quiet", f"{against}^{{commit}}"):
        raise ConfigError(f"--against {against}: expected a file, or a git revision of {folder}")


def _missing(folder: Path, against: str) -> list[Path]:
    listed = _git(folder, "ls-tree", "--name-only", "-z", against, "./") or b""
    paths = (folder / name.decode(errors="surrogateescape") for name in listed.split(b"\0") if name)
    return [path for path in paths if path.name.endswith(".odcs.yaml") and not path.exists()]


def _at(path: Path, against: str) -> DataContract | None:
    """Return a contract as a revision has it; None if it has none of that name."""
    # A path that begins with ./ is taken from the folder, not from the top of the repository.
    text = _git(path.parent, "show", f"{against}:./{path.name}")
    if text is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        copy.write_bytes(text)
        try:
            return load_contract(copy)
        except ContractError as error:
            raise ContractError(str(error).replace(str(copy), f"{against}:{path}")) from None


def _git(folder: Path, *arguments: str) -> bytes | None:
    """Return what git says, run in a folder; None if it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - the user's own git
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise ConfigError(f"git: {error}; name a file with --against instead") from None
    return done.stdout if done.returncode == 0 else None
