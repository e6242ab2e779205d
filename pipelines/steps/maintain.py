"""Upkeep: compact small files, and remove old rows and files that nothing needs any longer."""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final, Literal

from pyspark.sql import functions as F

from pipelines.config.streams import LAYERS, Layer
from pipelines.delta.clocks import require_not_ahead
from pipelines.delta.commits import changes_nothing
from pipelines.delta.epochs import Stamp
from pipelines.delta.fencing import Restored
from pipelines.delta.reader_position_check import require_not_read_ahead
from pipelines.delta.record_tables import require_table
from pipelines.delta.stream_position import first_unread_version, unread_rows
from pipelines.delta.tables import exists, version
from pipelines.delta.upkeep import (
    DELTAS_OWN,
    Files,
    committed_at,
    compact,
    delete_rows,
    old_files,
    refuse_deletes,
    small_files,
    vacuum,
)
from pipelines.ledger.bronze_indexer import require_known_offsets
from pipelines.ledger.certifications import certified, history
from pipelines.ledger.index_folding import fold_index
from pipelines.ledger.leases import Lease, backfill_lease, lease
from pipelines.ledger.ops_tables import BRONZE_INDEX, OPS_TABLES, rows_of
from pipelines.ledger.quarantine import quarantine_broken
from pipelines.ledger.retention_properties import require_cut_known
from pipelines.nightly.recovery import back_to_certified, holds_certified
from pipelines.publishing.micro_batch import source_positions
from pipelines.publishing.published_days import TopicOfAnotherTable, may_wait, settled_so_far
from pipelines.publishing.settled import Settled
from pipelines.retention.removal import SparkRetentionLake
from pipelines.retention.removal_terms import Removal
from pipelines.retention.upkeep_run import Looked, TableFiles, UpkeepFinding, upkeep_under_lease
from pipelines.spark.checkpoints import query_files
from pipelines.spark.pipeline import Pipeline

_HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True)
class Upkeep:
    """What upkeep has done.

    Attributes:
        findings: What it did and what it left, in this order.
    """

    findings: tuple[UpkeepFinding, ...]


def maintain(
    pipeline: Pipeline,
    run_id: str,
    *,
    dry_run: bool,
    vacuum_now: bool = False,
) -> Upkeep:
    """Put small files together; remove rows that are past their retention, and files of old versions.

    What a certified day, the look back of the nightly run, the speed stream or a replay still needs stays.

    Args:
        pipeline: The pipeline.
        run_id: The holder of the lease meanwhile.
        dry_run: Count, and change nothing.
        vacuum_now: Do not wait for `maintain.vacuum_after` with files that only earlier versions need.

    Raises:
        InfrastructureError: Another run holds the lease, or rewrote the same files; or the clock is ahead.
        SourceError: There is no bronze; or a table was restored, and its reader was not.
    """
    require_table(pipeline, "bronze")
    _require_fit(pipeline)
    findings = [*_compact_layers(_Work(pipeline, None, dry_run, vacuum_now))]
    with nullcontext() if dry_run else lease(pipeline, run_id, "maintain") as run_lease:
        findings += upkeep_under_lease(_Work(pipeline, run_lease, dry_run, vacuum_now))
    return Upkeep(tuple(findings))


def _require_fit(pipeline: Pipeline) -> None:
    require_not_ahead(pipeline)
    # Commits of upkeep would bring a restored table to versions that its reader has read already.
    require_not_read_ahead(pipeline, *LAYERS)


@dataclass(frozen=True)
class _Work(SparkRetentionLake):
    """One run of upkeep, see `pipelines.retention.upkeep_run.UpkeepLake`.

    Attributes:
        lease: The run's lease; None in a dry run, and before it is taken.
        is_dry_run: Whether it only looks.
        vacuum_now: Whether files of earlier versions go at once.
    """

    lease: Lease | None
    is_dry_run: bool
    vacuum_now: bool

    @property
    def oldest_kept(self) -> datetime:
        """The time before which files that commits have removed may go."""
        after = timedelta() if self.vacuum_now else self.pipeline.config.maintain.vacuum_after
        return datetime.now(UTC) - after

    def require_lease(self) -> None:
        """Require that the run still holds its lease, if it has taken one."""
        if self.lease:
            self.lease.require()

    def refuse_deletes(self) -> None:
        """Make bronze refuse deletes: a run that died while it deleted has left them allowed."""
        if self.lease:
            refuse_deletes(self.pipeline.spark, self.pipeline.table("bronze"))

    def restore_certified(self) -> Restored | None:
        """Restore the batch table to the certified version, unless it is a dry run; see `UpkeepLake`."""
        pipeline = self.pipeline
        require_cut_known(pipeline, history(pipeline))
        if not self.has("batch"):
            # Refused where days are certified: what they were made of is kept.
            certified(pipeline)
            return None
        if self.lease is None:
            return Restored(self.version("batch"), not holds_certified(pipeline))
        return back_to_certified(pipeline, certified(pipeline), self.lease.stamp("undo"))

    def days_with_later_records(self) -> Collection[date]:
        """Return certified days of which records came later; a dry run makes no index to find them."""
        if self.is_dry_run and not BRONZE_INDEX.exists(self.pipeline):
            return ()
        return super().days_with_later_records()

    def require_known_offsets(self) -> bool:
        """Make sure that bronze has every record that nightly runs have seen; see `UpkeepLake`."""
        return require_known_offsets(self.pipeline)

    def hold_backfills(self) -> AbstractContextManager[Lease]:
        """Hold the lease of backfills, and claim bronze for its epoch; see `UpkeepLake`."""
        return backfill_lease(self.pipeline, self._held.run_id, "maintain")

    def quarantine_broken(self, condition: str) -> None:
        """Put records of bronze that break the contract in quarantine, if they are not there."""
        quarantine_broken(self.pipeline, condition)

    def stamp(self, what: str) -> Stamp:
        """Return what the run's next commit carries."""
        return self._held.stamp(what)

    def delete(self, layer: Layer, removal: Removal, stamps: Callable[[str], Stamp]) -> None:
        """Delete rows of a table, by commits that carry stamps."""
        table = self.pipeline.table(layer)
        delete_rows(self.pipeline.spark, table, removal.condition, removal.properties, stamps)

    def version(self, layer: Layer) -> int:
        """Return the newest version of a table."""
        return version(self.pipeline.spark, self.pipeline.table(layer))

    def compact(self, layer: Layer, where: str | None = None) -> Iterator[TableFiles]:
        """Put small files of a table together."""
        yield from self._compact(self.pipeline.table(layer), where)

    def fold_index(self) -> int:
        """Fold what of the index is old; return how many rows fewer it has."""
        return fold_index(self.pipeline, self.lease)

    def compact_ledgers(self) -> Iterator[TableFiles]:
        """Put small files of the pipeline's tables under `ops/` together."""
        for spec in OPS_TABLES:
            if spec.is_compacted:
                # The rest belongs to pipelines whose runs may be at work now.
                yield from self._compact(spec.path(self.pipeline), rows_of(self.pipeline))

    def is_behind(self, layer: Layer) -> bool:
        """Return whether the stream that reads a table still needs files that are old enough to go."""
        return layer in READER_IS_BEHIND and READER_IS_BEHIND[layer](self)

    def vacuum(self, layer: Layer, looked: Looked) -> Iterator[TableFiles]:
        """Remove files of a table that no version since `maintain.vacuum_after` needs; see `UpkeepLake`."""
        # Delta counts from now, in hours.
        stalled = (self.now() - looked.at) // _HOUR * _HOUR
        after = self.config.maintain.vacuum_after + stalled
        yield from self._vacuum(self.pipeline.table(layer), after, looked.version)

    def vacuum_others(self) -> Iterator[TableFiles]:
        """Do so for the serving table, and for tables under `ops/`."""
        after = self.config.maintain.vacuum_after
        if self.config.serving.table:
            self.require_lease()
            yield from self._vacuum(self.config.serving_table, after)
        for spec in OPS_TABLES:
            if spec.is_vacuumed:
                self.require_lease()
                # Shared by all pipelines, so no property of them is changed for one.
                yield from self._vacuum(spec.path(self.pipeline), min(after, DELTAS_OWN))

    def _compact(self, path: str, where: str | None = None) -> Iterator[TableFiles]:
        spark = self.pipeline.spark
        if self.config.maintain.compact and exists(spark, path):
            files = (small_files if self.is_dry_run else compact)(spark, path, where)
            yield from self._table_files("compacted", path, files)

    @property
    def _held(self) -> Lease:
        if self.lease is None:
            raise RuntimeError("a dry run changes nothing")
        return self.lease

    def _vacuum(self, path: str, after: timedelta, until: int | None = None) -> Iterator[TableFiles]:
        spark = self.pipeline.spark
        if exists(spark, path):
            at_once = (version(spark, path) if until is None else until) if self.vacuum_now else None
            files = (old_files if self.is_dry_run else vacuum)(spark, path, after, at_once)
            yield from self._table_files("removed", path, files)

    def _table_files(
        self, what: Literal["compacted", "removed"], path: str, files: Files
    ) -> Iterator[TableFiles]:
        if files.count:
            yield TableFiles(path.removeprefix(f"{self.config.root}/"), what, files)


def _compact_layers(work: _Work) -> Iterator[UpkeepFinding]:
    """Put small files together that streams have written."""
    yield from work.compact("bronze")
    # Past days get few rows more.
    today = datetime.now(work.zone).date()
    yield from work.compact("speed", f"_event_date < DATE'{today}'")


def _speed_stream_is_behind(work: _Work) -> bool:
    """Return whether the speed stream has yet to read records of bronze older than files are kept."""
    pipeline = work.pipeline
    oldest = unread_rows(pipeline).agg(F.min("_ingested_at").alias("t")).first()
    unread_since: datetime | None = oldest["t"].astimezone(UTC) if oldest and oldest["t"] else None
    if unread_since is not None and unread_since > datetime.now(UTC):
        # Ingest's clock was ahead.
        first = first_unread_version(pipeline)
        unread_since = committed_at(pipeline.spark, pipeline.table("bronze"), first) if first else None
    return unread_since is not None and unread_since < work.oldest_kept


def _publisher_is_behind(work: _Work) -> bool:
    """Return whether publish_stream, if configured, has yet to read such commits of the speed layer."""
    pipeline = work.pipeline
    spark, table = pipeline.spark, pipeline.table("speed")
    if pipeline.config.publish is None or not exists(spark, table):
        return False
    unread = first_unread_version(pipeline, "publish")
    if unread is None:
        return True
    has_read = changes_nothing(spark, table, unread - 1, version(spark, table))
    is_unread_old = not has_read and committed_at(spark, table, unread) < work.oldest_kept
    return is_unread_old or _batch_in_flight_reads_old_files(work, table)


def _batch_in_flight_reads_old_files(work: _Work, speed: str) -> bool:
    """Return whether a micro-batch in flight may read files that were removed that long ago.

    It reads the speed layer at the version that it was planned with, also when it is tried again.
    """
    pipeline = work.pipeline
    batch = query_files(pipeline.spark, pipeline.checkpoint("publish")).in_flight
    position = None if batch is None else source_positions(pipeline, batch)[0]
    if position is None or position.last >= version(pipeline.spark, speed):
        return False
    # Also a commit that changes no row has removed files, if it put small ones together.
    return committed_at(pipeline.spark, speed, position.last + 1) < work.oldest_kept


def _corrections_are_behind(work: _Work) -> bool:
    """Return whether publish_stream, if configured, has yet to publish what was certified that long ago."""
    pipeline = work.pipeline
    if not may_wait(pipeline):
        return False
    try:
        settled = settled_so_far(pipeline) or Settled()
    except TopicOfAnotherTable:
        return True
    # What the topic follows loses files from the next commit on, long before a verdict is given.
    return committed_at(pipeline.spark, pipeline.table("batch"), settled.version + 1) < work.oldest_kept


READER_IS_BEHIND: Final[dict[Layer, Callable[[_Work], bool]]] = {
    "bronze": _speed_stream_is_behind,
    "batch": _corrections_are_behind,
    "speed": _publisher_is_behind,
}
"""Whether the stream that reads a table still needs files that are old enough to go."""
