"""Planted faults of the index of bronze, see `simulation.planted`."""

from functools import partial
from random import Random
from typing import Any, Final

from pipelines.delta.epochs import Stamp
from pipelines.ledger.bronze_state import Indexed
from simulation.index import IndexWorld
from simulation.index_tables import IndexRow, ModelIndex, ModelMaking
from simulation.kernel import Schedule
from simulation.planted import Planted
from simulation.runs import World


class _CountsNotCompared(ModelMaking):
    """The index is not compared with the number of records in bronze."""

    def in_bronze(self) -> tuple[int, int]:
        return self.counted(self.beside(self._gained()))

    def _gained(self) -> list[IndexRow]:
        known = self.known_until
        return [] if known is None or known >= self.version else self._came(known) or []


class _AnyBronze(ModelMaking):
    """Whatever bronze is there is taken for the one that the index was made from."""

    def continues(self, indexed: Indexed) -> bool:
        return True


class _LostOffsetsNotTold(ModelMaking):
    """An index that is made anew is not compared with the one before it."""

    def require_known_offsets(self) -> None:
        pass


class _AppendedOnly(ModelMaking):
    """Rows that are made anew come beside those that are there."""

    def written(self, rows: list[IndexRow], after: int | None, stamp: Stamp) -> ModelIndex:
        return self._index(self.table.rows_at(self.table.replace(stamp, lambda row: False, rows)))


class _NewestVersion(ModelMaking):
    """A run keeps to the newest version of the index, and not to the one that its own commit made."""

    def written(self, rows: list[IndexRow], after: int | None, stamp: Stamp) -> ModelIndex:
        super().written(rows, after, stamp)
        return self._index(self.table.rows_at(self.table.version()))


class _RetentionNotInKey(ModelMaking):
    """An index holds for bronze before and after retention has removed records, whose number alone tells."""

    def __init__(self, world: IndexWorld, version: int) -> None:
        super().__init__(world, version)
        self.made_for = self.bronze_id

    def in_bronze(self) -> tuple[int, int]:
        return self.counted(self.as_known())


class _ChangesAreWhole(ModelMaking):
    """What came after a version is taken to be all that the feed still has."""

    def _came(self, after: int) -> list[IndexRow] | None:
        return super()._came(max(after, self.world.cleaned))

    def in_bronze(self) -> tuple[int, int]:
        return self.counted(self.as_known()) if self.world.cleaned else super().in_bronze()


def _world(schedule: Schedule, setup: Random, **wrong: Any) -> World:
    return IndexWorld(schedule, setup, **wrong)


def _making(name: str, seed: int, make: type[ModelMaking]) -> Planted:
    return Planted(name, seed, partial(_world, make_index=make))


INDEX: Final = (
    _making("the index is not compared with bronze", 33, _CountsNotCompared),
    _making("any bronze is the same", 372, _AnyBronze),
    _making("lost offsets are not told", 22, _LostOffsetsNotTold),
    _making("rows come beside others", 0, _AppendedOnly),
    _making("a run reads the newest version of the index", 10, _NewestVersion),
    _making("retention is not in the key", 33, _RetentionNotInKey),
    _making("changes that are gone are passed over", 327, _ChangesAreWhole),
)
