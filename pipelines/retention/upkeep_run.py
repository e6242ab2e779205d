"""What upkeep does while it holds the pipeline's lease, and in which order: the protocol, without Spark.

The tables are behind `UpkeepLake`. The job uses Delta (`pipelines.steps.maintain`); `simulation` uses models
of the tables.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, Protocol

from pipelines.config.streams import LAYERS, Layer
from pipelines.contracts.event_days import FIRST_DAY
from pipelines.delta.epochs import Stamp
from pipelines.delta.fencing import Restored
from pipelines.delta.upkeep import Files
from pipelines.ledger.lease_terms import LeaseHeld
from pipelines.ledger.retention_properties import first_day_by_age
from pipelines.retention.blockers import RetentionBlocker
from pipelines.retention.removal_terms import (
    Removal,
    RetentionLake,
    bronze_removal,
    is_due,
    quarantine_removal,
    speed_removal,
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


UpkeepFinding = TableFiles | LeftOver | OldRows | FoldedIndex | KeptFiles


@dataclass(frozen=True)
class Looked:
    """When a table was looked at: its version, and a moment before that."""

    version: int
    at: datetime


class UpkeepLease(Protocol):
    """A lease while it is held."""

    def require(self) -> None:
        """Make sure that the lease is still this run's."""

    def stamp(self, what: str) -> Stamp:
        """Return what the run's next commit carries."""


class UpkeepLake(RetentionLake, Protocol):
    """The tables of a pipeline, as a run of upkeep changes them."""

    @property
    def is_dry_run(self) -> bool:
        """Whether it only looks."""

    def require_lease(self) -> None:
        """Require that the run still holds its lease, if it has taken one."""

    def refuse_deletes(self) -> None:
        """Make bronze refuse deletes: a run that died while it deleted has left them allowed."""

    def restore_certified(self) -> Restored | None:
        """Restore the batch table to the certified version, unless it is a dry run.

        Returns:
            Whether it held another one, and which version it has now; None if there is no batch table.
        """

    def require_known_offsets(self) -> bool:
        """Make sure that bronze has every record that nightly runs have seen and that was not removed since.

        Returns:
            Whether nightly runs have seen all losses that bronze tells of.

        Raises:
            SourceError: It has not.
        """

    def hold_backfills(self) -> AbstractContextManager[UpkeepLease]:
        """Hold the lease of backfills, and claim bronze for its epoch.

        Raises:
            LeaseHeld: A backfill is at work.
        """

    def quarantine_broken(self, condition: str) -> None:
        """Put records of bronze that break the contract in quarantine, if they are not there.

        Args:
            condition: The records that are looked at, in SQL.
        """

    def stamp(self, what: str) -> Stamp:
        """Return what the run's next commit carries."""

    def delete(self, layer: Layer, removal: Removal, stamps: Callable[[str], Stamp]) -> None:
        """Delete rows of a table, by commits that carry stamps."""

    def version(self, layer: Layer) -> int:
        """Return the newest version of a table."""

    def compact(self, layer: Layer) -> Iterable[TableFiles]:
        """Put small files of a table together."""

    def fold_index(self) -> int:
        """Fold what of the index is old; return how many rows fewer it has."""

    def compact_ledgers(self) -> Iterable[TableFiles]:
        """Put small files of the pipeline's tables under `ops/` together."""

    def is_behind(self, layer: Layer) -> bool:
        """Return whether the stream that reads a table still needs files that are old enough to go."""

    def vacuum(self, layer: Layer, looked: Looked) -> Iterable[TableFiles]:
        """Remove files of a table that no version since `maintain.vacuum_after` needs.

        Args:
            layer: The table.
            looked: When it was looked at; what commits have removed since stays.
        """

    def vacuum_others(self) -> Iterable[TableFiles]:
        """Do so for the serving table, and for tables under `ops/`."""


_BACKFILL: Final = "a backfill is at work: run maintain again when it has ended"
_LOSS: Final = "bronze tells of a loss that no nightly run has seen: run maintain again after the next one"
_READ: Final[tuple[Layer, ...]] = ("bronze", "batch", "speed")
"""The tables that streams read."""


def upkeep_under_lease(lake: UpkeepLake) -> Iterator[UpkeepFinding]:
    """Do what must not meet a nightly run."""
    keep = lake.config.maintain
    lake.refuse_deletes()
    certified = yield from _restore_certified(lake)
    if keep.bronze_retention is not None:
        yield OldRows("bronze", _remove_from_bronze(lake, keep.bronze_retention))
    if keep.speed_retention is not None:
        yield _remove_rows(lake, "speed", speed_removal(lake, keep.speed_retention))
    if keep.quarantine_retention is not None:
        # After bronze, by which it goes.
        yield _remove_rows(lake, "quarantine", quarantine_removal(lake, keep.quarantine_retention))
    yield from lake.compact("quarantine")
    if fewer := lake.fold_index():
        yield FoldedIndex(fewer)
    yield from lake.compact_ledgers()
    yield from _vacuum_tables(lake, certified)


def _restore_certified(lake: UpkeepLake) -> Generator[UpkeepFinding, None, Looked | None]:
    """Restore the batch table to the certified version, if a run has left another one.

    Until then files of the certified version count as old.

    Returns:
        When the table held the certified version; None if it does not.
    """
    now = lake.now()
    restored = lake.restore_certified()
    if restored is None:
        return None
    if restored.has_differed:
        yield LeftOver(is_restored=not lake.is_dry_run)
    return None if restored.has_differed and lake.is_dry_run else Looked(restored.version, now)


def _remove_from_bronze(lake: UpkeepLake, retention: timedelta) -> Removal:
    """Remove the oldest records of bronze, while no backfill brings any."""
    first_complete = lake.first_complete_day()
    by_age = first_day_by_age(lake.config, retention, lake.now(), lake.zone)
    if lake.is_dry_run or not is_due(by_age, first_complete):
        return bronze_removal(lake, retention)
    try:
        with lake.hold_backfills() as backfills:
            # What a backfill has brought before is looked at, too, and afterwards none brings any.
            removal = bronze_removal(lake, retention)
            if removal.to_quarantine is not None:
                lake.require_lease()
                lake.quarantine_broken(removal.to_quarantine)
            if removal.rows:
                # What bronze has lost could not be told apart from what goes now.
                if not lake.require_known_offsets():
                    return Removal(needs=(RetentionBlocker(first_complete or FIRST_DAY, _LOSS),))
                lake.require_lease()
                backfills.require()
                lake.delete("bronze", removal, backfills.stamp)
            return removal
    except LeaseHeld:
        return Removal(needs=(RetentionBlocker(first_complete or FIRST_DAY, _BACKFILL),))


def _remove_rows(lake: UpkeepLake, layer: Layer, removal: Removal) -> OldRows:
    """Remove the rows of a table that are past their retention."""
    if removal.rows and not lake.is_dry_run:
        lake.require_lease()
        lake.delete(layer, removal, lake.stamp)
    return OldRows(layer, removal)


def _vacuum_tables(lake: UpkeepLake, certified: Looked | None) -> Iterator[UpkeepFinding]:
    """Remove files that no version since `vacuum_after` needs.

    Args:
        lake: The tables.
        certified: When the batch table held the certified version; None if it does not.
    """
    # Before readers are looked at: what is removed from here on may be what they go on with.
    looked: dict[Layer, Looked] = {
        layer: Looked(lake.version(layer), lake.now())
        for layer in LAYERS
        if layer != "batch" and lake.has(layer)
    }
    if certified is not None:
        looked["batch"] = certified
    behind = [layer for layer in _READ if layer in looked and lake.is_behind(layer)]
    yield from map(KeptFiles, behind)
    for layer in LAYERS:
        if layer in looked and layer not in behind:
            lake.require_lease()
            yield from lake.vacuum(layer, looked[layer])
    yield from lake.vacuum_others()
