"""Which files of a table hold the rows that a commit replaces, as the log tells it, without Spark."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any, Final, Protocol

from pipelines.delta.conditions import days_condition, partition_condition

File = dict[str, Any]
"""A file of a table as Delta's protocol writes it: the content of an `add` action."""

_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")


class ReplacedRows(Protocol):
    """Rows of a table that a commit replaces by others."""

    @property
    def conditions(self) -> Sequence[str]:
        """The SQL conditions that hold for them, those on partition columns apart from others."""

    @property
    def partition_columns(self) -> Sequence[str]:
        """The partition columns of a table of which `are_all` can tell."""

    def are_all(self, file: Mapping[str, Any]) -> bool | None:
        """Return whether a file holds such rows alone; False if it holds none, None if that cannot be told.

        Args:
            file: The content of an `add` action of Delta's log.
        """


@dataclass(frozen=True)
class RowsOfDays:
    """The rows of some event days.

    Attributes:
        days: The days, sorted; at least one.
    """

    days: Sequence[date]

    @property
    def conditions(self) -> Sequence[str]:
        """The SQL conditions that hold for them, those on partition columns apart from others."""
        return (days_condition(self.days),)

    @property
    def partition_columns(self) -> Sequence[str]:
        """The partition columns of a table of which `are_all` can tell."""
        return ("_event_date",)

    def are_all(self, file: Mapping[str, Any]) -> bool | None:
        """Return whether a file holds such rows alone; None if others have written its day in another way."""
        value = file["partitionValues"]["_event_date"]
        return value in self._names if value is None or _DAY.fullmatch(value) else None

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(map(str, self.days))


@dataclass(frozen=True)
class RowsOfPartition:
    """The rows of a partition, or those of them in which a number is above a bound.

    Attributes:
        partition: The values of all partition columns.
        column: A column of whole numbers.
        above: The bound; None if all rows of the partition are meant.
    """

    partition: Mapping[str, str]
    column: str
    above: int | None

    @property
    def conditions(self) -> Sequence[str]:
        """The SQL conditions that hold for them, those on partition columns apart from others."""
        of_partition = partition_condition(self.partition)
        return (of_partition,) if self.above is None else (of_partition, f"{self.column} > {self.above}")

    @property
    def partition_columns(self) -> Sequence[str]:
        """The partition columns of a table of which `are_all` can tell."""
        return tuple(self.partition)

    def are_all(self, file: Mapping[str, Any]) -> bool | None:
        """Return whether a file holds such rows alone, by the statistics that Delta writes with it."""
        is_of_partition = file["partitionValues"] == self.partition
        if self.above is None or not is_of_partition:
            return bool(is_of_partition)
        statistics = json.loads(file.get("stats") or "{}")
        lowest, highest = (statistics.get(name, {}).get(self.column) for name in ("minValues", "maxValues"))
        has_nulls = statistics.get("nullCount", {}).get(self.column) != 0
        if not isinstance(lowest, int) or not isinstance(highest, int) or has_nulls:
            return None
        if highest <= self.above:
            return False
        return True if lowest > self.above else None
