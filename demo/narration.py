"""Tells the newcomer what is going on, and how long each step took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table


class Narrator:
    """Speaks to a terminal, or plainly to a file.

    Args:
        console: Where to.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self._times: list[tuple[str, float]] = []
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """Print a paragraph of plain words.

        Args:
            text: Without markup.
        """
        self.console.print(f"  {text}", markup=False)

    @contextmanager
    def step(self, title: str, explanation: str = "") -> Iterator[None]:
        """Announce a step, show that it is going on, and take its time.

        Args:
            title: A few words, for the list of times too.
            explanation: What happens, for someone who sees it for the first time.
        """
        number = len(self._times) + 1
        self.console.print(f"\n[bold]{number}. {title}[/bold]")
        if explanation:
            self.say(explanation)
        self._times.append((title, 0.0))
        began = time.monotonic()
        with self.console.status(f"{title} …"):
            yield
        self._times[number - 1] = (title, time.monotonic() - began)

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator["Bar"]:
        """Announce a step whose extent is known, and show a bar.

        Args:
            title: As for `step`.
            total: What the bar counts up to.

        Yields:
            The bar.
        """
        self.console.print(f"\n[bold]{len(self._times) + 1}. {title}[/bold]")
        began = time.monotonic()
        columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.console) as progress:
            yield Bar(progress, progress.add_task("records", total=total))
        self._times.append((title, time.monotonic() - began))

    def times(self) -> Table:
        """Tabulate the wall time of each step, and of the whole.

        Returns:
            Columns: step, seconds.
        """
        table = Table("step", "seconds", title="Wall time")
        table.columns[1].justify = "right"
        for title, seconds in self._times:
            table.add_row(title, f"{seconds:.1f}")
        table.add_section()
        table.add_row("all", f"{time.monotonic() - self._began:.1f}")
        return table


class Bar:
    """A bar of progress.

    Args:
        progress: Where it is shown.
        task: Which one it is.
    """

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def advance(self, count: int) -> None:
        """Count on.

        Args:
            count: How much more is done.
        """
        self._progress.advance(self._task, count)
