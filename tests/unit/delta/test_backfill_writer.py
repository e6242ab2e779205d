"""Chunks of a backfill among micro-batches of several ingests: what they follow, and what they wait for."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from pipelines.delta.backfill_writer import BackfillWriter, newest_ingestion
from pipelines.delta.epochs import Stamp
from pipelines.errors import InfrastructureError
from pipelines.spark.checkpoints import QueryFiles
from pipelines.spark.ingest_plans import MicroBatchPlan

BEGIN = datetime(2013, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


@dataclass
class Ingest:
    """An ingest: when each of its micro-batches was planned, and how many of them are committed."""

    query: str | None
    planned: list[datetime] = field(default_factory=list)
    committed: int = 0

    def files(self) -> QueryFiles:
        return QueryFiles("checkpoint", self.query, self.committed, None, {})

    def plan(self, batch: int) -> MicroBatchPlan | None:
        return MicroBatchPlan({}, self.planned[batch]) if 0 <= batch < len(self.planned) else None


@dataclass
class Draft:
    """A transaction: what it has written, and what it will commit."""

    bronze: "Bronze"
    rows: list[datetime] = field(default_factory=list)

    def number_taken(self, application: str) -> int:
        (found,) = (each for each in (self.bronze, *self.bronze.further) if each.query == application)
        return found.committed - 1

    def adopt(self, other: "Draft") -> bool:
        self.rows = other.rows
        return True

    def discard(self) -> None:
        self.rows = []

    def commit(self, actions: tuple[()], stamp: Stamp) -> int:
        self.bronze.commits += self.rows
        return len(self.bronze.commits)


@dataclass
class Bronze(Ingest):
    """The table, with the ingest whose topic is read, and further ones.

    Attributes:
        further: the other ingests.
        seconds: what the clock says, counted from the beginning.
        commits: the moments of what was appended.
        events: what others do while a file is written; each once.
    """

    further: list[Ingest] = field(default_factory=list)
    seconds: float = 100.0
    commits: list[datetime] = field(default_factory=list)
    events: list[tuple[Ingest, float]] = field(default_factory=list)

    def others(self) -> Sequence[Ingest]:
        return self.further

    def begin(self) -> Draft:
        return Draft(self)

    def write(self, draft: Draft, records: int, at: datetime) -> int:
        draft.rows = [at]
        self.seconds += 5
        if self.events:
            ingest, planned = self.events.pop(0)
            ingest.planned.append(BEGIN + timedelta(seconds=planned))
            ingest.committed = len(ingest.planned)
        return records

    def newest_since(self, moment: datetime) -> datetime | None:
        return max((each for each in self.commits if each >= moment), default=None)

    def whole_from(self) -> str | None:
        return None

    def number_taken(self, application: str) -> int:
        return 0

    def now(self) -> datetime:
        return at(self.seconds)

    def elapsed_s(self) -> float:
        return self.seconds

    def pause(self, seconds: float) -> None:
        self.seconds += 10


def appended(bronze: Bronze) -> datetime:
    """Appends a chunk; its moment."""
    writer = BackfillWriter("bronze", 100, bronze, newest_ingestion(bronze), None, lambda: None)
    assert writer.append(7, Stamp("run", 1, "backfill")) == 7
    return bronze.commits[-1]


def test_a_chunk_follows_what_any_ingest_has_committed() -> None:
    ahead = Ingest("eu", [at(10), at(500)], committed=2)
    assert appended(Bronze("own", [at(90)], 1, [ahead])) == at(500) + timedelta(microseconds=1)


def test_a_chunk_is_written_again_behind_what_another_ingest_has_committed_meanwhile() -> None:
    other = Ingest("eu", [at(10)], committed=1)
    bronze = Bronze("own", [at(90)], 1, [other], events=[(other, 101.0)])
    assert appended(bronze) == at(105)


def test_only_planned_micro_batches_of_its_own_cluster_are_waited_for() -> None:
    assert appended(Bronze("own", [at(90)], 1, [Ingest("eu", [at(80)])])) == at(100)
    bronze = Bronze("own", [at(80), at(90)], 1, [Ingest("eu", [at(70)], 1)])
    assert appended(bronze) == at(80) + timedelta(microseconds=1)
    assert bronze.seconds > 100 + 60


def test_no_chunk_has_the_moment_of_another_micro_batch() -> None:
    assert appended(Bronze("own", [at(90)], 1, [Ingest("eu", [at(100)])])) > at(100)


def test_a_chunk_that_cannot_come_before_a_planned_micro_batch_and_after_a_committed_one_is_refused() -> None:
    bronze = Bronze("own", [at(80), at(90)], 1, [Ingest("eu", [at(95)], 1)])
    with pytest.raises(InfrastructureError, match="start that ingest_stream"):
        appended(bronze)
    assert bronze.commits == []


def test_an_ingest_that_has_never_run_is_no_hindrance() -> None:
    assert appended(Bronze(None, further=[Ingest(None), Ingest("eu", [at(10)], 1)])) == at(100)
