"""The order in which a nightly run looks and writes, which is what makes it safe beside another.

Take the lease before anything is read; then claim the ledger of verdicts and the batch table for its epoch;
write verdicts last. So a run that was paused while another one did all of its work fails at its next commit.

A further step is a method of `NightSteps` and an entry in `steps`. Where it may be stopped is a point of
`pipelines.fault_points`, which says what is written by then.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from pipelines.fault_points import Point, reach


class NightSteps(Protocol):
    """A nightly run. Each step stops at a point before each of its commits."""

    def hold(self) -> AbstractContextManager[object]:
        """Take the lease and claim the ledger for its epoch; give the lease back at the end."""

    def plan_days(self) -> Iterator[Point]:
        """Read what is certified, and which days are due."""

    def restore_base(self) -> Iterator[Point]:
        """Claim the batch table for the epoch, as it is certified: the run's base."""

    def build(self) -> Iterator[Point]:
        """Write the days, as one commit."""

    def audit(self) -> Iterator[Point]:
        """Check the days as they were written."""

    def restore_failed_days(self) -> Iterator[Point]:
        """Take back the days that did not pass."""

    def certify(self) -> Iterator[Point]:
        """Write the verdicts, if no commit of others lies between the base and what is certified."""


def steps(night: NightSteps) -> Iterator[Point]:
    """Let a run take its steps up to the next point, each time that it is asked for one."""
    with night.hold():
        for step in (
            night.plan_days,
            night.restore_base,
            night.build,
            night.audit,
            night.restore_failed_days,
            night.certify,
        ):
            yield from step()


def stop_at(point: Point) -> Iterator[Point]:
    """Reach a point, at which whoever takes the steps may leave the run as it is."""
    reach(point)
    yield point
