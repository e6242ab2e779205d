"""Tables that are made once, and of which each test gets a copy."""

import shutil
from collections.abc import Callable
from pathlib import Path


class TableCopies:
    """Copies of tables; Delta's logs name files by relative paths, so a copied table is that table.

    Args:
        folder: where the tables stand that are copied.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def copy(self, name: str, to: Path, make: Callable[[str], object]) -> Path:
        """Copies a table to a folder that is not there.

        Args:
            name: the name of the table among all that are copied.
            to: the folder of the copy.
            make: makes the table at a path, the first time that it is asked for.
        """
        made = self._folder / name
        if not made.exists():
            make(str(made))
        return Path(shutil.copytree(made, to))
