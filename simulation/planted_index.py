"""Planted faults of the index of bronze, see `simulation.planted`."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

from pipelines.delta.epochs import Stamp
from pipelines.ledger.bronze_state import Indexed, unexplained_loss
from simulation.index import IndexWorld
from simulation.index_tables import IndexRow, IndexTable, ModelFolding, ModelIndex, ModelMaking
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
    """An index that is rebuilt is not compared with the one before it."""

    def require_known_offsets(self) -> None:
        pass


class _FirstDayExplainsAll(ModelMaking):
    """Bronze that says that it was cut is not compared with what the index knows."""

    def __init__(self, world: IndexWorld, version: int) -> None:
        super().__init__(world, version)
        if self.bronze.whole_from is not None:
            self.bronze = replace(self.bronze, first_kept=None)


class _AppendedOnly(ModelMaking):
    """Rows that are rebuilt come beside those that are there."""

    def written(self, rows: list[IndexRow], after: int | None, stamp: Stamp) -> ModelIndex:
        return self.own_rows(self.table.replace(stamp, lambda row: False, rows))


class _NewestVersion(ModelMaking):
    """A run keeps to the newest version of the index, and not to the one that its own commit made."""

    def written(self, rows: list[IndexRow], after: int | None, stamp: Stamp) -> ModelIndex:
        super().written(rows, after, stamp)
        return self.own_rows(self.table.version())


class _HoursNotCompared(ModelMaking):
    """Rows of all hours are kept of which bronze has records, however many."""

    def differing_hours(self, in_bronze: Mapping[int, int], indexed: Mapping[int, int]) -> set[int]:
        return {*in_bronze} ^ {*indexed}


class _ChangesAreWhole(ModelMaking):
    """What came after a version is taken to be all that the feed still has."""

    def _came(self, after: int) -> list[IndexRow] | None:
        return super()._came(max(after, self.world.cleaned))

    def in_bronze(self) -> tuple[int, int]:
        return self.counted(self.as_known()) if self.world.cleaned else super().in_bronze()


class _WrittenWithoutEpoch(ModelMaking):
    """What a run writes to the index carries no epoch, but whatever number comes next."""

    def written(self, rows: list[IndexRow], after: int | None, stamp: Stamp) -> ModelIndex:
        return super().written(rows, after, _next(self.table, stamp))


def _next(table: IndexTable, stamp: Stamp) -> Stamp:
    return replace(stamp, number=table.number_taken(stamp.application) + 1)


class _FoldedAcrossVerdicts(ModelFolding):
    """A folded row may lie on both sides of a version that a verdict names."""

    def verdict_versions(self) -> list[int]:
        return []


class _BronzeNotComparedAgain(ModelMaking):
    """Bronze may be another table after it was read."""

    def require_same_bronze(self) -> None:
        pass


class _ContractNotInKey(ModelMaking):
    """An index holds for whatever contract."""

    def __init__(self, world: IndexWorld, version: int) -> None:
        super().__init__(world, version)
        self.made_for = f"{self.bronze_id} {unexplained_loss(self.bronze)}"


def _world(schedule: Schedule, setup: Random, **wrong: Any) -> World:
    return IndexWorld(schedule, setup, **wrong)


def _making(name: str, seed: int, make: type[ModelMaking]) -> Planted:
    return Planted(name, seed, partial(_world, make_index=make))


INDEX: Final = (
    _making("the index is not compared with bronze", 9, _CountsNotCompared),
    _making("any bronze is the same", 84, _AnyBronze),
    _making("lost offsets are not reported", 16, _LostOffsetsNotTold),
    _making("a first complete day explains all that is gone", 16, _FirstDayExplainsAll),
    _making("rows come beside others", 1, _AppendedOnly),
    _making("a run reads the newest version of the index", 49, _NewestVersion),
    _making("hours are kept whose counts differ", 11, _HoursNotCompared),
    _making("changes that are gone are passed over", 170, _ChangesAreWhole),
    _making("the contract is not in the key", 1, _ContractNotInKey),
    _making("bronze is not compared after it was read", 3109, _BronzeNotComparedAgain),
    _making("what is written to the index carries no epoch", 17133, _WrittenWithoutEpoch),
    Planted("folded across verdicts", 13, partial(_world, make_folding=_FoldedAcrossVerdicts)),
)
