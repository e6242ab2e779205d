"""What the values of options may be, where click's own types take too much."""

import math
from pathlib import Path
from typing import Any, Final

import click


class Finite(click.FloatRange):
    """A number of a range; click's own also takes what is no number (`nan`), and what has no end (`inf`)."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number that a text stands for."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"expected a number, got {value}", param, ctx)
        return number


class Folder(click.Path):
    """A folder; of an empty text, as of a variable that is not set, Python makes the current one."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path that a text stands for."""
        if value == "":
            self.fail("expected a folder, got nothing; the current one is '.'", param, ctx)
        return super().convert(value, param, ctx)


SECONDS: Final = Finite(min=1, max=86_400)
"""The pause from one time to the next; for more than a day there are schedulers."""
