"""Lay out a new project from the files that come with Oncelake."""

import shutil
from importlib.resources import files
from pathlib import Path
from typing import Final

from pipelines.resources import resource

# What a project starts from, under the same names: the flights pipeline, complete.
_FROM_RESOURCES: Final = (
    "data_contracts/flights.odcs.yaml",
    "conf/base/oncelake.yml",
    "conf/base/pipelines/flights.yml",
    "conf/base/gx/great_expectations.yml",
    "conf/base/gx/.gitignore",
    "conf/base/gx/expectations/flights",
    "conf/local",
    "conf/spark-defaults.conf",
    "jobs",
)
# What only a project has; .txt keeps tools from taking these for files of this repository.
_OWN: Final = {
    ".gitignore": "gitignore.txt",
    "Makefile": "Makefile.txt",
    "README.md": "README.md.txt",
    "sample/send.py": "send.py.txt",
}


def lay_out(folder: Path) -> list[Path]:
    """Write the files of a new project.

    Args:
        folder: where to; made if missing. Files of the same names are overwritten.

    Returns:
        The files written, sorted.
    """
    for name in _FROM_RESOURCES:
        _copy(resource(name), folder / name)
    for name, template in _OWN.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(files("pipelines.runtime").joinpath("project_files", template).read_bytes())
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copyfile(source, target)
