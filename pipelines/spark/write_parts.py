"""What of the writing of a micro-batch its own job can tell apart, measured where it happens."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Literal

Part = Literal["commit", "quarantine"]
"""`commit`: the commit to the table that the stream is for; `quarantine`: all that broken records take."""


@dataclass
class _Timing:
    seconds: dict[str, float] = field(default_factory=dict)
    is_within: bool = False


_timing: Final[ContextVar[_Timing | None]] = ContextVar("timing", default=None)


@contextmanager
def timed() -> Iterator[Mapping[str, float]]:
    """Time the parts of what the block does; yield their seconds, which grow meanwhile."""
    timing = _Timing()
    token = _timing.set(timing)
    try:
        yield timing.seconds
    finally:
        _timing.reset(token)


@contextmanager
def part_of_writing(part: Part) -> Iterator[None]:
    """Count what the block takes as a part of writing a micro-batch, if one is written.

    A part within another counts as that one.
    """
    timing = _timing.get()
    if timing is None or timing.is_within:
        yield
        return
    timing.is_within, began_s = True, time.monotonic()
    try:
        yield
    finally:
        timing.is_within = False
        timing.seconds[part] = timing.seconds.get(part, 0.0) + time.monotonic() - began_s
