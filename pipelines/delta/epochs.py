"""The rules by which one run at a time writes a pipeline's tables: epochs, and what a history must hold.

An epoch is a fencing token: each run that takes the lease gets a higher one, and each commit of the run
carries it, as `txnAppId` and `txnVersion` of Delta's protocol. A table that has taken a commit of a later
epoch takes none of an earlier one. Nothing here touches a table or a clock.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from pipelines.errors import InfrastructureError

# A run that waits for ingest writes the index again and again.
_STEPS: Final = 1_000_000
_HARMLESS: Final = frozenset(
    {
        *("SET TBLPROPERTIES", "UNSET TBLPROPERTIES"),
        *("ADD COLUMNS", "CHANGE COLUMN", "CHANGE COLUMNS"),
        *("VACUUM START", "VACUUM END", "OPTIMIZE"),
    }
)
"""Operations of Delta that leave the rows of a table as they are."""


class StaleEpoch(InfrastructureError):
    """A later run has taken over: this one may not write any longer."""


@dataclass(frozen=True)
class Stamp:
    """What a commit of a run carries.

    Attributes:
        application: The pipeline's lease, as `txnAppId`.
        number: The epoch and the step within it, as `txnVersion`; a later stamp has a higher one.
        note: Says in the table's history what the commit is, as `userMetadata`; no two are equal.
    """

    application: str
    number: int
    note: str


@dataclass(frozen=True)
class Epoch:
    """A taken lease: the right to write, until a later epoch is taken.

    Attributes:
        pipeline: The pipeline's name.
        run_id: The run that took it.
        epoch: One more than the last one.
        steps: How many stamps were given.
    """

    pipeline: str
    run_id: str
    epoch: int
    steps: int = 0

    def after(self, what: str) -> tuple["Epoch", Stamp]:
        """Return the stamp of the run's next commit, and the epoch after it.

        Args:
            what: What the commit does, in a word.
        """
        number = self.epoch * _STEPS + self.steps
        stamp = Stamp(application(self.pipeline), number, f"{what} {self.run_id} ({self.epoch}.{self.steps})")
        return replace(self, steps=self.steps + 1), stamp


@dataclass(frozen=True)
class Commit:
    """A commit of a table, as in its history.

    Attributes:
        version: The version that it made.
        operation: Delta's name of what it did.
        note: Its `userMetadata`, e.g. what a stamp says of it; None where there is none.
    """

    version: int
    operation: str
    note: str | None = None


def application(pipeline: str) -> str:
    """Return the `txnAppId` of the runs of a pipeline."""
    return f"oncelake.lease.{pipeline}"


def next_epoch(lease_epoch: int | None, numbers: Iterable[int]) -> int:
    """Return the epoch that a run takes: one above all that are known.

    Args:
        lease_epoch: The epoch in the lease, if it has one. It may have been lost, or restored from a backup.
        numbers: The highest number that each fenced table has taken; -1 where it has taken none.
    """
    return 1 + max(lease_epoch or 0, *(number // _STEPS for number in numbers), 0)


def require_newer(table: str, taken: int, stamp: Stamp) -> None:
    """Make sure that a commit's number is above the one that its table has taken.

    Args:
        table: The path of the table.
        taken: The highest number of the stamp's application in it; -1 if it has taken none.
        stamp: What the commit is to carry.

    Raises:
        StaleEpoch: It is not.
    """
    if taken >= stamp.number:
        raise stale_epoch_error(table)


def stale_epoch_error(table: str) -> StaleEpoch:
    """Return the error of a commit whose epoch is earlier than that of the table."""
    return StaleEpoch(
        f"{table}: this run lost its lease to a later one, so it writes nothing more and certifies nothing."
        " Start again when that one has ended; if the machine was paused, or the lake was unavailable, raise"
        " batch.lease_duration above that time"
    )


def is_free(until: datetime, now: datetime, *, is_gone: bool) -> bool:
    """Return whether a lease may be taken.

    Args:
        until: Its end.
        now: The time.
        is_gone: Its holder is known to have died.
    """
    return is_gone or until <= now


def lease_end(since: datetime, now: datetime, duration: timedelta, most: timedelta) -> datetime:
    """Return until when a lease is held that is taken or prolonged now.

    Args:
        since: When it was taken.
        now: The time.
        duration: For how long it is asked for.
        most: For how long a run may hold it in all, so that one that hangs does not hold it for ever.
    """
    return min(now + duration, since + most)


def commits_of_others(
    commits: Iterable[Commit], base: int, certified_version: int, own: Collection[int]
) -> list[Commit]:
    """Return commits by which others changed rows between the version that a run began with and its last one.

    Args:
        commits: The history of the table.
        base: The version that the run began with.
        certified_version: The version that it is about to certify.
        own: The versions that its own commits made.
    """
    return [
        commit
        for commit in sorted(commits, key=lambda commit: commit.version)
        if base < commit.version <= certified_version
        and commit.version not in own
        and commit.operation not in _HARMLESS
    ]
