"""Folders that one worker of pytest makes, and all others use."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.runtime.jars import exclusively


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that is the same for all workers; the first that asks for it makes it.

    Args:
        factory: of the worker.
        name: the folder's name.
        make: fills an empty folder, which is moved to its place afterwards.
    """
    mine = factory.getbasetemp()
    shared = mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine
    with exclusively(shared / f"{name}.lock", f"another worker makes {name}; waiting for it"):
        if not (shared / name).exists():
            draft = factory.mktemp(name)
            make(draft)
            draft.rename(shared / name)
    return shared / name
