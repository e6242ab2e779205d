"""What upkeep does while it holds the pipeline's lease, and in which order: the protocol, without Spark.

The tables are behind `UpkeepLake`. The job uses Delta (`pipelines.steps.maintain`); `simulation` uses models
of the tables.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, Protocol

from pipelines.config.streams import LAYERS, Layer
from pipelines.delta.upkeep import Files
from pipelines.retention.removal_terms import (
    Removal,
    RetentionLake,
    bronze_removal,
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


class UpkeepLake(RetentionLake, Protocol):
    """The tables of a pipeline, as a run of upkeep changes them."""

    @property
    def is_dry_run(self) -> bool:
        """Whether it only looks."""

    def require_lease(self) -> None:
        """Require that the run still holds its lease, if it has taken one."""

    def refuse_deletes(self) -> None:
        """Make bronze refuse deletes: a run that died while it deleted has left them allowed."""

    def restore_certified(self) -> bool | None:
        """Restore the batch table to the certified version, unless it is a dry run.

        Returns:
            Whether it held another one; None if there is no batch table.
        """

    def delete(self, layer: Layer, removal: Removal) -> None:
        """Delete rows of a table."""

    def compact(self, layer: Layer) -> Iterable[TableFiles]:
        """Put small files of a table together."""

    def fold_index(self) -> int:
        """Fold what of the index is old; return how many rows fewer it has."""

    def compact_ledgers(self) -> Iterable[TableFiles]:
        """Put small files of the pipeline's tables under `ops/` together."""

    def is_behind(self, layer: Layer) -> bool:
        """Return whether the stream that reads a table still needs files that are old enough to go."""

    def vacuum(self, layer: Layer) -> Iterable[TableFiles]:
        """Remove files of a table that no version since `maintain.vacuum_after` needs."""

    def vacuum_others(self) -> Iterable[TableFiles]:
        """Do so for the serving table, and for tables under `ops/`."""


_READ: Final[tuple[Layer, ...]] = ("bronze", "batch", "speed")
"""The tables that streams read."""
_REMOVALS: Final[dict[Layer, Callable[[RetentionLake, timedelta], Removal]]] = {
    "bronze": bronze_removal,
    "speed": speed_removal,
    # After bronze, by which it goes.
    "quarantine": quarantine_removal,
}


def upkeep_under_lease(lake: UpkeepLake) -> Iterator[UpkeepFinding]:
    """Do what must not meet a nightly run."""
    keep = lake.config.maintain
    lake.refuse_deletes()
    is_certified = yield from _restore_certified(lake)
    retentions = {
        "bronze": keep.bronze_retention,
        "speed": keep.speed_retention,
        "quarantine": keep.quarantine_retention,
    }
    for layer, removal in _REMOVALS.items():
        if (retention := retentions[layer]) is not None:
            yield _remove_rows(lake, layer, removal(lake, retention))
    yield from lake.compact("quarantine")
    if fewer := lake.fold_index():
        yield FoldedIndex(fewer)
    yield from lake.compact_ledgers()
    yield from _vacuum_tables(lake, is_certified)


def _restore_certified(lake: UpkeepLake) -> Generator[UpkeepFinding, None, bool]:
    """Restore the batch table to the certified version, if a run has left another one.

    Until then files of the certified version count as old.

    Returns:
        Whether the table holds the certified version now.
    """
    is_left_over = lake.restore_certified()
    if is_left_over is None:
        return False
    if is_left_over:
        yield LeftOver(is_restored=not lake.is_dry_run)
    return not (is_left_over and lake.is_dry_run)


def _remove_rows(lake: UpkeepLake, layer: Layer, removal: Removal) -> OldRows:
    """Remove the rows of a table that are past their retention."""
    if removal.rows and not lake.is_dry_run:
        lake.require_lease()
        lake.delete(layer, removal)
    return OldRows(layer, removal)


def _vacuum_tables(lake: UpkeepLake, is_certified: bool) -> Iterator[UpkeepFinding]:
    """Remove files that no version since `vacuum_after` needs.

    Args:
        lake: The tables.
        is_certified: whether the batch table holds the certified version.
    """
    behind = [layer for layer in _READ if (is_certified or layer != "batch") and lake.is_behind(layer)]
    yield from map(KeptFiles, behind)
    for layer in LAYERS:
        if layer not in behind and (is_certified or layer != "batch"):
            lake.require_lease()
            yield from lake.vacuum(layer)
    yield from lake.vacuum_others()
