"""The order in which a nightly run looks and writes, which is what makes it safe beside another.

A run may be stopped between any two steps, for as long as it takes another to do all of its own, and then go
on. The lease is taken before anything is read; the ledger of verdicts is claimed with it; the batch table is
claimed by the commit that puts it back to what is certified; and what the run decides is written last, by a
commit that a later epoch refuses.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol


class NightSteps(Protocol):
    """A nightly run. Each step says its name before each of its commits, where the run may be stopped."""

    def hold(self) -> AbstractContextManager[object]:
        """Takes the lease and claims the ledger for its epoch; gives the lease back at the end."""

    def look(self) -> Iterator[str]:
        """Reads what is certified, and which days are due."""

    def undo(self) -> Iterator[str]:
        """Claims the batch table for the epoch, as it is certified: the run's base."""

    def build(self) -> Iterator[str]:
        """Writes the days, as one commit."""

    def audit(self) -> Iterator[str]:
        """Checks the days as they were written."""

    def keep(self) -> Iterator[str]:
        """Takes back the days that did not pass."""

    def certify(self) -> Iterator[str]:
        """Writes the verdicts, if no commit of others lies between the base and what is certified."""


def steps(night: NightSteps) -> Iterator[str]:
    """Lets a run take its steps, one each time that it is asked for the next name."""
    yield "hold"
    with night.hold():
        for step in (night.look, night.undo, night.build, night.audit, night.keep, night.certify):
            yield from step()
