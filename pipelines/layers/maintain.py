"""Upkeep: small files put together, old rows and files removed, unless something still needs them."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.config import PipelineConfig
from pipelines.contract import DataContract
from pipelines.ops.certification import certified
from pipelines.ops.lease import Lease, lease
from pipelines.ops.leftovers import back_to_certified, holds_certified
from pipelines.ops.published_days import Settled, settled_so_far, waiting
from pipelines.ops.removal import Removal, from_bronze, from_quarantine, from_speed
from pipelines.ops.stream_position import first_unread_version, unread_rows
from pipelines.sinks.tables import exists, require_table, version
from pipelines.sinks.upkeep import (
    Files,
    committed_at,
    compact,
    delete_rows,
    old_files,
    refuse_deletes,
    small_files,
    vacuum,
)
from pipelines.sql_text import literal

Layer = Literal["bronze", "speed", "batch", "quarantine"]

# Shared by all pipelines of a lake, and divided by pipeline.
_LEDGERS: Final = (
    "bronze_index",
    "certifications",
    "validation_results",
    "runs",
    "layer_samples",
    "published_days",
    "publications",
)
_COUNTS: Final = (
    *("files_compacted", "bytes_compacted"),
    *("bronze_rows", "speed_rows", "quarantine_rows"),
    *("files_removed", "bytes_removed"),
)


def maintain(
    spark: SparkSession, config: PipelineConfig, contract: DataContract, run_id: str, *, dry_run: bool
) -> dict[str, Any]:
    """Puts small files together; removes rows that are past their retention, and files of old versions.

    What a certified day, the look back of the nightly run, the speed stream or a replay still needs stays,
    and the summary says why.

    Args:
        spark: the session.
        config: the pipeline's configuration.
        contract: tells the event day of a record, and which records are valid.
        run_id: the holder of the lease meanwhile.
        dry_run: count, and change nothing.

    Returns:
        `counts`: files and bytes put together and removed, rows removed from each table; `lines`.

    Raises:
        InfrastructureError: another run holds the pipeline's lease, or others rewrote the same files.
        SourceError: there is no bronze.
    """
    require_table(spark, config, "bronze")
    work = _Work(spark, config, contract, dry_run)
    work.compact(config.table("bronze"))
    # Days that are over get few rows more.
    work.compact(config.table("speed"), f"_event_date < DATE'{datetime.now(contract.zone).date()}'")
    with nullcontext() if dry_run else lease(spark, config, run_id) as held:
        work.held = held
        if held:
            # A run that died while it deleted has left the table open.
            refuse_deletes(spark, config.table("bronze"))
        is_certified = work.bring_back()
        # The quarantine after bronze, by which it goes.
        work.remove_rows("bronze", config.maintain.bronze_retention)
        work.remove_rows("speed", config.maintain.speed_retention)
        work.remove_rows("quarantine", config.maintain.quarantine_retention)
        work.compact(config.table("quarantine"))
        for table in map(config.ops_table, _LEDGERS):
            # The rest belongs to pipelines whose runs may be at work now.
            work.compact(table, f"pipeline = {literal(config.name)}")
        if work.may_lose_files_of_bronze():
            work.vacuum("bronze")
        if is_certified and work.may_lose_files_of_batch():
            work.vacuum("batch")
        if work.may_lose_files_of_speed():
            work.vacuum("speed")
        work.vacuum("quarantine")
    return {"counts": work.counts, "lines": work.lines}


@dataclass
class _Work:
    """One run, and what it has counted so far."""

    spark: SparkSession
    config: PipelineConfig
    contract: DataContract
    dry_run: bool
    held: Lease | None = None
    lines: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTS, 0))

    def compact(self, path: str, where: str | None = None) -> None:
        """Puts small files of a table together."""
        if self.config.maintain.compact:
            look = small_files if self.dry_run else compact
            self._count("compacted", path, lambda: look(self.spark, path, where))

    def vacuum(self, layer: Layer) -> None:
        """Removes files that no version since `vacuum_after` needs."""
        if self.held:
            self.held.require()
        path, after = self.config.table(layer), self.config.maintain.vacuum_after
        look = old_files if self.dry_run else vacuum
        self._count("removed", path, lambda: look(self.spark, path, after))

    def _count(self, what: str, path: str, work: Callable[[], Files]) -> None:
        if not exists(self.spark, path):
            return
        files = work()
        self.counts[f"files_{what}"] += files.count
        self.counts[f"bytes_{what}"] += files.bytes
        if files.count:
            table = path.removeprefix(f"{self.config.root}/")
            self.lines.append(f"{table}: files {what}: {files.count:,} ({files.bytes:,} bytes)")

    def bring_back(self) -> bool:
        """Brings the batch table back to the certified version; whether it holds it now.

        Before that, files of the certified version count as old.
        """
        if not exists(self.spark, self.config.table("batch")):
            return False
        if self.held is None:
            is_left_over = not holds_certified(self.spark, self.config)
        else:
            state = certified(self.spark, self.config)
            _, is_left_over = back_to_certified(self.spark, self.config, state, self.held)
        if is_left_over:
            self.lines.append("batch: a run died before it decided; first back to the certified version")
        return not (is_left_over and self.dry_run)

    def may_lose_files_of_bronze(self) -> bool:
        """Whether the speed stream has read bronze up to a version that is younger than files are kept."""
        oldest = unread_rows(self.spark, self.config).agg(F.min("_ingested_at").alias("t")).first()
        since = datetime.now(UTC) - self.config.maintain.vacuum_after
        if oldest is None or oldest["t"] is None or oldest["t"].astimezone(UTC) >= since:
            return True
        self.lines.append(
            "bronze: no file removed: speed_stream has not read it for longer than maintain.vacuum_after"
        )
        return False

    def may_lose_files_of_speed(self) -> bool:
        """Whether publishing, if the pipeline does so, has read the speed layer up to a version as young."""
        table = self.config.table("speed")
        if self.config.publish is None or not exists(self.spark, table):
            return True
        unread = first_unread_version(self.spark, self.config, "publish")
        newest = version(self.spark, table)
        since = datetime.now(UTC) - self.config.maintain.vacuum_after
        if unread is not None and (unread > newest or committed_at(self.spark, table, unread) >= since):
            return True
        self.lines.append(
            "speed: no file removed: publish_stream has not read it, or not for longer than"
            " maintain.vacuum_after"
        )
        return False

    def may_lose_files_of_batch(self) -> bool:
        """Whether publishing, if the pipeline does so, has come to what was certified that long ago."""
        if not waiting(self.spark, self.config):
            return True
        settled = settled_so_far(self.spark, self.config) or Settled()
        since = datetime.now(UTC) - self.config.maintain.vacuum_after
        # What the topic follows loses files from the next commit on, long before a verdict is given.
        if committed_at(self.spark, self.config.table("batch"), settled.version + 1) >= since:
            return True
        self.lines.append(
            "batch: no file removed: publish_stream has not come to what was certified for longer than"
            " maintain.vacuum_after"
        )
        return False

    def remove_rows(self, layer: Layer, retention: timedelta | None) -> None:
        """Removes the rows of a table that are past their retention."""
        if retention is None:
            return
        removal = self._removal(layer, retention)
        self.counts[f"{layer}_rows"] = removal.rows
        self.lines += removal.lines
        if self.held and removal.rows:
            self.held.require()
            delete_rows(self.spark, self.config.table(layer), removal.condition, removal.properties)

    def _removal(self, layer: Layer, retention: timedelta) -> Removal:
        if layer == "bronze":
            return from_bronze(self.spark, self.config, self.contract, retention)
        return (from_speed if layer == "speed" else from_quarantine)(self.spark, self.config, retention)
