"""Figures of many pipelines, read by threads of their own, in turns; who looks at them never waits."""

import logging
import queue
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, Generic

from pipelines.console.view import Figures, Reading
from pipelines.errors import OncelakeError
from pipelines.spark.failures import cause

# Most of the time is spent on answers of Spark, of which there is one.
_THREADS: Final = 2

_log = logging.getLogger(__name__)


WITHHELD: Final = "the log says why; it is not shown here, since the contract has personal data"
"""Stands for the cause of an error that may hold a value of a record."""


def why(error: Exception, *, withholds: bool = False) -> str:
    """Return what a page says of an error.

    Args:
        error: The error.
        withholds: Whether values of records are not shown: the class is shown then, and the cause logged.
    """
    if isinstance(error, OncelakeError):
        return str(error)
    if withholds:
        _log.warning("%s: %s", type(error).__name__, cause(error))
        return f"{type(error).__name__}: {WITHHELD}"
    return cause(error)


class Readings(Generic[Figures]):
    """The newest figures of each pipeline.

    Args:
        sources: By the name of a pipeline, what reads its figures; it gets those from before.
        answer_s: For how many seconds an answer is waited for before a reading says so.
        news: Is set whenever a pipeline was read.
        withheld: The pipelines whose values are not shown.
    """

    def __init__(
        self,
        sources: Mapping[str, Callable[[Figures | None], Figures]],
        answer_s: float,
        news: threading.Event,
        withheld: Collection[str] = (),
    ) -> None:
        self._withheld = withheld
        self._sources, self._answer_s, self._news = sources, answer_s, news
        self._todo: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._readings = {name: Reading[Figures]() for name in sources}
        self._waiting: set[str] = set()
        self._begun: dict[str, datetime] = {}
        for number in range(_THREADS):
            threading.Thread(target=self._work, name=f"console-{number}", daemon=True).start()

    def ask(self) -> None:
        """Have all pipelines read that are not waiting to be; those that were read longest ago come first."""
        with self._lock:
            due = [name for name in self._sources if name not in self._waiting]
            self._waiting.update(due)
        for name in due:
            self._todo.put(name)

    def of(self, name: str, now: datetime) -> Reading[Figures]:
        """Return the newest figures of a pipeline.

        Args:
            name: The pipeline.
            now: The time.
        """
        with self._lock:
            reading, begun = self._readings[name], self._begun.get(name)
        return replace(reading, asked_at=begun) if begun and self._is_slow(begun, now) else reading

    def is_done(self, now: datetime) -> bool:
        """Return whether all was read that was asked for, or no thread is left that gets an answer."""
        with self._lock:
            slow = sum(self._is_slow(begun, now) for begun in self._begun.values())
            return slow in (_THREADS, len(self._waiting))

    def _is_slow(self, begun: datetime, now: datetime) -> bool:
        return (now - begun).total_seconds() > self._answer_s

    def _work(self) -> None:
        while True:
            name = self._todo.get()
            began = datetime.now(UTC)
            with self._lock:
                self._begun[name] = began
                before = self._readings[name]
            try:
                after = Reading(self._sources[name](before.value), began)
            except Exception as error:  # noqa: BLE001 - whatever it is, the page says it
                after = before.failed(why(error, withholds=name in self._withheld))
            with self._lock:
                self._readings[name] = after
                del self._begun[name]
                self._waiting.remove(name)
            self._news.set()
