"""Lay out a new project from the files that come with Oncelake."""

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from importlib.resources import files
from importlib.resources.abc import Traversable
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
    """Write the files of a new project: all of them, or none if it fails or is stopped.

    Args:
        folder: Where to; made if missing.

    Returns:
        The files written, sorted.

    Raises:
        FileExistsError: There is a file of one of these names, which is left as it is.
        OSError: One of them cannot be written.
    """
    with ExitStack() as undo:
        written = [_write(folder / name, source, undo) for name, source in _sources()]
        undo.pop_all()
    return sorted(written)


def _sources() -> Iterator[tuple[str, Traversable]]:
    """Yield the name of each file of a project, and what it is a copy of."""
    for name in _FROM_RESOURCES:
        yield from _files_in(name, resource(name))
    templates = files("pipelines.runtime").joinpath("project_files")
    yield from ((name, templates.joinpath(template)) for name, template in _OWN.items())


def _files_in(name: str, source: Path) -> Iterator[tuple[str, Path]]:
    if not source.is_dir():
        yield name, source
        return
    for path in sorted(source.rglob("*")):
        inner = path.relative_to(source)
        if path.is_file() and "__pycache__" not in inner.parts:
            yield f"{name}/{inner.as_posix()}", path


def _write(target: Path, source: Traversable, undo: ExitStack) -> Path:
    """Write a new file, and note how it is removed again, with the folders that it needed."""
    for folder in reversed([each for each in target.parents if not each.exists()]):
        folder.mkdir(exist_ok=True)
        undo.callback(_remove_if_empty, folder)
    content = source.read_bytes()
    with target.open("xb") as file:
        undo.callback(target.unlink)
        file.write(content)
    return target


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
