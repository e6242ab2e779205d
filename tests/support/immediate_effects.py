"""Effects of a model of the simulation that happen at once, to compare the model with what it stands for."""

from collections.abc import Callable
from typing import Any

from simulation.kernel import Kernel, Move


class Unscheduled(Kernel):
    """A kernel without a schedule."""

    def __init__(self) -> None:
        super().__init__(self, lambda: None)

    def next(self, kernel: Kernel) -> Move | None:
        return None

    def effect(self, label: str, action: Callable[[], Any], **_: Any) -> Any:
        return action()

    def sleep(self, seconds: float, why: str) -> None:
        self.now += seconds
