"""The upgrade of the code in the middle of a run, as docs/runbook.md has it."""

from typing import Final

from chaos.effects import Effect
from chaos.jobs import Job
from chaos.schedule import QUERIES
from chaos.supervisor import names_of, stop_all

_WAITS: Final = "not injected: a job was at work all the time"


class Upgrade(Effect):
    """All jobs change to the code of this checkout, when no nightly run and no repair is under way."""

    _has_begun = False

    def inject(self) -> None:
        """Start no further nightly run, and wait for a moment at which nobody works."""
        self.world.supervisor.held |= {job.name for job in self._others}
        self.keep()

    def keep(self) -> None:
        """Begin once."""
        streams, supervisor = {*names_of([*self.world.nights], QUERIES)}, self.world.supervisor
        if self._has_begun or streams & supervisor.held or any(job.is_running for job in self._others):
            return
        self._has_begun = True
        supervisor.aside(streams, self._upgrade)

    def heal(self) -> None:
        """Wait no longer, if it has not begun."""
        if not self._has_begun:
            self._let_others_start()
            self.settle(_WAITS)

    @property
    def _others(self) -> list[Job]:
        return [*self.world.nights.values(), *self.world.upkeep.values()]

    def _let_others_start(self) -> None:
        self.world.supervisor.held -= {job.name for job in self._others}

    def _upgrade(self) -> None:
        world = self.world
        stop_all(world.supervisor.streams.values())
        for pipeline in world.nights:
            # The next release may refuse a micro-batch that was left unfinished.
            world.supervisor.runbook.finish_publishing(pipeline)
        before = world.site.release.name
        world.site.release.upgrade()
        if world.site.desk:
            world.site.desk.open_again()
        self._let_others_start()
        self.settle(f"{before} to {world.site.release.name}")
