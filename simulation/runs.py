"""Runs of a protocol by their seeds: whether its invariants hold, and if not, the shortest history."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, Protocol

from simulation.kernel import Kernel, Move, Schedule, Violation
from simulation.schedules import RandomSchedule, Replay, shortened

_NUMBERS: Final = re.compile(r"[-\d]*\d+|\b[A-Z]\b")


class World(Protocol):
    """What a protocol works on, and its actors."""

    @property
    def kernel(self) -> Kernel:
        """Lets the actors take turns."""

    def finish(self) -> None:
        """Let all come to their end, and look whether all is in order; raises `Violation`."""


MakeWorld = Callable[[Schedule, Random], World]


@dataclass
class Outcome:
    """What became of one run.

    Attributes:
        steps: how many effects there were.
        moves: its schedule, as it was.
        trace: what happened, a line for each step.
        violation: what does not hold; None if all does.
    """

    steps: int
    moves: list[Move]
    trace: list[str]
    violation: Violation | None


@dataclass
class Totals:
    """What became of many runs."""

    runs: int = 0
    steps: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: dict[int, Violation] = field(default_factory=dict)

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(
            self.runs + other.runs,
            self.steps + other.steps,
            self.faults + other.faults,
            self.violations | other.violations,
        )

    def add(self, seed: int, outcome: Outcome) -> None:
        """Count a run."""
        self.runs += 1
        self.steps += outcome.steps
        for move in outcome.moves:
            if kind := kind_of(move):
                self.faults[kind] += 1
        if outcome.violation:
            self.violations[seed] = outcome.violation


def kind_of(move: Move) -> str | None:
    """Return what kind of fault a move is; None if it is none."""
    if move.fault:
        return str(move.fault)
    kind, _, rest = move.who.partition(" ")
    if not rest:
        return None
    return {"time": "time passes", "wake": "process goes on", "arrive": "request arrives late"}.get(
        kind, _NUMBERS.sub("N", move.who)
    )


def play(make: MakeWorld, seed: int, moves: Sequence[Move] | None = None) -> Outcome:
    """Play one run.

    Args:
        make: makes its world.
        seed: decides the world, and the schedule if there is none.
        moves: the schedule; None for one that the seed decides.
    """
    random = Random(seed)  # noqa: S311 - nothing here is secret
    setup, chance = Random(random.random()), Random(random.random())  # noqa: S311
    world = make(RandomSchedule(chance) if moves is None else Replay(moves), setup)
    violation = None
    try:
        world.finish()
    except Violation as found:
        violation = found
    finally:
        world.kernel.close()
    kernel = world.kernel
    return Outcome(kernel.steps, kernel.moves, kernel.trace, violation)


def shortest_history(make: MakeWorld, seed: int, failed: Outcome) -> Outcome:
    """Return a run of the same world that fails as another has, with the shortest schedule found.

    Args:
        make: makes the world.
        seed: of the run.
        failed: the run.
    """
    if failed.violation is None:
        return failed
    invariant = failed.violation.invariant

    def fails(moves: Sequence[Move]) -> bool:
        violation = play(make, seed, moves).violation
        return violation is not None and violation.invariant == invariant

    schedule = shortened(failed.moves, fails)
    # Where it ends, all goes its usual way, which needs no mention.
    return replace(play(make, seed, schedule), moves=schedule)
