"""What happens at a point of `pipelines.fault_points` that a test has armed."""

from collections.abc import Callable
from itertools import count


def dying(error: BaseException, time: int = 1) -> Callable[[], None]:
    """What lets a run die when it comes to a point.

    Args:
        error: as which it dies.
        time: which time it dies; it does so at each later one as well.
    """
    times = count(1)

    def die() -> None:
        if next(times) >= time:
            raise error

    return die


def once(act: Callable[[], object]) -> Callable[[], None]:
    """What does something the first time only: if that comes to the same point itself, it passes."""
    times = count(1)

    def first() -> None:
        if next(times) == 1:
            act()

    return first
