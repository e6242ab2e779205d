"""Who holds a lease, for how long, and how a run finds that it is no longer the one."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from pipelines.delta.epochs import Epoch, StaleEpoch, Stamp
from pipelines.errors import InfrastructureError
from pipelines.ledger.lease_holders import HeldLease, Holder
from pipelines.ledger.lease_terms import LeaseHeld, LeaseLimits, LeaseTaken, LeaseTerm, take

NOON = datetime(2013, 1, 2, 12, tzinfo=UTC)
LIMITS = LeaseLimits(timedelta(minutes=5), timedelta(minutes=12))
PROCESS = Holder("host", "boot", "namespace", 7, 1.0)


@dataclass
class Table:
    """The row of one lease. `lost`: the next answer to a commit that is done does not arrive."""

    row: HeldLease | None = None
    taken: int = -1
    lost: bool = False
    fenced: Sequence[int] = ()
    name: str = "flights"

    def number(self) -> int:
        return self.taken

    def held(self) -> HeldLease | None:
        return self.row

    def fenced_numbers(self) -> Sequence[int]:
        return self.fenced

    def write(self, held: HeldLease, stamp: Stamp) -> None:
        if stamp.number <= self.taken:
            raise StaleEpoch
        self.row, self.taken = held, stamp.number
        if self.lost:
            self.lost = False
            raise StaleEpoch


@dataclass
class Machine:
    time: datetime = NOON
    dead: set[int] = field(default_factory=set)

    def now(self) -> datetime:
        return self.time

    def process(self) -> Holder:
        return PROCESS

    def is_gone(self, held: HeldLease) -> bool:
        return held.process.pid in self.dead


def taken(table: Table, machine: Machine, run_id: str = "run") -> LeaseTerm:
    return take(table, machine, LIMITS, run_id)


def test_a_lease_that_is_held_is_refused_until_its_end_or_the_death_of_its_holder() -> None:
    table, machine = Table(), Machine()
    first = taken(table, machine)
    with pytest.raises(LeaseHeld, match="run run on host"):
        taken(table, machine, "other")
    machine.time = NOON + LIMITS.duration
    second = taken(table, machine, "other")
    machine.dead.add(PROCESS.pid)
    third = taken(table, machine, "third")
    assert [each.epoch for each in (first, second, third)] == [1, 2, 3]


def test_an_epoch_is_above_those_of_tables_whose_lease_was_lost() -> None:
    assert taken(Table(fenced=(4_000_003, -1)), Machine()).epoch == 5


def test_the_same_run_with_another_epoch_no_longer_holds_it() -> None:
    """As of a run that was started again under its id, by a scheduler or a restored ledger."""
    table, machine = Table(), Machine()
    term = taken(table, machine)
    term.require()
    assert table.row is not None
    table.row = replace(table.row, epoch=term.epoch + 1)
    with pytest.raises(InfrastructureError, match="this run lost its lease to run"):
        term.require()


def test_a_lease_is_prolonged_but_not_beyond_the_most() -> None:
    table, machine = Table(), Machine()
    term = taken(table, machine)
    assert table.row is not None
    assert table.row.until == NOON + LIMITS.duration
    machine.time = NOON + timedelta(minutes=10)
    assert term.renew()
    assert table.row.until == NOON + LIMITS.most
    machine.time = NOON + LIMITS.most
    assert not term.renew()


def test_a_commit_of_another_is_no_lost_answer() -> None:
    table, machine = Table(), Machine()
    term = taken(table, machine)
    table.lost = True
    assert term.renew(), "its own commit, of which the answer was lost"
    term.require()
    machine.dead.add(PROCESS.pid)
    other = taken(table, machine, "other")
    before = table.row
    assert term.renew(), "it is tried again, and finds the other one each time"
    term.give_back()
    assert (table.row, other.epoch) == (before, 2)


def test_who_takes_it_between_the_look_and_the_commit_has_it() -> None:
    table, machine = Table(), Machine()
    term = taken(table, machine)
    assert table.row is not None
    table.row, table.taken = replace(table.row, run_id="other", epoch=2), table.taken + 1
    with pytest.raises(LeaseTaken):
        LeaseTerm(table, machine, LIMITS, Epoch("flights", term.run_id, term.epoch), table.taken - 1)
