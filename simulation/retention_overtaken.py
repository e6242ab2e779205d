"""Upkeep of a lake whose days are certified, of which one run stands still while others do their work."""

from dataclasses import dataclass

from simulation.retention import RetentionWorld
from simulation.schedules import overtaking


@dataclass
class OvertakenUpkeepWorld(RetentionWorld):
    """A lake in which the stream has read all records, and a night has certified all days, when it begins."""

    def __post_init__(self) -> None:
        self.schedule = overtaking(self.schedule, self.setup, "upkeep")
        self._make_tables()
        self._fill()
        self.undisturbed(self._begin)
        for name in ("upkeep-A", "upkeep-B"):
            self.start_upkeep(name, vacuum_now=self.setup.random() < 0.5)
        self.start_stream(3)
        self.start("night-A", ())
        self._accidents()

    def _begin(self) -> None:
        self.start_stream(1)
        self.kernel.run()
        self.start("night-first", ())
