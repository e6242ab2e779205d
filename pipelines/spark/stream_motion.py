"""Tells the parent of a stream's process whether the stream moves, so that it can end one that is stuck.

A micro-batch may take hours, and one task of it most of that. So these are signs that it moves: a micro-batch
has ended, or there was nothing to do; a task has begun, has ended, or has counted a record or a byte; a task
runs on another machine, of which nobody can see here whether it works; or the processes of the stream use the
processor, as they do while they plan, list files or load state.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import psutil

from pipelines.runtime.life_signs import TOLD_EVERY_S, Motion, SignSender

# A stream that is stuck still asks Java how its query is, and Java its threads.
_AT_WORK: Final = 0.02
_WINDOW_S: Final = 60.0

_log = logging.getLogger(__name__)


class TaskSigns(NamedTuple):
    """What tasks have told.

    Attributes:
        counted: A number that grows whenever a task begins, ends, or has counted something.
        are_elsewhere: Whether one runs on an executor, not in the driver.
    """

    counted: int
    are_elsewhere: bool


class MotionCounter:
    """Counts the signs that a stream moves.

    Args:
        interval_s: Seconds from one micro-batch to the next.
        processor_s: Returns for how many seconds its processes have used the processor so far.
    """

    def __init__(self, interval_s: float, processor_s: Callable[[], float]) -> None:
        self._interval_s, self._processor_s = interval_s, processor_s
        self._moves, self._done = 0, 0
        self._counted = 0
        self._window: tuple[float, float] | None = None

    def look(self, now_s: float, tasks: TaskSigns, done: int) -> Motion:
        """Take another look at the stream.

        Args:
            now_s: On a clock that never goes back.
            tasks: What tasks have told.
            done: How many micro-batches have ended so far, and how often there was nothing to do.
        """
        if done != self._done or tasks.counted != self._counted or tasks.are_elsewhere:
            self._moves += 1
            self._done, self._counted, self._window = done, tasks.counted, None
        elif self._window is None:
            self._window = now_s, self._processor_s()
        elif (passed_s := now_s - self._window[0]) >= _WINDOW_S:
            used_s = self._processor_s()
            self._moves += used_s - self._window[1] >= _AT_WORK * passed_s
            self._window = now_s, used_s
        return Motion(self._moves, self._done, self._interval_s)


class MotionTeller:
    """Tells the parent every few seconds, in a thread of its own, how a stream moves.

    If Java does not answer, nothing is told, which is a sign as well.

    Args:
        sender: Tells the parent.
        interval_s: Seconds from one micro-batch to the next.
        tasks: Asks Java what tasks have told.
    """

    def __init__(self, sender: SignSender, interval_s: float, tasks: Callable[[], TaskSigns]) -> None:
        self._sender, self._tasks = sender, tasks
        self._counter = MotionCounter(interval_s, _ProcessorTime().seconds)
        self._done = 0
        self._ends = threading.Event()
        sender.send(Motion(0, 0, interval_s))
        threading.Thread(target=self._tell, name="stream-motion", daemon=True).start()

    def note_done(self) -> None:
        """Note that a micro-batch has ended, or that there was nothing to do; called in one thread alone."""
        self._done += 1

    def end(self) -> None:
        """Tell nothing any more: from now on the process is to end."""
        self._ends.set()

    def _tell(self) -> None:
        while not self._ends.wait(TOLD_EVERY_S):
            try:
                self._sender.send(self._counter.look(time.monotonic(), self._tasks(), self._done))
            except Exception as error:  # noqa: BLE001 - whatever it is, the next sign is given
                _log.debug("%s", error)


class _ProcessorTime:
    """What this process and those below it have used of the processor."""

    def __init__(self) -> None:
        self._of: dict[psutil.Process, float] = {}
        self._total = 0.0

    def seconds(self) -> float:
        """Return seconds of work; of a process that has ended, those since the last call are missing."""
        us = psutil.Process()
        now = dict[psutil.Process, float]()
        for each in (us, *us.children(recursive=True)):
            try:
                times = each.cpu_times()
            except psutil.Error:
                continue
            now[each] = times.user + times.system
        self._total += sum(seconds - self._of.get(each, 0.0) for each, seconds in now.items())
        self._of = now
        return self._total
