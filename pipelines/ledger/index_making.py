"""How the index of bronze is continued, made anew and folded: the protocol, without Spark.

What is read and written is behind `IndexLake` and `FoldedLake`. Jobs use Delta
(`pipelines.ledger.bronze_indexer`, `pipelines.ledger.index_folding`); `simulation` uses models of the tables.
"""

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from pipelines.delta.epochs import Stamp
from pipelines.fault_points import Point, reach

Rows = TypeVar("Rows")
Index = TypeVar("Index")

_log = logging.getLogger(__name__)


class IndexLake(Protocol[Rows, Index]):
    """Bronze at a version, and what the index has of it."""

    @property
    def version(self) -> int:
        """The version of bronze."""

    @property
    def is_there(self) -> bool:
        """Whether the index has rows."""

    @property
    def known_until(self) -> int | None:
        """The newest version that the index knows; None if rows hold for another bronze or way to decode."""

    @property
    def was_cut(self) -> bool:
        """Whether retention has removed records, or a loss was told, since these rows were made."""

    def as_known(self) -> Index:
        """Return what the rows that are there say of the version."""

    def came_after(self, version: int) -> Rows | None:
        """Return the rows of what came after a version; None if that can no longer be told."""

    def of_all(self) -> Rows:
        """Return the rows of all that bronze has; rows that are there may be among them."""

    def is_empty(self, rows: Rows) -> bool:
        """Return whether these are none."""

    def beside(self, rows: Rows) -> Index:
        """Return the rows that are there and others, without writing them."""

    def alone(self, rows: Rows) -> Index:
        """Return rows in place of those that are there, without writing them."""

    def written(self, rows: Rows, after: int | None, stamp: Stamp) -> Index:
        """Write rows in place of those that know bronze after a version; None for all that are there.

        Returns:
            The index, without the rows of another bronze or way to decode that somebody has put beside.
        """

    def counted(self, index: Index) -> tuple[int, int]:
        """Return how many records the index counts, and how many of them were emptied."""

    def in_bronze(self) -> tuple[int, int]:
        """Return how many records bronze has, and how many of them were emptied."""

    def require_known_offsets(self) -> None:
        """Make sure that bronze has every offset that the index knows.

        Raises:
            SourceError: It has not.
        """

    def require_same_bronze(self) -> None:
        """Make sure that bronze is still the table that it was when this began.

        Raises:
            SourceError: It was replaced, or restored from a copy.
        """


def make_index(lake: IndexLake[Rows, Index], stamps: Callable[[str], Stamp] | None) -> Index:
    """Return the index of bronze at a version; what it lacks is made.

    Args:
        lake: Bronze and the index.
        stamps: Gives the stamps of a run that holds the lease; without it nothing is written.

    Raises:
        StaleEpoch: Another run has taken the lease over.
        SourceError: Bronze lacks records that the index knows, or was replaced while it was read.
    """
    known = None if lake.was_cut else lake.known_until
    index = None if known is None else _continued(lake, known, stamps)
    return _anew(lake, stamps) if index is None else index


def _continued(
    lake: IndexLake[Rows, Index], known: int, stamps: Callable[[str], Stamp] | None
) -> Index | None:
    """Return the index with what came since a version; None if it has to be rebuilt."""
    if known >= lake.version:
        # What the index knows already may be more than an older version had.
        index = lake.as_known()
        return None if _differs(lake, lake.counted(index)) else index
    rows = lake.came_after(known)
    if rows is None:
        return None
    _require_same_bronze(lake)
    beside = lake.beside(rows)
    expected = lake.counted(beside)
    if _differs(lake, expected):
        # Nothing was written, so the next run still knows which offsets there were.
        return None
    if stamps is None or lake.is_empty(rows):
        return beside
    # Those that an earlier run wrote while this one looked are overwritten, not duplicated.
    index = lake.written(rows, known, stamps("index"))
    # As many records may be gone from bronze as an index lacks that was put back meanwhile.
    return index if lake.counted(index) == expected else None


def _differs(lake: IndexLake[Rows, Index], indexed: tuple[int, int]) -> bool:
    """Return whether an index counts other records than bronze has.

    A run that was stalled while it emptied records, and died, has not set the property of the table.
    """
    in_bronze = lake.in_bronze()
    if indexed != in_bronze:
        _log.warning(
            "the bronze index counts %d records (%d emptied), but bronze has %d (%d)", *indexed, *in_bronze
        )
    return indexed != in_bronze


def _anew(lake: IndexLake[Rows, Index], stamps: Callable[[str], Stamp] | None) -> Index:
    """Return the index of all that bronze has, whatever came since it was built last.

    Raises:
        SourceError: Bronze lacks records that it had: it was replaced or restored, or rows were deleted.
    """
    if lake.is_there:
        lake.require_known_offsets()
    rows = lake.of_all()
    _require_same_bronze(lake)
    if stamps is None or (not lake.is_there and lake.is_empty(rows)):
        return lake.alone(rows)
    return lake.written(rows, None, stamps("index"))


def _require_same_bronze(lake: IndexLake[Rows, Index]) -> None:
    """Make sure that the rows come from the bronze table that the index names as its source."""
    reach(Point.INDEX_ROWS_READ)
    lake.require_same_bronze()


class FoldedLake(Protocol[Rows]):
    """The rows of the index that are old enough to be folded."""

    def claim(self, stamp: Stamp) -> None:
        """Make the index refuse the commits of all earlier epochs."""

    def old(self) -> Rows | None:
        """Return the rows that are to be folded; None if there are none that are new to it."""

    def fold(self, rows: Rows) -> Rows:
        """Return the same in fewer rows."""

    def count(self, rows: Rows) -> int:
        """Return how many rows these are."""

    def replace(self, folded: Rows, stamp: Stamp) -> None:
        """Write folded rows in place of the old ones that were returned."""


def folded(lake: FoldedLake[Rows], stamps: Callable[[str], Stamp] | None) -> int:
    """Fold what is old, as one commit that later runs' commits keep from being made.

    Args:
        lake: The index.
        stamps: Gives the stamps of a run that holds the lease; without it nothing is changed.

    Returns:
        How many rows fewer there are.

    Raises:
        StaleEpoch: Another run has taken the lease over. Nothing was changed.
    """
    if stamps is not None:
        # From here on no run that held the lease before can add to what is read now.
        lake.claim(stamps("fold"))
    old = lake.old()
    if old is None:
        return 0
    fewer = lake.fold(old)
    difference = lake.count(old) - lake.count(fewer)
    if stamps is not None:
        # Also where none are fewer: it is not looked for what can be folded of them again.
        lake.replace(fewer, stamps("folded"))
    return difference
