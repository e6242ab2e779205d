"""Upkeep: compact small files, and remove old rows and files that nothing needs any longer."""

from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from pyspark.sql import functions as F

from pipelines.config.streams import LAYERS, Layer
from pipelines.delta.clocks import require_not_ahead
from pipelines.delta.commits import changes_nothing
from pipelines.delta.read_ahead import require_not_read_ahead
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
from pipelines.ledger.catalog import CATALOG, rows_of
from pipelines.ledger.certifications import certified
from pipelines.ledger.index_folding import fold_index
from pipelines.ledger.leases import Lease, lease
from pipelines.nightly.recovery import back_to_certified, holds_certified
from pipelines.publishing.published_days import Settled, settled_so_far, waiting
from pipelines.retention.removal import Removal, from_bronze, from_quarantine, from_speed
from pipelines.spark.pipeline import Pipeline


@dataclass(frozen=True)
class TableFiles:
    """Files of a table that were put together, or removed.

    Attributes:
        table: The table's path below `lake.root`.
        what: What was done.
        files: How many, and their bytes.
    """

    table: str
    what: Literal["compacted", "removed"]
    files: Files


@dataclass(frozen=True)
class LeftOver:
    """A run that died before it decided had left the batch table in another state than the certified one.

    Attributes:
        is_restored: Whether the table is as it was certified now; not in a dry run.
    """

    is_restored: bool


@dataclass(frozen=True)
class OldRows:
    """Rows of a table past their retention: those that were removed, and what keeps others.

    Attributes:
        layer: The table.
        removal: The rows.
    """

    layer: Layer
    removal: Removal


@dataclass(frozen=True)
class FoldedIndex:
    """How many rows fewer the index has, since old micro-batches were folded."""

    rows: int


@dataclass(frozen=True)
class KeptFiles:
    """A table of which no file was removed, since its reader has not come so far."""

    layer: Layer


UpkeepFinding = TableFiles | LeftOver | OldRows | FoldedIndex | KeptFiles


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
        run_id: the holder of the lease meanwhile.
        dry_run: count, and change nothing.
        vacuum_now: do not wait for `maintain.vacuum_after` with files that only earlier versions need.

    Raises:
        InfrastructureError: another run holds the lease, or rewrote the same files; or the clock is ahead.
        SourceError: there is no bronze; or a table was restored, and its reader was not.
    """
    require_table(pipeline, "bronze")
    _require_fit(pipeline)
    findings = [*_compact_layers(_Work(pipeline, None, dry_run, vacuum_now))]
    with nullcontext() if dry_run else lease(pipeline, run_id) as run_lease:
        findings += _under_lease(_Work(pipeline, run_lease, dry_run, vacuum_now))
    return Upkeep(tuple(findings))


def _require_fit(pipeline: Pipeline) -> None:
    require_not_ahead(pipeline)
    # Commits of upkeep would bring a restored table to versions that its reader has read already.
    require_not_read_ahead(pipeline, *LAYERS)


@dataclass(frozen=True)
class _Work:
    """What each part of a run of upkeep needs to know.

    Attributes:
        pipeline: The pipeline.
        lease: The run's lease; None in a dry run, and before it is taken.
        dry_run: Whether it only looks.
        vacuum_now: Whether files of earlier versions go at once.
    """

    pipeline: Pipeline
    lease: Lease | None
    dry_run: bool
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


def _compact_layers(work: _Work) -> Iterator[UpkeepFinding]:
    """Put small files together that streams have written."""
    pipeline = work.pipeline
    yield from _compact(work, pipeline.table("bronze"))
    # Past days get few rows more.
    today = datetime.now(pipeline.contract.zone).date()
    yield from _compact(work, pipeline.table("speed"), f"_event_date < DATE'{today}'")


def _under_lease(work: _Work) -> Iterator[UpkeepFinding]:
    """Do what must not meet a nightly run."""
    pipeline, keep = work.pipeline, work.pipeline.config.maintain
    if work.lease:
        # A run that died while it deleted has left deletes allowed.
        refuse_deletes(pipeline.spark, pipeline.table("bronze"))
    is_certified = yield from _restore_certified(work)
    # The quarantine after bronze, by which it goes.
    yield from _remove_rows(work, "bronze", keep.bronze_retention)
    yield from _remove_rows(work, "speed", keep.speed_retention)
    yield from _remove_rows(work, "quarantine", keep.quarantine_retention)
    yield from _compact(work, pipeline.table("quarantine"))
    if fewer := fold_index(pipeline, work.lease):
        yield FoldedIndex(fewer)
    for spec in CATALOG:
        if spec.is_compacted:
            # The rest belongs to pipelines whose runs may be at work now.
            yield from _compact(work, spec.path(pipeline), rows_of(pipeline))
    yield from _vacuum_tables(work, is_certified)


def _compact(work: _Work, path: str, where: str | None = None) -> Iterator[TableFiles]:
    """Put small files of a table together."""
    spark = work.pipeline.spark
    if work.pipeline.config.maintain.compact and exists(spark, path):
        files = (small_files if work.dry_run else compact)(spark, path, where)
        yield from _table_files(work.pipeline, "compacted", path, files)


def _table_files(
    pipeline: Pipeline, what: Literal["compacted", "removed"], path: str, files: Files
) -> Iterator[TableFiles]:
    if files.count:
        yield TableFiles(path.removeprefix(f"{pipeline.config.root}/"), what, files)


def _restore_certified(work: _Work) -> Generator[UpkeepFinding, None, bool]:
    """Restore the batch table to the certified version, if a run has left another one.

    Until then files of the certified version count as old.

    Returns:
        Whether the table holds the certified version now.
    """
    pipeline = work.pipeline
    if not exists(pipeline.spark, pipeline.table("batch")):
        # Refused where days are certified: what they were made of is kept.
        certified(pipeline)
        return False
    if work.lease is None:
        is_left_over = not holds_certified(pipeline)
    else:
        is_left_over = back_to_certified(pipeline, certified(pipeline), work.lease.stamp("undo")).has_differed
    if is_left_over:
        yield LeftOver(is_restored=not work.dry_run)
    return not (is_left_over and work.dry_run)


def _remove_rows(work: _Work, layer: Layer, retention: timedelta | None) -> Iterator[OldRows]:
    """Remove the rows of a table that are past their retention."""
    if retention is None:
        return
    removal = _removal(work.pipeline, layer, retention)
    if work.lease and removal.rows:
        work.require_lease()
        delete_rows(work.pipeline.spark, work.pipeline.table(layer), removal.condition, removal.properties)
    yield OldRows(layer, removal)


def _removal(pipeline: Pipeline, layer: Layer, retention: timedelta) -> Removal:
    if layer == "bronze":
        return from_bronze(pipeline, retention)
    return (from_speed if layer == "speed" else from_quarantine)(pipeline, retention)


def _vacuum_tables(work: _Work, is_certified: bool) -> Iterator[UpkeepFinding]:
    """Remove files that no version since `vacuum_after` needs.

    Args:
        work: The run.
        is_certified: whether the batch table holds the certified version.
    """
    pipeline, after = work.pipeline, work.pipeline.config.maintain.vacuum_after
    behind = [
        layer
        for layer, is_behind in READER_IS_BEHIND.items()
        if (is_certified or layer != "batch") and is_behind(work)
    ]
    yield from map(KeptFiles, behind)
    for layer in LAYERS:
        if layer not in behind and (is_certified or layer != "batch"):
            yield from _vacuum(work, pipeline.table(layer), after)
    if pipeline.config.serving.table:
        yield from _vacuum(work, pipeline.config.serving_table, after)
    for spec in CATALOG:
        if spec.is_vacuumed:
            # Shared by all pipelines, so no property of them is changed for one.
            yield from _vacuum(work, spec.path(pipeline), min(after, DELTAS_OWN))


def _vacuum(work: _Work, path: str, after: timedelta) -> Iterator[TableFiles]:
    spark = work.pipeline.spark
    work.require_lease()
    if exists(spark, path):
        files = (old_files if work.dry_run else vacuum)(spark, path, after, now=work.vacuum_now)
        yield from _table_files(work.pipeline, "removed", path, files)


def _speed_stream_is_behind(work: _Work) -> bool:
    """Return whether the speed stream has yet to read records of bronze older than files are kept."""
    oldest = unread_rows(work.pipeline).agg(F.min("_ingested_at").alias("t")).first()
    unread_since: datetime | None = oldest["t"] if oldest else None
    return unread_since is not None and unread_since.astimezone(UTC) < work.oldest_kept


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
    return not has_read and committed_at(spark, table, unread) < work.oldest_kept


def _corrections_are_behind(work: _Work) -> bool:
    """Return whether publish_stream, if configured, has yet to publish what was certified that long ago."""
    pipeline = work.pipeline
    if not waiting(pipeline):
        return False
    settled = settled_so_far(pipeline) or Settled()
    # What the topic follows loses files from the next commit on, long before a verdict is given.
    return committed_at(pipeline.spark, pipeline.table("batch"), settled.version + 1) < work.oldest_kept


READER_IS_BEHIND: Final[dict[Layer, Callable[[_Work], bool]]] = {
    "bronze": _speed_stream_is_behind,
    "batch": _corrections_are_behind,
    "speed": _publisher_is_behind,
}
"""Whether the stream that reads a table still needs files that are old enough to go."""
