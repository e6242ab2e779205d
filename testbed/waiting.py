"""Waits until something is so."""

import time
from collections.abc import Callable
from typing import Final

from pipelines.errors import InfrastructureError

WITHIN_S: Final = 240.0
_LOOK_EVERY_S: Final = 0.05


def wait_until(
    condition: Callable[[], bool],
    what: str,
    within_s: float = WITHIN_S,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Wait for a condition.

    Args:
        condition: Asked again and again.
        what: The condition in words, for the error.
        within_s: How many seconds at most.
        meanwhile: Called between two questions.

    Raises:
        InfrastructureError: It did not come true in time.
    """
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise InfrastructureError(f"waited {within_s:g} s in vain until {what}")
        meanwhile()
        time.sleep(_LOOK_EVERY_S)
