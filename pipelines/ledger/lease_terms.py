"""How a lease is taken, renewed, looked at and given back: the protocol, without a table or a clock.

What it reads and writes is behind `LeaseTable` and `Machine`. Jobs use Delta and the process that they are;
`simulation` uses a model of both. So what is simulated is what runs.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from pipelines.delta.conflicts import CONFLICTS
from pipelines.delta.epochs import Epoch, StaleEpoch, Stamp, application, is_free, lease_end, next_epoch
from pipelines.errors import InfrastructureError
from pipelines.fault_points import Point, reach
from pipelines.ledger.lease_holders import HeldLease, Holder
from pipelines.spark.failures import first_line

_LOST_TO: Final = "another run has taken the lease over"

_log = logging.getLogger(__name__)


class LeaseTable(Protocol):
    """The row of one lease, and the tables whose commits carry its epochs."""

    @property
    def name(self) -> str:
        """The lease's name, which is the first column of its row."""

    def number(self) -> int:
        """Return the highest number that the table of leases has taken of the lease; -1 if none."""

    def held(self) -> HeldLease | None:
        """Return what the row says; None if there is none."""

    def fenced_numbers(self) -> Sequence[int]:
        """Return the highest number of the lease that each fenced table has taken."""

    def write(self, held: HeldLease, stamp: Stamp) -> None:
        """Write the row by a commit that carries a stamp.

        Raises:
            StaleEpoch: The table has taken that number, or a higher one.
            One of `CONFLICTS`: Somebody without a stamp has changed the row meanwhile.
        """


class Machine(Protocol):
    """The process that holds a lease, and what it knows of others."""

    def now(self) -> datetime:
        """Return the time by its clock, in UTC."""

    def process(self) -> Holder:
        """Return the process."""

    def is_gone(self, held: HeldLease) -> bool:
        """Return whether the run that has written a lease is known to have ended."""


@dataclass(frozen=True)
class LeaseLimits:
    """How long a lease is held.

    Attributes:
        duration: From each time that it is written.
        most: In all.
    """

    duration: timedelta
    most: timedelta


class LeaseHeld(InfrastructureError):
    """Another run holds the lease."""


class LeaseTaken(InfrastructureError):
    """Somebody else has written the lease since it was looked at."""


class LeaseTerm:
    """A lease from the moment that it is taken until it is given back.

    Args:
        table: Has the row of the lease.
        machine: The process that takes it.
        limits: How long it is held.
        epoch: The epoch that the run takes.
        number: What the table of leases had taken before its row was read.

    Raises:
        LeaseTaken: Somebody has written the row since.
    """

    def __init__(
        self, table: LeaseTable, machine: Machine, limits: LeaseLimits, epoch: Epoch, number: int
    ) -> None:
        self._table, self._machine, self._limits = table, machine, limits
        self._epoch, self._number = epoch, number
        self._since = machine.now()
        self._write(limits.duration)

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self._epoch.epoch

    @property
    def run_id(self) -> str:
        """The run that holds the lease."""
        return self._epoch.run_id

    def stamp(self, what: str) -> Stamp:
        """Return what the run's next commit carries, see `pipelines.ledger.leases.Lease.stamp`."""
        self._epoch, stamp = self._epoch.after(what)
        return stamp

    def require(self) -> None:
        """Make sure that the lease is still this run's, see `pipelines.ledger.leases.Lease.require`."""
        held = self._table.held()
        if not self._is_mine(held):
            raise InfrastructureError(
                f"{self._epoch.pipeline}: this run lost its lease"
                + (f" to {held.run_id}" if held else ", of which ops/leases has no row any more")
                + ", so it certifies nothing and changes nothing more. Run the command again when no other"
                " run is at work. If the lake is unavailable for long, raise batch.lease_duration"
            )

    def renew(self) -> bool:
        """Prolong the lease, if it is still this run's; return whether to do so again."""
        if self._machine.now() >= self._since + self._limits.most:
            _log.error(
                "this run has worked for longer than batch.max_duration: it no longer renews its lease,"
                " so another run may take over"
            )
            return False
        try:
            self.require()
            self._write(self._limits.duration)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next try may do better
            _log.warning("the lease was not renewed: %s", first_line(str(error)))
        return True

    def give_back(self) -> None:
        """Free the lease, if it is still this run's."""
        if not self._is_mine(self._table.held()):
            return
        try:
            self._write(timedelta())
        except LeaseTaken:
            _log.warning("the lease was not released: another run has taken it over")

    def _is_mine(self, held: HeldLease | None) -> bool:
        return held is not None and (held.run_id, held.epoch) == (self._epoch.run_id, self.epoch)

    def _write(self, duration: timedelta) -> None:
        """Write the lease, if nobody else has since this one wrote it, or looked at it.

        A commit of this run whose answer was lost, as in an outage of the store, is not somebody else's.

        Raises:
            LeaseTaken: Somebody has.
        """
        until = lease_end(self._since, self._machine.now(), duration, self._limits.most)
        held = HeldLease(self._epoch.run_id, self._machine.process(), self._since, until, self.epoch)
        try:
            self._commit(held)
        except StaleEpoch:
            # Before the row, as where the lease is taken.
            number = self._table.number()
            if not self._is_mine(self._table.held()):
                raise LeaseTaken(_LOST_TO) from None
            self._number = number
            try:
                self._commit(held)
            except StaleEpoch:
                raise LeaseTaken(_LOST_TO) from None

    def _commit(self, held: HeldLease) -> None:
        following = self._number + 1
        note = f"lease {self._epoch.run_id} ({self.epoch}, {following})"
        try:
            self._table.write(held, Stamp(application(self._epoch.pipeline), following, note))
        except CONFLICTS:
            # Somebody without an epoch, e.g. a person who removes the lease by hand.
            raise LeaseTaken("the row of the lease was changed by another commit") from None
        reach(Point.LEASE_WRITTEN)
        self._number = following


def take(table: LeaseTable, machine: Machine, limits: LeaseLimits, run_id: str) -> LeaseTerm:
    """Take a lease that is free, in an epoch above all that are known.

    Args:
        table: Has its row.
        machine: The process that takes it.
        limits: How long it is held.
        run_id: The run that takes it.

    Raises:
        LeaseHeld: Another run holds the lease. The message names it.
    """
    # Before the row, so that whoever writes the row from here on makes this run's commit fail.
    number = table.number()
    held = table.held()
    if held is not None and not is_free(held.until, machine.now(), is_gone=machine.is_gone(held)):
        raise _refusal(table.name, held)
    reach(Point.LEASE_LOOKED_AT)
    epoch = next_epoch(held.epoch if held else None, table.fenced_numbers())
    try:
        return LeaseTerm(table, machine, limits, Epoch(table.name, run_id, epoch), number)
    except LeaseTaken:
        raise _refusal(table.name, table.held()) from None


def _refusal(name: str, held: HeldLease | None) -> LeaseHeld:
    if held is None:
        return LeaseHeld(
            f"{name}: the lease was removed while this run took it; this run has changed nothing. Start again"
        )
    until = f" It holds the lease until {held.until:%Y-%m-%d %H:%M:%S} UTC at most."
    return LeaseHeld(
        f"{name}: {held.words} is at work on this pipeline now; this run has changed nothing.{until}"
        " Start again when it has ended"
    )
