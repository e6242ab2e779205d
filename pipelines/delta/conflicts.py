"""Commits that conflict with those of other writers, and how often they are tried."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from pipelines.delta.epochs import stale_epoch_error
from pipelines.errors import InfrastructureError

Result = TypeVar("Result")

TABLE_CHANGED: Final = (MetadataChangedException, ProtocolChangedException)
"""Others changed a property or a column of the table: rows that are written again are taken."""
CONFLICTS: Final = (
    DeltaConcurrentModificationException,
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentWriteException,
    *TABLE_CHANGED,
)
"""Others committed first. In Python, unlike Java, the first is not a base of the rest."""

_ATTEMPTS: Final = 6


def retry_conflicts(
    table: str,
    commit: Callable[[], Result],
    on: tuple[type[Exception], ...] = CONFLICTS,
    pause: Callable[[float], None] | None = None,
) -> Result:
    """Try a commit until no other writer's comes first.

    Args:
        table: The path of the table, for the message.
        commit: Makes one commit, or none.
        on: The conflicts after which it is right to make the commit again; others are raised.
        pause: Waits for some seconds between two tries; by default the thread sleeps.

    Returns:
        What `commit` returned.

    Raises:
        InfrastructureError: Others committed first at each try.
    """
    attempts = Retrying(
        retry=retry_if_exception_type(on),
        wait=wait_random_exponential(multiplier=0.5, max=10),
        stop=stop_after_attempt(_ATTEMPTS),
        sleep=pause or time.sleep,
        reraise=True,
    )
    try:
        return attempts(commit)
    except on:
        raise InfrastructureError(
            f"{table}: other writers committed to it first at each of {_ATTEMPTS} attempts, so the change"
            " was not made; start again when they have ended"
        ) from None


@contextmanager
def raising_stale_epoch(table: str) -> Iterator[None]:
    """Turn the conflict of a commit with one of a later epoch into `StaleEpoch`.

    Raises:
        StaleEpoch: There was such a conflict.
    """
    try:
        yield
    except ConcurrentTransactionException:
        raise stale_epoch_error(table) from None
