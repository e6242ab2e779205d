"""A run repairs what came late: it finds the days, rebuilds just those, and says what it changed."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from unittest import TestCase

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipelines.contracts.contract import DataContract
from pipelines.contracts.rules import RowRule
from pipelines.delta.io import read
from pipelines.delta.tables import version
from pipelines.ledger.bronze_index import bronze_slice
from pipelines.ledger.bronze_indexer import index_bronze
from pipelines.ledger.certifications import Verdict, history
from pipelines.nightly.rebuild_plan import Due, RepairScope, due_days
from pipelines.nightly.verdicts import NightFailed, NightResult
from pipelines.steps.nightly import nightly
from pipelines.steps.serving import read_serving
from tests.support.lake_copies import lake_in
from tests.support.lakes import EPOCH, Lake
from tests.support.nights import LATER, ONE, TWO, flights_of, on, run, stream
from tests.support.prepared_lakes import Nights

THREE, FOUR, FIVE, SIX = (date(2013, 1, n) for n in (3, 4, 5, 6))
LAST = EPOCH + timedelta(days=9)


def test_a_day_that_a_stricter_contract_left_events_out_of_is_due_again(lake: Lake) -> None:
    """An earlier contract was in use by mistake, and no quarantine has the records that it refused."""
    rules = (*lake.contract.row_rules, RowRule("flight", "maximum", 1))
    strict = lake.variant(contract=replace(lake.contract, row_rules=rules))
    lake.ingest([on(1, 1), on(1, 2), on(2, 1)])
    assert run(strict, ONE).counts.rows == 1
    lake.ingest([on(1, 3)])
    again = due(lake, TWO)
    assert (again.came_late, again.causes) == ({ONE: 2}, {ONE: "late", TWO: "asked"})


def due(lake: Lake, day: date, repair: RepairScope = "late") -> Due:
    """What a night would rebuild, and what it would leave."""
    at = version(lake.spark, lake.config.table("bronze"))
    index = index_bronze(lake.pipeline, at)
    ledger = history(lake.pipeline)
    return due_days(lake.pipeline, index, [day], repair, ledger)


def night(lake: Lake, day: date, repair: RepairScope = "late", run_id: str = "run") -> NightResult:
    return nightly(lake.pipeline, run_id, [day], repair)


@dataclass
class ThreeNights:
    """One history of a lake, and what its nights have said.

    Days one to five are certified. Then days get late records, among them a copy that wins over a row of
    another day, and a new event with copies on two days. Days that share events with one that has too many
    rows fail. The last night comes days later.
    """

    lake: Lake
    failing: NightFailed = field(init=False)
    next: NightResult = field(init=False)
    warned: list[str] = field(default_factory=list)
    sharing: list[list[list[int]]] = field(default_factory=list)
    """After each night but the first, what readers get of days four to six, which share events."""

    def pass_by(self) -> None:
        """Let the nights pass."""
        lake = self.lake
        lake.ingest([on(1, 21), on(2, 22), on(3, 23), on(4, 9), on(5, 1, sent=LAST), on(5, 8)])
        run(lake, ONE, FIVE)

        # A copy that came for the fourth day wins over the row of the fifth, but that day has too many rows.
        lake.ingest([on(4, 1, sent=LAST - timedelta(days=1)), *(on(4, n) for n in range(100, 155))])
        lake.ingest([on(1, 21), on(1, 24, sent=LAST), on(2, 25, sent=LAST, partition=1), on(6, 26)])
        # Of a new event, the copy of the fifth day wins.
        lake.ingest([on(5, 50, sent=LAST - timedelta(days=1)), on(6, 50, sent=LAST)])
        with pytest.raises(NightFailed) as failed:
            night(lake, SIX, "late", "failing")
        self.failing = failed.value
        self._look()

        # Nothing came since for the days that failed, and nothing ever for the eighth. The third day lies
        # before the lookback, and next to the fourth.
        lake.contract = replace(lake.contract, day_rules=())
        lake.ingest([on(1, 27, sent=LAST), on(3, 30, sent=LAST), on(7, 28), on(9, 29)])
        with TestCase().assertLogs("pipelines", "WARNING") as heard:
            self.next = night(lake, date(2013, 1, 9), "late and missed", "next")
        self.warned = heard.output
        self._look()

    def _look(self) -> None:
        served = read_serving(self.lake.pipeline)
        self.sharing.append([numbers(served, day) for day in (FOUR, FIVE, SIX)])


def changes(verdict: Verdict) -> tuple[int | None, ...]:
    """How many rows of a day were added, removed and changed."""
    return verdict.added, verdict.removed, verdict.changed


def numbers(rows: DataFrame, day: date) -> list[int]:
    return [number for number, _ in flights_of(rows, day)]


@pytest.fixture(scope="module")
def nights(
    spark: SparkSession, small_by_flight: DataContract, tmp_path_factory: pytest.TempPathFactory
) -> ThreeNights:
    folder = tmp_path_factory.mktemp("repair")
    passed = ThreeNights(lake_in(folder, spark, small_by_flight, "batch.lookback_days=5"))
    passed.pass_by()
    return passed


def test_the_next_run_rebuilds_just_the_days_for_which_records_came_late(nights: ThreeNights) -> None:
    lake, result = nights.lake, nights.failing.result
    assert result.days == {
        **dict.fromkeys((ONE, TWO), "certified"),
        **dict.fromkeys((FOUR, FIVE, SIX), "failed"),
    }
    assert result.counts.days_repaired == 2
    late = [verdict for verdict in result.also_rebuilt if verdict.day in (ONE, TWO)]
    assert [(v.cause, v.status, changes(v)) for v in late] == [("late", "certified", (1, 0, 0))] * 2
    assert numbers(read_serving(lake.pipeline), ONE) == [21, 24]
    first = [verdict for verdict in history(lake.pipeline) if verdict.day == ONE]
    assert [(v.cause, v.came_late, v.added) for v in first] == [("asked", 0, None), ("late", 2, 1)]
    steps = read(lake.spark, lake.config.ops_table("runs")).where("run_id = 'failing'").orderBy("started_at")
    assert [(row["step"], row["status"], row["days"]) for row in steps.collect()] == [
        ("seal", "done", 1),
        ("build", "done", 5),
        ("audit", "done", 5),
        ("certify", "done", 5),
    ]


@pytest.mark.thorough
def test_late_records_further_back_than_the_lookback_are_told_and_left_to_the_user(
    nights: ThreeNights,
) -> None:
    assert nights.next.late_days_left == (ONE,)
    [told] = [line for line in nights.warned if "leaves as they are" in line]
    assert "leaves as they are: 2013-01-01; rebuild with --from and --to" in told


@pytest.mark.thorough
def test_only_what_a_day_needs_of_bronze_is_read(certified_lake: Callable[[Nights], Lake]) -> None:
    lake = certified_lake("two nights")
    lake.ingest([on(2, 9, sent=LATER)])
    at = version(lake.spark, lake.config.table("bronze"))
    index = index_bronze(lake.pipeline, at)
    known = history(lake.pipeline)[-1].bronze_version
    # Micro-batches of this lake are a minute apart, and those that are close are read as one.
    assert bronze_slice(lake.pipeline, index, [], known).envelopes.count() == 1
    assert index.records_after({TWO: known, THREE: known}, lake.spark) == {TWO: 1}
    counts, broken = index.counts()
    assert (counts[TWO], sum(counts.values()), broken) == (3, 5, 0)


def test_days_without_a_verdict_are_caught_up_with_also_those_without_data(nights: ThreeNights) -> None:
    days = (date(2013, 1, day) for day in (3, 4, 5, 6, 7, 8, 9))
    assert nights.next.days == dict.fromkeys(days, "certified")
    causes = {verdict.day: (verdict.cause, verdict.rows) for verdict in history(nights.lake.pipeline)}
    assert causes[date(2013, 1, 7)] == ("missed", 1)
    assert causes[date(2013, 1, 8)] == ("missed", 0)


@pytest.mark.thorough
def test_a_copy_that_comes_with_another_day_moves_the_event_wherever_it_wins(
    make_lake: Callable[..., Lake], small_by_flight: DataContract
) -> None:
    lake = make_lake(contract=small_by_flight)
    noon = LATER - timedelta(days=5)
    lake.ingest([on(1, 1, sent=LATER), on(1, 2), on(2, 3)])
    night(lake, ONE)
    # Flight 1 was sent first with the second day; of flight 2 the first day's copy stays the first.
    lake.ingest([on(2, 1, sent=noon), on(2, 2, sent=LATER)])
    (moved,) = night(lake, TWO, "nothing").also_rebuilt
    assert (moved.day, moved.cause, moved.status, changes(moved)) == (
        ONE,
        "neighbour",
        "certified",
        (0, 1, 0),
    )
    serving = read_serving(lake.pipeline)
    assert [number for number, _ in flights_of(serving, ONE)] == [2]
    assert [number for number, _ in flights_of(serving, TWO)] == [1, 3]
    # Nothing came since: the neighbour is left alone.
    assert due(lake, TWO, "nothing").causes == {TWO: "asked"}


def test_days_that_share_an_event_are_rebuilt_together_fail_together_and_are_tried_again(
    nights: ThreeNights,
) -> None:
    failed, again = nights.sharing
    assert "2013-01-05 moves_with_its_neighbour" in str(nights.failing)
    assert {nights.failing.result.days[day] for day in (FOUR, FIVE)} == {"failed"}
    assert failed == [[9], [1, 8], []]

    assert {nights.next.days[day] for day in (FOUR, FIVE)} == {"certified"}
    assert again == [[1, 9, *range(100, 155)], [8, 50], [26]]
    causes = {verdict.day: verdict.cause for verdict in nights.next.also_rebuilt}
    assert (causes[THREE], causes[FOUR], causes[FIVE]) == ("neighbour", "late", "late")


def test_a_day_is_not_certified_without_an_event_whose_row_is_on_a_certified_day_that_failed(
    nights: ThreeNights,
) -> None:
    assert "2013-01-06 moves_with_its_neighbour" in str(nights.failing)
    assert nights.failing.result.days[SIX] == "failed"
    assert nights.next.days[SIX] == "certified"


@pytest.mark.thorough
def test_an_event_that_may_win_on_an_uncertified_day_holds_up_nobody_and_days_left_out_are_told(
    make_lake: Callable[..., Lake], small_by_flight: DataContract, caplog: pytest.LogCaptureFixture
) -> None:
    lake = make_lake("batch.lookback_days=0", contract=small_by_flight)
    lake.ingest([on(1, 5), on(2, 1, sent=LATER), on(2, 8)])
    stream(lake)
    lake.ingest([on(3, 1, sent=LATER - timedelta(days=1))])
    result = night(lake, TWO, "late and missed")
    assert result.days == {TWO: "certified"}
    assert result.missed_days_left == (ONE,)
    assert "days that no run has certified, and that this run leaves: 2013-01-01" in caplog.text
    assert [number for number, _ in flights_of(read_serving(lake.pipeline), TWO)] == [8]
