"""Upkeep: compact small files, and remove old rows and files that nothing needs any longer."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, get_args

from pyspark.sql import functions as F

from pipelines.delta.clocks import require_not_ahead
from pipelines.delta.commits import changes_nothing
from pipelines.delta.read_ahead import require_not_read_ahead
from pipelines.delta.stream_position import first_unread_version, unread_rows
from pipelines.delta.tables import exists, require_table, version
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
from pipelines.ledger.catalog import CATALOG
from pipelines.ledger.certifications import certified
from pipelines.ledger.index_folding import fold_index
from pipelines.ledger.leases import Lease, lease
from pipelines.nightly.recovery import back_to_certified, holds_certified
from pipelines.publishing.published_days import Settled, settled_so_far, waiting
from pipelines.retention.removal import Removal, from_bronze, from_quarantine, from_speed
from pipelines.spark.pipeline import Pipeline
from pipelines.sql import literal

Layer = Literal["bronze", "speed", "batch", "quarantine"]
_LAYERS: Final = get_args(Layer)

_COUNTS: Final = (
    *("files_compacted", "bytes_compacted"),
    *("bronze_rows", "speed_rows", "quarantine_rows", "index_rows"),
    *("files_removed", "bytes_removed"),
)


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


Finding = TableFiles | LeftOver | OldRows | FoldedIndex | KeptFiles


@dataclass(frozen=True)
class Upkeep:
    """What upkeep has done.

    Attributes:
        counts: Files and bytes put together and removed, rows removed from each table.
        findings: What it did and what it left, in this order.
    """

    counts: dict[str, int]
    findings: list[Finding]


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
    config = pipeline.config
    require_table(pipeline, "bronze")
    _require_fit(pipeline)
    work = _Work(pipeline, dry_run, vacuum_now)
    work.compact(pipeline.table("bronze"))
    # Days that are over get few rows more.
    work.compact(
        pipeline.table("speed"), f"_event_date < DATE'{datetime.now(pipeline.contract.zone).date()}'"
    )
    with nullcontext() if dry_run else lease(pipeline, run_id) as run_lease:
        work.lease = run_lease
        if run_lease:
            # A run that died while it deleted has left the table open.
            refuse_deletes(pipeline.spark, pipeline.table("bronze"))
        is_certified = work.restore_certified()
        # The quarantine after bronze, by which it goes.
        work.remove_rows("bronze", config.maintain.bronze_retention)
        work.remove_rows("speed", config.maintain.speed_retention)
        work.remove_rows("quarantine", config.maintain.quarantine_retention)
        work.compact(pipeline.table("quarantine"))
        work.fold_index()
        work.compact_ledgers()
        work.vacuum(is_certified=is_certified)
    return Upkeep(work.counts, work.findings)


def _require_fit(pipeline: Pipeline) -> None:
    require_not_ahead(pipeline)
    # Commits of upkeep would bring a restored table to versions that its reader has read already.
    require_not_read_ahead(pipeline, "bronze", "speed")


@dataclass
class _Work:
    """One run, and what it has found so far."""

    pipeline: Pipeline
    dry_run: bool
    vacuum_now: bool
    lease: Lease | None = None
    findings: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTS, 0))

    @property
    def after(self) -> timedelta:
        """For how long a file stays that commits have removed."""
        return timedelta() if self.vacuum_now else self.pipeline.config.maintain.vacuum_after

    def compact(self, path: str, where: str | None = None) -> None:
        """Put small files of a table together."""
        if self.pipeline.config.maintain.compact:
            look = small_files if self.dry_run else compact
            self._count("compacted", path, lambda: look(self.pipeline.spark, path, where))

    def compact_ledgers(self) -> None:
        """Put small files of the pipeline together in the ledgers that all pipelines share."""
        for spec in CATALOG:
            if spec.is_compacted:
                # The rest belongs to pipelines whose runs may be at work now.
                self.compact(self.pipeline.ops_table(spec.name), f"pipeline = {literal(self.pipeline.name)}")

    def fold_index(self) -> None:
        """Fold the micro-batches of the index that are old."""
        fewer = self.counts["index_rows"] = fold_index(self.pipeline, self.lease)
        if fewer:
            self.findings.append(FoldedIndex(fewer))

    def vacuum(self, *, is_certified: bool) -> None:
        """Remove files that no version since `vacuum_after` needs.

        Args:
            is_certified: whether the batch table holds the certified version.
        """
        may_lose = {
            "bronze": self.may_lose_files_of_bronze(),
            "batch": is_certified and self.may_lose_files_of_batch(),
            "speed": self.may_lose_files_of_speed(),
            "quarantine": True,
        }
        for layer in _LAYERS:
            if may_lose[layer]:
                self._vacuum(self.pipeline.table(layer), self.pipeline.config.maintain.vacuum_after)
        # Shared by all pipelines, so no property of them is changed for one.
        after = min(self.pipeline.config.maintain.vacuum_after, DELTAS_OWN)
        for spec in CATALOG:
            if spec.is_vacuumed:
                self._vacuum(self.pipeline.ops_table(spec.name), after)

    def _vacuum(self, path: str, after: timedelta) -> None:
        if self.lease:
            self.lease.require()
        look = old_files if self.dry_run else vacuum
        self._count("removed", path, lambda: look(self.pipeline.spark, path, after, now=self.vacuum_now))

    def _count(self, what: Literal["compacted", "removed"], path: str, work: Callable[[], Files]) -> None:
        if not exists(self.pipeline.spark, path):
            return
        files = work()
        self.counts[f"files_{what}"] += files.count
        self.counts[f"bytes_{what}"] += files.bytes
        if files.count:
            table = path.removeprefix(f"{self.pipeline.config.root}/")
            self.findings.append(TableFiles(table, what, files))

    def restore_certified(self) -> bool:
        """Restore the batch table to the certified version, if a run has left another one.

        Until then files of the certified version count as old.

        Returns:
            Whether the table holds the certified version now.
        """
        if not exists(self.pipeline.spark, self.pipeline.table("batch")):
            # Refused where days are certified: what they were made of is kept.
            certified(self.pipeline)
            return False
        if self.lease is None:
            is_left_over = not holds_certified(self.pipeline)
        else:
            state = certified(self.pipeline)
            _, is_left_over = back_to_certified(self.pipeline, state, self.lease)
        if is_left_over:
            self.findings.append(LeftOver(is_restored=not self.dry_run))
        return not (is_left_over and self.dry_run)

    def may_lose_files_of_bronze(self) -> bool:
        """Return whether the speed stream has read bronze up to a version younger than files are kept."""
        oldest = unread_rows(self.pipeline).agg(F.min("_ingested_at").alias("t")).first()
        since = datetime.now(UTC) - self.after
        if oldest is None or oldest["t"] is None or oldest["t"].astimezone(UTC) >= since:
            return True
        self.findings.append(KeptFiles("bronze"))
        return False

    def may_lose_files_of_speed(self) -> bool:
        """Return whether publish_stream, if configured, has read the speed layer up to such a version."""
        spark = self.pipeline.spark
        table = self.pipeline.table("speed")
        if self.pipeline.config.publish is None or not exists(spark, table):
            return True
        unread = first_unread_version(self.pipeline, "publish")
        newest = version(spark, table)
        since = datetime.now(UTC) - self.after
        if unread is not None and (
            changes_nothing(spark, table, unread - 1, newest) or committed_at(spark, table, unread) >= since
        ):
            return True
        self.findings.append(KeptFiles("speed"))
        return False

    def may_lose_files_of_batch(self) -> bool:
        """Return whether publish_stream, if configured, has published what was certified that long ago."""
        if not waiting(self.pipeline):
            return True
        settled = settled_so_far(self.pipeline) or Settled()
        since = datetime.now(UTC) - self.after
        # What the topic follows loses files from the next commit on, long before a verdict is given.
        if committed_at(self.pipeline.spark, self.pipeline.table("batch"), settled.version + 1) >= since:
            return True
        self.findings.append(KeptFiles("batch"))
        return False

    def remove_rows(self, layer: Layer, retention: timedelta | None) -> None:
        """Remove the rows of a table that are past their retention."""
        if retention is None:
            return
        removal = self._removal(layer, retention)
        self.counts[f"{layer}_rows"] = removal.rows
        self.findings.append(OldRows(layer, removal))
        if self.lease and removal.rows:
            self.lease.require()
            delete_rows(
                self.pipeline.spark, self.pipeline.table(layer), removal.condition, removal.properties
            )

    def _removal(self, layer: Layer, retention: timedelta) -> Removal:
        if layer == "bronze":
            return from_bronze(self.pipeline, retention)
        return (from_speed if layer == "speed" else from_quarantine)(self.pipeline, retention)
