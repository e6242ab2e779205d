"""A run repairs what came late: it finds the days, rebuilds just those, and says what it changed."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from typing import Any

import pytest

from pipelines.contracts.contract import DataContract
from pipelines.contracts.event_days import days_of
from pipelines.delta.io import read
from pipelines.delta.tables import version
from pipelines.errors import AuditFailed
from pipelines.ledger.bronze_index import bronze_slice
from pipelines.ledger.bronze_indexer import index_bronze
from pipelines.ledger.certifications import history
from pipelines.nightly.rebuild_plan import Due, Repair, due_days
from pipelines.steps.nightly import nightly
from pipelines.steps.serving import read_serving
from tests.support.lakes import Lake
from tests.support.nights import LATER, ONE, TWO, flights_of, on, run, stream

THREE, TEN = date(2013, 1, 3), date(2013, 1, 10)


def due(lake: Lake, day: date, repair: Repair = "late") -> Due:
    """What a night would rebuild, and what it would leave."""
    at = version(lake.spark, lake.config.table("bronze"))
    index = index_bronze(lake.pipeline, at)
    ledger = history(lake.pipeline)
    return due_days(lake.pipeline, index, [day], repair, ledger)


def night(lake: Lake, day: date, repair: Repair = "late", run_id: str = "run") -> dict[str, Any]:
    return nightly(lake.pipeline, run_id, [day], repair)


def test_the_next_run_rebuilds_just_the_days_for_which_records_came_late(
    make_lake: Callable[..., Lake], small: DataContract, caplog: pytest.LogCaptureFixture
) -> None:
    lake = make_lake("batch.lookback_days=2", contract=small)
    lake.ingest([on(1, 1), on(2, 2), on(3, 3)])
    run(lake, ONE, TWO)
    lake.ingest([on(1, 1), on(1, 4, sent=LATER), on(2, 5, sent=LATER, partition=1), on(4, 6)])
    summary = night(lake, THREE, run_id="third")
    assert summary["days"] == dict.fromkeys(["2013-01-01", "2013-01-02", "2013-01-03"], "certified")
    assert summary["counts"]["days_repaired"] == 2
    assert summary["lines"] == [
        "2013-01-01 (late): certified; 1 rows added, 0 removed, 0 changed",
        "2013-01-02 (late): certified; 1 rows added, 0 removed, 0 changed",
    ]
    assert [number for number, _ in flights_of(read_serving(lake.pipeline), ONE)] == [1, 4]
    first = [verdict for verdict in history(lake.pipeline) if verdict.day == ONE]
    assert [(v.cause, v.came_late, v.added) for v in first] == [("asked", 0, None), ("late", 2, 1)]
    steps = read(lake.spark, lake.config.ops_table("runs")).where("run_id = 'third'").orderBy("started_at")
    assert [(row["step"], row["status"], row["days"]) for row in steps.toLocalIterator()] == [
        ("seal", "done", 1),
        ("build", "done", 3),
        ("audit", "done", 3),
        ("certify", "done", 3),
    ]

    # Further back than the lookback it is told, and left to the user.
    lake.ingest([on(1, 7, sent=LATER), on(10, 8)])
    assert night(lake, TEN)["late_days_left"] == ["2013-01-01"]
    assert "leaves as they are: 2013-01-01; rebuild with --from and --to" in caplog.text


def test_only_what_a_day_needs_of_bronze_is_read(lake: Lake) -> None:
    for day in range(1, 9):
        lake.ingest([on(day, day)])
    night(lake, date(2013, 1, 8))
    lake.ingest([on(2, 9, sent=LATER)])
    at = version(lake.spark, lake.config.table("bronze"))
    index = index_bronze(lake.pipeline, at)
    known = history(lake.pipeline)[-1].bronze_version
    # Micro-batches of this lake are a minute apart, and those that are close are read as one.
    assert bronze_slice(lake.pipeline, index, [], known).envelopes.count() == 1
    assert index.came_since({TWO: known, THREE: known}, lake.spark) == {TWO: 1}
    counts, broken = index.counts()
    assert (counts[TWO], sum(counts.values()), broken) == (2, 9, 0)


def test_days_without_a_verdict_are_caught_up_with_also_those_without_data(lake: Lake) -> None:
    lake.ingest([on(1, 1), on(2, 2), on(5, 5)])
    night(lake, ONE)
    summary = night(lake, date(2013, 1, 5), "late and missed")
    assert summary["days"] == dict.fromkeys(map(str, days_of(TWO, date(2013, 1, 5))), "certified")
    causes = {verdict.day: (verdict.cause, verdict.rows) for verdict in history(lake.pipeline)}
    assert causes[THREE] == ("missed", 0)


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
    summary = night(lake, TWO, "nothing")
    assert summary["lines"] == ["2013-01-01 (neighbour): certified; 0 rows added, 1 removed, 0 changed"]
    serving = read_serving(lake.pipeline)
    assert [number for number, _ in flights_of(serving, ONE)] == [2]
    assert [number for number, _ in flights_of(serving, TWO)] == [1, 3]
    # Nothing came since: the neighbour is left alone.
    assert due(lake, TWO, "nothing").causes == {TWO: "asked"}


def test_days_that_share_an_event_are_rebuilt_together_fail_together_and_are_tried_again(
    make_lake: Callable[..., Lake], small_by_flight: DataContract
) -> None:
    lake = make_lake(contract=small_by_flight)
    lake.ingest([on(1, 9), on(2, 1, sent=LATER), on(2, 8)])
    run(lake, ONE, TWO)
    served = partial(read_serving, lake.pipeline)

    def numbers() -> list[list[int]]:
        return [[number for number, _ in flights_of(served(), day)] for day in (ONE, TWO)]

    # A copy that came for the first day wins over the row of the second, which is rebuilt by hand.
    lake.ingest([on(1, 1, sent=LATER - timedelta(days=1))])
    assert night(lake, TWO, "nothing")["days"] == {"2013-01-01": "certified", "2013-01-02": "certified"}
    assert numbers() == [[1, 9], [8]]

    # The event moves back, but the first day has too many rows now.
    lake.ingest([on(2, 1, sent=LATER - timedelta(days=2)), *(on(1, n) for n in range(100, 155))])
    with pytest.raises(AuditFailed, match="2013-01-02 moves_with_its_neighbour") as failed:
        night(lake, TWO, "late")
    assert set(failed.value.summary["days"].values()) == {"failed"}
    assert numbers() == [[1, 9], [8]]

    # Nothing came since, and the next night finds what the last one could not do.
    lake.contract = replace(small_by_flight, day_rules=())
    assert set(night(lake, TWO, "late")["days"].values()) == {"certified"}
    assert numbers() == [[9, *range(100, 155)], [1, 8]]


@pytest.mark.thorough
def test_an_event_that_may_win_on_an_open_day_holds_up_nobody_and_days_left_out_are_told(
    make_lake: Callable[..., Lake], small_by_flight: DataContract, caplog: pytest.LogCaptureFixture
) -> None:
    lake = make_lake("batch.lookback_days=0", contract=small_by_flight)
    lake.ingest([on(1, 5), on(2, 1, sent=LATER), on(2, 8)])
    stream(lake)
    lake.ingest([on(3, 1, sent=LATER - timedelta(days=1))])
    summary = night(lake, TWO, "late and missed")
    assert summary["days"] == {"2013-01-02": "certified"}
    assert summary["missed_days_left"] == ["2013-01-01"]
    assert "days that no run has certified, and that this run leaves: 2013-01-01" in caplog.text
    assert [number for number, _ in flights_of(read_serving(lake.pipeline), TWO)] == [8]
