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
        """Take the lease and claim the ledger for its epoch; give the lease back at the end."""

    def look(self) -> Iterator[str]:
        """Read what is certified, and which days are due."""

    def undo(self) -> Iterator[str]:
        """Claim the batch table for the epoch, as it is certified: the run's base."""

    def build(self) -> Iterator[str]:
        """Write the days, as one commit."""

    def audit(self) -> Iterator[str]:
        """Check the days as they were written."""

    def keep(self) -> Iterator[str]:
        """Take back the days that did not pass."""

    def certify(self) -> Iterator[str]:
        """Write the verdicts, if no commit of others lies between the base and what is certified."""


def steps(night: NightSteps) -> Iterator[str]:
    """Let a run take its steps, one each time that it is asked for the next name."""
    yield "hold"
    with night.hold():
        for step in (night.look, night.undo, night.build, night.audit, night.keep, night.certify):
            yield from step()
