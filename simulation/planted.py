"""Planted faults: protocols that are wrong in one place, to show that the simulation finds that.

None of them is a switch of the jobs: each is a wrong adapter, or a wrong order, of the simulation's own.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from simulation.kernel import Schedule
from simulation.runs import World


@dataclass(frozen=True)
class Planted:
    """A planted fault.

    Attributes:
        name: what is wrong.
        seed: the first seed whose run finds it.
        make: makes a world with it.
    """

    name: str
    seed: int
    make: Callable[[Schedule, Random], World] = field(repr=False)
