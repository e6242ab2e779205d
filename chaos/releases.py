"""The code that jobs run: that of this checkout, or that of an earlier commit until they are upgraded."""

import io
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from demo.cast import ROOT
from pipelines.errors import ConfigError

# What jobs import, and the source of their jar.
_CODE: Final = ("pipelines", "jobs", "jvm", "conf", "pyproject.toml", "data_contracts")


@dataclass
class Release:
    """The code that jobs run from their next start on.

    Attributes:
        root: its folder.
        name: the commit, or what else people call it.
    """

    root: Path = ROOT
    name: str = "this checkout"

    @property
    def python_path(self) -> str:
        """Where Python finds it."""
        return str(self.root)

    def upgrade(self) -> None:
        """Change to this checkout; jobs that run go on as they are."""
        self.root, self.name = ROOT, Release.name


def earlier_release(commit: str, folder: Path) -> Release:
    """Return an earlier release, whose code is put into a folder.

    Args:
        commit: what Git calls it.
        folder: where it goes; it must not exist.

    Raises:
        ConfigError: Git does not know the commit, or it lacks what jobs need.
    """
    command = ["git", "archive", "--format=tar", commit, *_CODE]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        said = archive.stderr.decode(errors="replace").strip()
        raise ConfigError(
            f"--upgrade-from {commit}: found no such release ({said}), expected a commit of this repository"
            " that has the packages pipelines and jobs; name one that `git log` shows"
        )
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return Release(folder, commit)
