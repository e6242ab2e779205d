"""What happens at a point of `pipelines.fault_points` that a test has armed, and a start that dies."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from pipelines.errors import OncelakeError
from pipelines.steps.ingest import ingest
from tests.support.lakes import Lake


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


def start_ingest_that_dies(lake: Lake) -> None:
    """Starts ingest for the first time; it dies where its query would begin."""
    # No checkpoint can be made in place of a file.
    checkpoint = Path(lake.config.checkpoint("ingest"))
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()
    with pytest.raises(OncelakeError):
        ingest(lake.pipeline, once=True)
    checkpoint.unlink()
