"""Appends records to bronze between two micro-batches of ingest, while ingest is at work.

The order of ingestion decides which events are late and what an audit compares: no micro-batch in bronze has
an earlier `_ingested_at` than those that were committed before it. Ingest sets `_ingested_at` to the time at
which it planned the micro-batch, long before the commit. So a backfill first writes its records to files,
with one ingestion time. It commits them after all micro-batches that were planned before that time. If a
micro-batch that was planned later has been committed first, the backfill writes the files again.

With several clusters, each has its own ingest and its own order: a micro-batch may be committed after later
ones of other clusters. The ingestion time of a backfill is later than that of every committed micro-batch of
any cluster, so that an audit of an older version of bronze does not include its records. The backfill waits
only for planned micro-batches of its own cluster.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from pipelines.delta.conflicts import TABLE_CHANGED
from pipelines.delta.epochs import StaleEpoch, Stamp
from pipelines.errors import InfrastructureError
from pipelines.fault_points import Point, reach
from pipelines.records.watermark import ALWAYS
from pipelines.runtime.system_clock import Clock
from pipelines.spark.checkpoints import QueryFiles
from pipelines.spark.ingest_plans import MicroBatchPlan

Records = TypeVar("Records")
Records_contra = TypeVar("Records_contra", contravariant=True)

_ATTEMPTS: Final = 20
_NEXT: Final = timedelta(microseconds=1)
_LOOK_EVERY_S: Final = 0.2
# A micro-batch that is not committed by then may be one of an ingest that has died.
_WAIT_S: Final = 60.0


@dataclass(frozen=True)
class _Ingest:
    """Where an ingest is.

    Attributes:
        committed: When its last micro-batch in bronze was planned.
        planned: When the next one was; None if it is not planned yet.
    """

    committed: datetime = ALWAYS
    planned: datetime | None = None


class AppendTransaction(Protocol):
    """A transaction on bronze, see `pipelines.delta.transaction.Transaction`."""

    def number_taken(self, application: str) -> int:
        """Return the last number of an application; the commit conflicts with a further one."""

    def adopt(self, other: Self) -> bool:
        """Take what another transaction has written; False if the table has got other columns since."""

    def discard(self) -> None:
        """Delete what was written."""

    def commit(self, actions: tuple[()], stamp: Stamp) -> int:
        """Commit what was written, and the stamp; return the version that this made."""


class IngestCheckpoint(Protocol):
    """The checkpoint of an ingest that writes to bronze."""

    def files(self) -> QueryFiles:
        """Return what it says."""

    def plan(self, batch: int) -> MicroBatchPlan | None:
        """Return the plan of a micro-batch; None if there is none."""


class BackfillTable(IngestCheckpoint, Clock, Protocol[Records_contra]):
    """Bronze, and the checkpoint of the ingest whose topic is read."""

    def others(self) -> Sequence[IngestCheckpoint]:
        """Return the checkpoints of the other ingests that write to bronze: one for each further cluster."""

    def begin(self) -> Any:
        """Begin a transaction on the newest version, an `AppendTransaction`."""

    def write(self, draft: Any, records: Records_contra, at: datetime) -> int:
        """Write records as of a moment to files that no commit names; return how many."""

    def newest_since(self, moment: datetime) -> datetime | None:
        """Return the newest ingestion in bronze, of those since a moment."""

    def whole_from(self) -> str | None:
        """Return what bronze says of the first day that retention has left whole."""

    def number_taken(self, application: str) -> int:
        """Return the last number of an application that bronze has taken."""


@dataclass
class BackfillWriter(Generic[Records]):
    """Appends to one bronze table, under one epoch.

    Attributes:
        path: The path of bronze, for messages.
        chunk_offsets: How many offsets a chunk has at most, for messages.
        table: Bronze.
        newest: No record was ingested later, but for those of micro-batches that came since.
        whole_from: What the table said, before it was looked at what it lacks, of the first day that
            retention has left whole.
        require: Makes sure, before a commit, that this may still write; raises if not.
        stands_still: Whether a planned micro-batch of ingest does not come.
    """

    path: str
    chunk_offsets: int
    table: BackfillTable[Records]
    newest: datetime
    whole_from: str | None
    require: Callable[[], None]
    stands_still: bool = False

    def append(self, records: Records, stamp: Stamp) -> int:
        """Append records as one commit; return how many.

        Args:
            records: The columns of bronze without `_ingested_at`. They may be written several times.
            stamp: What the commit carries.

        Raises:
            StaleEpoch: A later run has taken over. Nothing was written.
            InfrastructureError: Ingest was faster at each attempt, or retention has removed records, or
                another run has taken over.
        """
        for _ in range(_ATTEMPTS):
            draft: AppendTransaction = self.table.begin()
            at = self._next(draft)
            rows = self.table.write(draft, records, at)
            reach(Point.CHUNK_DRAFTED)
            if self._commit(draft, at, stamp):
                self.newest = at
                return rows
            draft.discard()
        raise InfrastructureError(
            f"{self.path}: ingest_stream planned and committed a micro-batch during each of {_ATTEMPTS}"
            f" attempts to append a chunk. Lower backfill.chunk_offsets (found {self.chunk_offsets:,}), or"
            " raise ingest.trigger_interval, and start again: what was written stays"
        )

    def _next(self, transaction: AppendTransaction) -> datetime:
        """Return an ingestion that follows all in the table.

        It lies before a planned micro-batch only if that one does not come.
        """
        following = max(self.newest, _committed(self.table, transaction)) + _NEXT
        return following if self.stands_still else max(following, self.table.now())

    def _commit(self, draft: AppendTransaction, at: datetime, stamp: Stamp) -> bool:
        """Commit what was written in its turn; return False, with nothing committed, if that has passed."""
        until = self.table.elapsed_s() + _WAIT_S
        while True:
            self.require()
            transaction: AppendTransaction = self.table.begin()
            self._require_same_retention()
            # A commit of an ingest is a conflict from here on.
            ingest = _ingest(self.table, transaction)
            others = [_ingest(each, transaction) for each in self.table.others()]
            has_passed = any(each.committed >= at for each in (ingest, *others))
            # No two micro-batches are of the same moment, by which the index tells them apart.
            is_taken = any(each.planned == at for each in others)
            if has_passed or is_taken or not transaction.adopt(draft):
                return False
            if ingest.planned is not None and ingest.planned < at:
                if self.table.elapsed_s() > until:
                    self._stand_still()
                    return False
                self.table.pause(_LOOK_EVERY_S)
                continue
            try:
                transaction.commit((), stamp)
            except StaleEpoch:
                # It is said of each number that another has taken; that of ingest is no later epoch.
                taken = self.table.number_taken(stamp.application)
                if taken > stamp.number:
                    raise
                if taken < stamp.number:
                    continue
            except TABLE_CHANGED:
                return False
            return True

    def _stand_still(self) -> None:
        """Note that a planned micro-batch does not come, so that the next attempt lies before it.

        Raises:
            InfrastructureError: That attempt lay behind it all the same, since other ingests have gone on.
        """
        if self.stands_still:
            raise InfrastructureError(
                f"{self.path}: ingest_stream has planned a micro-batch and does not commit it, while those of"
                " other clusters have committed later ones, so a chunk cannot come before it; start that"
                " ingest_stream, or wait until it has, and start again: what was written stays"
            )
        self.stands_still = True

    def _require_same_retention(self) -> None:
        """Make sure that retention has not begun to remove what this would bring back."""
        if self.table.whole_from() != self.whole_from:
            raise InfrastructureError(
                f"{self.path}: maintain has removed old records from it since this run began; start again:"
                " what was written stays"
            )


def newest_ingestion(table: BackfillTable[Any]) -> datetime:
    """Return the newest ingestion in bronze; what came before the last micro-batch of ingest is not read."""
    committed = _committed(table, table.begin())
    return max(committed, table.newest_since(committed) or ALWAYS)


def _committed(table: BackfillTable[Any], transaction: AppendTransaction) -> datetime:
    """Return when the last micro-batch that an ingest has committed was planned."""
    return max(_ingest(each, transaction).committed for each in (table, *table.others()))


def _ingest(checkpoint: IngestCheckpoint, transaction: AppendTransaction) -> _Ingest:
    """Return where an ingest is; its next commit is then a conflict for the transaction."""
    query = checkpoint.files().query
    if query is None:
        return _Ingest()
    batch = transaction.number_taken(query)
    committed, planned = (checkpoint.plan(number) for number in (batch, batch + 1))
    return _Ingest(committed.at if committed else ALWAYS, planned.at if planned else None)
