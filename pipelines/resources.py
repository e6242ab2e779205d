"""Where files live: those that come with Oncelake, and the home of what it fetches."""

import atexit
import os
import shutil
import sys
import tempfile
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from pipelines.errors import ConfigError


@cache
def resource(name: str) -> Path:
    """Find a file or folder that comes with Oncelake, as a path that other programs can open too.

    Args:
        name: Relative to the project's root, with forward slashes, e.g. ``conf/ivy.xml``.

    Returns:
        The one inside the installed package (wheel or zip) if there is one, else the one in the checkout.

    Raises:
        ConfigError: Neither holds it: the package is incomplete.
    """
    package = files("pipelines")
    bundled = package / "_bundled"
    root = bundled if bundled.is_dir() else _checkout()
    path = root.joinpath(*name.split("/"))
    if not (path.is_file() or path.is_dir()):
        raise ConfigError(
            f"{name} is missing from {root}: this copy of Oncelake is incomplete. "
            "Install it again, or package it again with `make package`."
        )
    return path if isinstance(path, Path) else _unpacked(path)


def home() -> Path:
    """Tell where Oncelake keeps what it fetches once: jars and the Java launcher.

    Returns:
        ``$ONCELAKE_HOME`` if set; inside a virtual environment its ``share/oncelake``, so that both go
        together; else the user's cache folder. The folder need not exist yet.

    Raises:
        ConfigError: The user has no home folder, as in a container, and one is needed.
    """
    configured = os.environ.get("ONCELAKE_HOME")
    try:
        if configured:
            return Path(configured).expanduser().absolute()
        if sys.prefix != sys.base_prefix:
            return Path(sys.prefix) / "share" / "oncelake"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oncelake"
    except RuntimeError:
        raise ConfigError(
            f"$ONCELAKE_HOME: found {configured or 'nothing'}, and no home folder of that user; set it to the"
            " whole path of a folder for jars, which may be new"
        ) from None


def _checkout() -> Path:
    return Path(__file__).resolve().parent.parent


def _unpacked(packed: Traversable) -> Path:
    """Copy a file or folder out of the zip that this package was imported from, for as long as we run."""
    folder = Path(tempfile.mkdtemp(prefix="oncelake-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = folder / packed.name
    _copy(packed, target)
    return target


def _copy(packed: Traversable, target: Path) -> None:
    if packed.is_dir():
        target.mkdir()
        for child in packed.iterdir():
            _copy(child, target / child.name)
    else:
        target.write_bytes(packed.read_bytes())
