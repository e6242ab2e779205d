"""When the index of bronze is continued, and when it is made anew, without a lake."""

from dataclasses import dataclass, field

import pytest

from pipelines.delta.epochs import Stamp
from pipelines.errors import SourceError
from pipelines.ledger.index_making import make_index

KNOWN, CAME = 2, 1


@dataclass
class Lake:
    """Three records of bronze, of which the index knows two. An index is how many records it counts.

    Attributes:
        in_table: how many records bronze has.
        put_back: how many of the two an index has that somebody puts back before the run writes.
        was_cut: whether retention has removed records.
        is_refused: whether bronze lacks offsets.
        steps: what the run did, in order.
    """

    in_table: int = KNOWN + CAME
    put_back: int = KNOWN
    was_cut: bool = False
    is_refused: bool = False
    version: int = 2
    known_until: int | None = 1
    is_there: bool = True
    steps: list[str] = field(default_factory=list)

    def as_known(self) -> int:
        return KNOWN

    def came_after(self, version: int) -> int | None:
        return CAME

    def of_all(self) -> int:
        return self.in_table

    def is_empty(self, rows: int) -> bool:
        return not rows

    def beside(self, rows: int) -> int:
        return KNOWN + rows

    def alone(self, rows: int) -> int:
        return rows

    def written(self, rows: int, after: int | None, stamp: Stamp) -> int:
        self.steps.append("all are written" if after is None else "what came is written")
        return rows if after is None else self.put_back + rows

    def counted(self, index: int) -> tuple[int, int]:
        return index, 0

    def in_bronze(self) -> tuple[int, int]:
        return self.in_table, 0

    def require_known_offsets(self) -> None:
        self.steps.append("offsets are looked for")
        if self.is_refused:
            raise SourceError("records are gone")

    def require_same_bronze(self) -> None:
        pass


def stamp(what: str) -> Stamp:
    return Stamp("lease", 1, what)


def test_what_came_is_added_to_an_index_that_counts_what_bronze_has() -> None:
    lake = Lake()
    assert make_index(lake, stamp) == 3
    assert lake.steps == ["what came is written"]


def test_an_index_that_was_put_back_before_the_run_wrote_to_it_is_made_anew() -> None:
    lake = Lake(put_back=1)
    assert make_index(lake, stamp) == 3
    assert lake.steps == ["what came is written", "offsets are looked for", "all are written"]


@pytest.mark.parametrize("lake", [Lake(in_table=2), Lake(was_cut=True), Lake(known_until=None)])
def test_offsets_are_looked_for_before_anything_is_written(lake: Lake) -> None:
    assert make_index(lake, stamp) == lake.in_table
    assert lake.steps == ["offsets are looked for", "all are written"]
    lake.is_refused, lake.steps = True, []
    with pytest.raises(SourceError):
        make_index(lake, stamp)
    assert lake.steps == ["offsets are looked for"]
