"""What a fault is while it is under way."""

from abc import ABC, abstractmethod
from typing import Final

from chaos.jobs import Job
from chaos.journal import Injected
from chaos.world import World

_NO_DISK: Final = "not injected: files could not be written"
_NOT_NEXT: Final = "not injected: the fault of state before was not noticed yet"
_NOT_RUNNING: Final = "not injected: the target did not run"


class Effect(ABC):
    """A fault that is under way.

    Args:
        world: where it happens.
        injected: what is known of it.
    """

    def __init__(self, world: World, injected: Injected) -> None:
        self.world, self.injected = world, injected
        self.fault = injected.fault

    @abstractmethod
    def inject(self) -> None:
        """Let it happen."""

    def heal(self) -> None:
        """Put right what has to be put right when its time is over."""
        self.settle("over")

    def keep(self) -> None:
        """See to it that it lasts; most faults do by themselves."""
        return

    def settle(self, outcome: str) -> None:
        """Say what came of it."""
        self.world.journal.settle(self.injected, outcome)

    def can_write(self) -> bool:
        """Return whether the lake can be written; that it cannot is the outcome then."""
        if self.world.disk_faults:
            self.settle(_NO_DISK)
        return not self.world.disk_faults

    def is_next(self) -> bool:
        """Return whether no other fault of state waits to be noticed; that one does is the outcome then."""
        awaited = self.world.supervisor.awaits_repair(self.fault.target.partition("/")[0])
        if awaited:
            self.settle(_NOT_NEXT)
        return not awaited

    def target(self) -> Job | None:
        """Return the job that is hit; None if it does not run, which is its outcome then."""
        job = self.world.job(self.fault.target)
        if job is None:
            self.settle(_NOT_RUNNING)
        return job
