"""Backfills beside upkeep: their lease, and what they bring to bronze."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from pipelines.delta.backfill_writer import BackfillWriter, IngestCheckpoint, newest_ingestion
from pipelines.delta.table_properties import WHOLE_FROM
from pipelines.ledger.lease_terms import LeaseTerm
from pipelines.spark.checkpoints import QueryFiles
from simulation.backfill import LeaseRow, hold_row
from simulation.ingest import BronzeTransaction, Row, rows_of
from simulation.kernel import Process
from simulation.nightly import ModelMachine
from simulation.retention_lake import AgingLake
from simulation.topic import Sent


@contextmanager
def hold_backfills(world: AgingLake, process: Process) -> Iterator[LeaseTerm]:
    """Hold the lease of backfills, as `pipelines.ledger.leases.backfill_lease`; nobody renews it."""
    leases, bronze = world.table(world.backfills), world.table(world.bronze_log)
    with hold_row(LeaseRow(leases, bronze), bronze, ModelMachine(world, process), process.name) as term:
        yield term


class ModelBronze:
    """What a backfill writes to, see `pipelines.delta.backfill_writer.BackfillTable`; ingest stands still."""

    def __init__(self, world: AgingLake) -> None:
        self.world, self.bronze, self.kernel = world, world.bronze_log, world.kernel

    def begin(self) -> BronzeTransaction:
        """Begin a transaction."""
        return BronzeTransaction(self)  # type: ignore[arg-type]

    def write(self, draft: BronzeTransaction, records: Sequence[Sent], at: datetime) -> int:
        """Write records as of a moment to a file that no commit names; return how many."""
        return draft.write(tuple(Row(record, at) for record in records))

    def files(self) -> QueryFiles:
        """There is no query."""
        return QueryFiles("checkpoint", None, 0, None, {})

    def plan(self, batch: int) -> None:
        """There is none."""

    def others(self) -> Sequence[IngestCheckpoint]:
        """Return none: there is one cluster."""
        return ()

    def newest_since(self, moment: datetime) -> datetime | None:
        """Return the newest ingestion in bronze."""
        rows: list[Row] = self.kernel.effect("bronze: newest ingestion", lambda: rows_of(self.bronze))
        return max((row.ingested_at for row in rows), default=None)

    def whole_from(self) -> str | None:
        """Return what bronze says of the first day that retention has left whole."""
        found: str | None = self.kernel.effect(
            "bronze: whole from", lambda: self.bronze.newest.properties.get(WHOLE_FROM)
        )
        return found

    def number_taken(self, application: str) -> int:
        """Return the last number of an application that bronze has taken."""
        return self.begin().number_taken(application)

    def now(self) -> datetime:
        """Return the time."""
        return self.world.time()

    def elapsed_s(self) -> float:
        """Return the seconds of the kernel."""
        return self.kernel.now

    def pause(self, seconds: float) -> None:
        """Wait."""
        self.kernel.sleep(1, "backfill: waits")


def copy_lost(world: AgingLake, process: Process) -> None:
    """Append to bronze what it lacks, as `pipelines.kafka.backfill_run.copy_missing` does."""
    table = ModelBronze(world)
    whole_from = table.whole_from()
    with hold_backfills(world, process) as term:
        held = world.kernel.effect("bronze: what it lacks", lambda: rows_of(world.bronze_log))
        offsets = {(row.record.partition, row.record.offset) for row in held}
        first = {n: min(at for number, at in offsets if number == n) for n, _ in offsets}
        lacking = [
            record
            for record in world.lost
            if (record.partition, record.offset) not in offsets
            # What retention has removed is not read again.
            and (whole_from is None or record.offset >= first.get(record.partition, 0))
        ]
        writer = BackfillWriter("bronze", 2, table, newest_ingestion(table), whole_from, term.require)
        if lacking:
            writer.append(lacking, term.stamp("backfill"))
