"""Moments between two commits of a protocol, by name, at which a test can let an accident happen.

Guarantees hold whatever happens there: a process dies, another run overtakes, an answer is lost. The code
says by `reach` that such a moment has come. That does nothing unless a test has armed the point in this very
process; no setting, environment variable or command does.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum


class Point(StrEnum):
    """A moment of a protocol; what is written by then, and what is not."""

    LEASE_LOOKED_AT = "lease looked at"
    """A run has found the lease of its pipeline free, and has not taken it."""
    LEASE_WRITTEN = "lease written"
    """The row of the lease is committed, and the run that wrote it has not noted that."""

    LEASE_HELD = "lease held"
    """A nightly run holds its lease and has claimed the ledger of verdicts, which it has not read."""
    INDEX_ROWS_READ = "index rows read"
    """What the bronze index lacks is read from bronze, and nothing of it is written."""
    DAYS_DUE = "days due"
    """A nightly run has found which days are due; the batch table is as an earlier run left it."""
    BATCH_CLAIMED = "batch claimed"
    """The batch table is as it was certified, and claimed for the epoch; no day of the run is written."""
    DAYS_BUILT = "days built"
    """A nightly run has written its days to the batch table, and has not audited them."""
    DAYS_AUDITED = "days audited"
    """The outcomes of the audit are recorded; days that failed are still in the batch table."""
    DAYS_KEPT = "days kept"
    """The batch table holds what passed, and no verdict of the run is written."""
    VERDICTS_WRITTEN = "verdicts written"
    """Readers have changed over; the run still holds its lease, and its steps are not recorded."""

    FILES_COPIED = "files copied"
    """The serving table has the files of the certified version, and no commit of it names those it lacked."""

    PARTITION_WRITTEN = "partition written"
    """The files that replace a partition are written; no commit names them."""

    BATCH_LOOKED_FOR = "batch looked for"
    """A stream has found that a table lacks its micro-batch, and has not begun to write it."""
    COLUMNS_COMPARED = "columns compared"
    """It is known which columns a table lacks, and none of them is added."""
    QUARANTINE_WRITTEN = "quarantine written"
    """The broken records of a micro-batch, if it has any, are in the quarantine; its events are nowhere."""

    RECORDS_JUDGED = "records judged"
    """A replay knows what is to become of each record that it has chosen, and has changed nothing."""

    OFFSETS_PLANNED = "offsets planned"
    """A backfill knows what bronze lacks, and has not begun to read it."""
    CHUNK_DRAFTED = "chunk drafted"
    """A chunk of a backfill is written to files that no reader sees; its commit is not begun."""
    CHUNK_COMMITTED = "chunk committed"
    """Bronze has a chunk of a backfill, and the next one is not begun."""

    CHECKPOINT_MOVED = "checkpoint moved"
    """`checkpoint reset` has moved the checkpoint of ingest aside; no run may begin without it yet."""

    VALUES_DELETED = "values deleted"
    """The ledgers hold no value of what is to be forgotten; every layer still holds the events."""
    PLACES_REMEMBERED = "places remembered"
    """The places of what is to be forgotten are in the ledger; the records are in bronze as they were."""
    RECORDS_EMPTIED = "records emptied"
    """Bronze has lost what is forgotten; quarantine, speed and batch layer still have rows of it."""
    ROWS_DELETED = "rows deleted"
    """The quarantine, or the speed layer after it, has lost its rows of what is forgotten."""

    SLOTS_FENCED = "slots fenced"
    """A run of publish_stream has taken its slots, and their progress does not name it yet."""
    PROGRESS_AGREES = "progress agrees"
    """A run of publish_stream has its slots, whose progress agrees with its checkpoint; nothing is sent."""
    FIRST_START_NOTED = "first start noted"
    """It is noted what was certified when publish_stream was started first; its query is not begun."""
    BATCH_SETTLED = "batch settled"
    """It is recorded which days a micro-batch settles, and nothing of it is sent."""
    PART_DUE = "part due"
    """All earlier parts of a micro-batch, or of a whole day, are done; the next one is not begun."""
    RESET_DUE = "reset due"
    """`publish reset` has found nothing that speaks against it; the slots are as they were."""
    SLOT_TAKEN = "slot taken"
    """A task has its slot for itself and knows how far it is; its transaction is not begun."""
    ROWS_PRODUCED = "rows produced"
    """A task has handed some rows of its slot to its producer, and may have more."""
    SLOT_SENT = "slot sent"
    """The brokers have all rows of a slot, and its progress; the transaction is not committed."""
    SLOT_COMMITTED = "slot committed"
    """Readers see the rows of a slot, and Spark does not know that its task is done."""


_armed: dict[Point, Callable[[], object]] = {}


def reach(point: Point) -> None:
    """Say that a moment has come; it does nothing unless a test has armed the point."""
    if _armed and (handler := _armed.get(point)):
        handler()


@contextmanager
def armed(point: Point, handler: Callable[[], object]) -> Iterator[None]:
    """Let something happen each time that a point is reached in this process, for the length of a block.

    Args:
        point: When.
        handler: What. If it raises, the protocol ends there as if its own next step had failed.

    Raises:
        RuntimeError: The point is armed already.
    """
    if point in _armed:
        raise RuntimeError(f"{point!r} is armed already")
    _armed[point] = handler
    try:
        yield
    finally:
        del _armed[point]
