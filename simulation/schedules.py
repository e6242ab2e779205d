"""Schedules: random ones, those that were recorded, and shorter ones that fail as well."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from simulation.kernel import Fault, Kernel, Move, Schedule

_PAUSES: Final = ("time 25", "time 70", "time 700")


class RandomSchedule:
    """Decides by chance; how often what goes wrong is different in each run, and so is what can.

    Args:
        random: the chance.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._faults = {fault for fault in Fault if random.random() < 0.5}
        self._fault_rate = random.choice((0.0, 0.01, 0.03, 0.1))
        self._accident_rate = random.choice((0.0, 0.01, 0.03, 0.1))
        self._time_rate = random.choice((0.0, 0.01, 0.05))
        self._switch_rate = random.choice((0.02, 0.1, 0.3, 0.8))
        self._kinds: list[str] | None = None
        self._last = ""
        self._following: Move | None = None

    def next(self, kernel: Kernel) -> Move | None:
        """Return the next move; None where everything is to come to its end."""
        if kernel.is_quiet:
            return None
        following, self._following = self._following, None
        return following or self._of_the_world(kernel) or self._of_an_actor(kernel)

    def _of_the_world(self, kernel: Kernel) -> Move | None:
        random = self._random
        if accident := self._accident(kernel):
            return Move(accident)
        if random.random() < self._time_rate:
            return Move(random.choice(_PAUSES))
        if kernel.in_flight and random.random() < 0.1:
            return Move(f"arrive {random.randrange(len(kernel.in_flight))}")
        stopped = sorted({a.process.name for a in kernel.actors.values() if a.process.is_stopped})
        if stopped and random.random() < 0.03:
            return Move(f"wake {random.choice(stopped)}")
        return None

    def _of_an_actor(self, kernel: Kernel) -> Move | None:
        random = self._random
        ready = kernel.ready()
        if not ready:
            return None
        names = [actor.name for actor in ready]
        if self._last not in names or random.random() < self._switch_rate:
            self._last = random.choice(names)
        fault = None
        if random.random() < self._fault_rate:
            possible = [each for each in kernel.actors[self._last].faults if each in self._faults]
            fault = random.choice(possible) if possible else None
        if fault is Fault.STOP and random.random() < 0.5:
            self._following = Move("time 700")
        return Move(self._last, fault)

    def _accident(self, kernel: Kernel) -> str | None:
        if self._random.random() >= self._accident_rate:
            return None
        if self._kinds is None:
            self._kinds = [name for name in kernel.accidents if self._random.random() < 0.4]
        return self._random.choice(self._kinds) if self._kinds else None


_FIRST_STEPS: Final = 80
_MOST_ACCIDENTS: Final = 4


class Overtaken:
    """Lets one process stand still at one of its effects, until others have done all of their work.

    It is what a lease must survive, and what chance alone brings about seldom: while it stands still, nothing
    else goes wrong, and the others come to their end.

    Args:
        schedule: decides until then, and afterwards.
        random: the chance.
        victims: how the names of those begin that stand still most often.
    """

    def __init__(self, schedule: RandomSchedule, random: Random, victims: str) -> None:
        self._schedule, self._random, self._victims = schedule, random, victims
        self._left = random.randrange(_FIRST_STEPS)
        self._accidents_left = random.randrange(_MOST_ACCIDENTS)
        self._victim: str | None = None
        self._has_stopped = self._is_over = False
        self._is_long = random.random() < 0.7

    def next(self, kernel: Kernel) -> Move | None:
        """Return the next move."""
        if self._is_over or kernel.is_quiet:
            return self._schedule.next(kernel)
        if self._has_stopped:
            return self._while_it_stands_still(kernel)
        if self._victim is None:
            self._victim = self._chosen(list(kernel.actors))
        actor = kernel.actors[self._victim]
        self._is_over = actor.has_ended
        if actor not in kernel.ready():
            return self._schedule.next(kernel)
        self._left -= 1
        if self._left > 0 or Fault.STOP not in actor.faults:
            return Move(self._victim) if self._random.random() < 0.7 else self._schedule.next(kernel)
        self._has_stopped = True
        return Move(self._victim, Fault.STOP)

    def _chosen(self, names: Sequence[str]) -> str:
        likely = [name for name in names if name.startswith(self._victims)]
        return self._random.choice(likely if likely and self._random.random() < 0.7 else names)

    def _while_it_stands_still(self, kernel: Kernel) -> Move | None:
        random = self._random
        if self._is_long:
            self._is_long = False
            return Move("time 700")
        if self._accidents_left and random.random() < 0.1:
            self._accidents_left -= 1
            return Move(random.choice([*kernel.accidents, "time 700"]))
        if ready := kernel.ready():
            return Move(random.choice(ready).name)
        if any(not a.has_ended and not a.process.is_stopped for a in kernel.actors.values()):
            return Move("time")
        self._is_over = True
        return None


def overtaking(schedule: Schedule, setup: Random, victims: str) -> Schedule:
    """Return a schedule in which one process is overtaken in some runs; one that was recorded stays as it is.

    Args:
        schedule: a schedule.
        setup: decides.
        victims: how the names of those begin that are overtaken most often.
    """
    random = Random(setup.random())  # noqa: S311 - nothing here is secret
    if not isinstance(schedule, RandomSchedule) or random.random() < 0.5:
        return schedule
    return Overtaken(schedule, random, victims)


class Replay:
    """Decides as was recorded; what cannot be done any more is left out, and the rest goes its usual way."""

    def __init__(self, moves: Sequence[Move]) -> None:
        self._moves, self._at = moves, 0

    def next(self, kernel: Kernel) -> Move | None:
        """Return the next move of those that were recorded."""
        if kernel.is_quiet or self._at >= len(self._moves):
            return None
        self._at += 1
        return self._moves[self._at - 1]


def shortened(
    moves: Sequence[Move], fails: Callable[[Sequence[Move]], bool], tries: int = 1_000
) -> list[Move]:
    """Return a schedule that fails with as few moves as can be found: by leaving out ever smaller pieces.

    Args:
        moves: a schedule that fails.
        fails: whether a schedule fails in the same way.
        tries: how many schedules may be tried.
    """
    shortest, size = list(moves), max(1, len(moves) // 2)
    while True:
        at, is_shorter = 0, False
        while at < len(shortest) and tries > 0:
            tries -= 1
            without = shortest[:at] + shortest[at + size :]
            if fails(without):
                shortest, is_shorter = without, True
            else:
                at += size
        if tries <= 0 or (size == 1 and not is_shorter):
            return shortest
        size = max(1, size // 2)
