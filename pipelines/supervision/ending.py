"""The end of a stream that is stuck, in steps that get harder; nobody waits for one of them."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from pipelines.supervision.child import Child
from pipelines.supervision.stuck import Stuck

_log = logging.getLogger(__name__)


class _Step(NamedTuple):
    """What is done, and for which share of the time that streams have to end its effect is waited for."""

    do: Callable[[Child], None]
    words: str
    share: float


# A stream that is stuck hears the first soon, or never.
_STEPS: Final = (
    _Step(Child.wake_and_stop, "it is asked to stop", 1 / 4),
    _Step(Child.stop_all, "it has not stopped: SIGTERM goes to it and to all that it has started", 1 / 8),
    _Step(Child.kill, "it has not ended: SIGKILL goes to it and to all that it has started", 1 / 2),
)


@dataclass
class Ending:
    """The end of a run that is stuck.

    Attributes:
        child: The run.
        stuck: In what way.
        since_s: Since when, on the clock of `StreamExit`.
        within_s: Seconds that a stream has to end.
    """

    child: Child
    stuck: Stuck
    since_s: float
    within_s: float
    _taken: int = 0
    _due_s: float = 0.0

    def go_on(self, now_s: float) -> bool:
        """Take the next step, if the time of the last one is over.

        Args:
            now_s: On the same clock.

        Returns:
            Whether the last step has just proved to be in vain.
        """
        if now_s < self._due_s or self._taken > len(_STEPS):
            return False
        self._taken += 1
        if self._taken > len(_STEPS):
            return True
        step = _STEPS[self._taken - 1]
        _log.warning("%s, process %d: %s", self.child.name, self.child.pid, step.words)
        step.do(self.child)
        self._due_s = now_s + step.share * self.within_s
        return False
