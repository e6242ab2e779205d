"""Rows of a key lie beyond the horizon of each other, and each record has one within it."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import combinations
from typing import Any

import pytest
from delta.tables import DeltaTable
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.audit import recount
from pipelines.audit.audited_days import span_of
from pipelines.contracts.contract import DataContract
from pipelines.contracts.custom_properties import Policy
from pipelines.contracts.event_days import days_of
from pipelines.delta.tables import shape, small_frame
from pipelines.errors import AuditFailed
from pipelines.ledger.layer_samples import samples_of
from pipelines.lineage.key_filter import asked_key
from pipelines.nightly import rebuild
from pipelines.records.dedup import UNDECIDED, winners, winners_on_known_days
from pipelines.steps.explain import explain
from pipelines.steps.serving import read_serving
from tests.support.lakes import Lake
from tests.support.nights import LATER, ONE, THREE, TWO, on, run, stream

FOUR = date(2013, 1, 4)
Copy = tuple[int, int, int]
"""A key, the number of a day, and when it was sent."""


def days_of_flight(lake: Lake, number: int) -> list[int]:
    rows = read_serving(lake.pipeline).where(F.col("flight") == number)
    return sorted(row["_event_date"].day for row in rows.select("_event_date").toLocalIterator())


@pytest.fixture
def lake(make_lake: Callable[..., Lake], small_by_flight: DataContract) -> Lake:
    return make_lake("batch.dedup_horizon_days=1", contract=small_by_flight)


def test_a_key_on_three_days_in_a_row_has_a_row_within_the_horizon_of_each(lake: Lake) -> None:
    lake.ingest([on(1, 1), on(2, 1), on(3, 1), on(2, 2), on(3, 2), on(7, 3)])
    stream(lake)
    for day in (ONE, TWO, THREE):
        run(lake, day)
    assert (days_of_flight(lake, 1), days_of_flight(lake, 2)) == ([1, 3], [2])
    by_night = sorted(map(str, lake.table("batch").toLocalIterator()))
    run(lake, ONE, THREE)
    assert sorted(map(str, lake.table("batch").toLocalIterator())) == by_night


def test_an_event_that_the_stream_took_for_a_copy_is_certified_and_named(lake: Lake) -> None:
    lake.ingest([on(1, 1), on(3, 1), on(3, 2)])
    # In one micro-batch: its state holds the key of the first day's flight when the third day's comes.
    stream(lake)
    lake.ingest([on(3, 3)])
    stream(lake)
    asked = asked_key(lake.contract, ["carrier=UA", "flight=1", "origin=EWR"])
    (_, (_, fate)) = explain(lake.pipeline, asked, 1).records
    assert (fate.verdict, "had flights-0 @ 0 of this key" in fate.reason) == ("remembered", True)
    run(lake, ONE, THREE)
    (sample,) = samples_of(lake.pipeline, THREE, "run")
    assert (sample.difference, sample.batch and sample.batch["offset"]) == ("remembered", 1)
    assert days_of_flight(lake, 1) == [1, 3]
    # A key that the speed layer does not have at all is explained by nothing.
    DeltaTable.forPath(lake.spark, lake.config.table("speed")).delete("flight = 2")
    with pytest.raises(AuditFailed, match=r"1 remembered and 1 unexplained keys"):
        run(lake, ONE, THREE)


def test_a_copy_that_wins_later_moves_every_row_of_the_chain(lake: Lake) -> None:
    lake.ingest([on(2, 1, sent=LATER), on(3, 1, sent=LATER + timedelta(hours=1)), on(1, 9), on(4, 9)])
    run(lake, ONE, FOUR)
    assert days_of_flight(lake, 1) == [2]
    # It was sent before all others, so its day has the row, and the third day needs one of its own.
    lake.ingest([on(1, 1)])
    done = run(lake, ONE)["days"]
    assert done == dict.fromkeys(["2013-01-01", "2013-01-02", "2013-01-03"], "certified")
    assert days_of_flight(lake, 1) == [1, 3]


@pytest.mark.thorough
def test_a_day_that_opens_the_way_back_gives_a_certified_day_its_row(lake: Lake) -> None:
    # The second day's copy wins over the first's, and loses to the third's, which came when both were closed.
    lake.ingest([on(1, 1, sent=LATER + timedelta(hours=2)), on(2, 1, sent=LATER + timedelta(hours=1))])
    lake.ingest([on(1, 9), on(2, 9), on(9, 9)])
    run(lake, ONE, TWO)
    assert days_of_flight(lake, 1) == [2]
    lake.ingest([on(3, 1, sent=LATER)])
    assert set(run(lake, THREE)["days"].values()) == {"certified"}
    assert days_of_flight(lake, 1) == [1, 3]


def test_a_key_that_recurs_daily_fails_the_day_and_is_named(
    lake: Lake, make_lake: Callable[..., Lake], small_by_flight: DataContract
) -> None:
    lake.ingest([on(day, 7) for day in range(1, 9)] + [on(day, 20 + day) for day in range(1, 9)])
    run(lake, ONE, FOUR)
    assert days_of_flight(lake, 7) == [1, 3]
    with pytest.raises(AuditFailed, match=r"keys_come_to_an_end: found 1 keys .*UA, 7, EWR\. .*no dedup key"):
        run(lake, date(2013, 1, 8))
    further = make_lake("batch.dedup_horizon_days=1", "batch.chain_horizons=9", contract=small_by_flight)
    run(further, date(2013, 1, 5), date(2013, 1, 8))
    assert days_of_flight(lake, 7) == [1, 3, 5, 7]


def test_the_audit_finds_by_itself_what_a_rebuild_loses(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def best_of_all(events: DataFrame, *given_: Any) -> DataFrame:
        found = winners_on_known_days(events, *given_)
        return found.where("flight != 1 OR _event_date = DATE'2013-01-01'")

    lake.ingest([on(day, 1) for day in (1, 2, 3)] + [on(day, 9) for day in (1, 4)])
    stream(lake)
    for module in (rebuild, recount):
        monkeypatch.setattr(module, "winners_on_known_days", best_of_all)
    with pytest.raises(AuditFailed, match="2013-01-03 each_event_has_a_row: found 1 records"):
        run(lake, ONE, THREE)


def plain(copies: list[Copy], horizon: int, *, first: bool) -> set[Copy]:
    """The rows of the oracle: the best stands, and each that lies beyond the horizon of all that stand."""
    standing: dict[int, list[Copy]] = defaultdict(list)
    for copy in sorted(copies, key=lambda each: each[2], reverse=not first):
        if all(abs(copy[1] - other[1]) > horizon for other in standing[copy[0]]):
            standing[copy[0]].append(copy)
    return {copy for rows in standing.values() for copy in rows}


def frame(spark: SparkSession, copies: list[Copy]) -> DataFrame:
    zero = datetime(2013, 1, 1, tzinfo=UTC)
    rows = [
        {
            "flight": key,
            "_event_date": ONE + timedelta(days=day),
            "_kafka_timestamp": zero + timedelta(minutes=sent),
            "_topic": "t",
            "_partition": 0,
            "_offset": sent,
        }
        for key, day, sent in copies
    ]
    types = "flight int, _event_date date, _kafka_timestamp timestamp, _topic string, _partition int"
    return small_frame(spark, rows, shape(f"{types}, _offset bigint"))


def found(rows: DataFrame) -> set[Copy]:
    columns = rows.select("flight", F.datediff("_event_date", F.lit(ONE)).alias("day"), "_offset")
    return {(row["flight"], row["day"], row["_offset"]) for row in columns.toLocalIterator()}


@pytest.mark.thorough
def test_nothing_hangs_on_days_that_retention_has_removed(lake: Lake) -> None:
    contract = replace(lake.contract, key=("flight",))
    events = frame(lake.spark, [(1, 1, 0), (1, 2, 1), (2, 6, 0), (2, 7, 1)])

    def chosen_of(whole: date | None) -> tuple[set[Copy], set[Copy]]:
        span = span_of(replace(lake.pipeline, contract=contract), [THREE], whole)
        rows = winners_on_known_days(
            events.where(F.col("_event_date").isin(span.near)), contract, span.horizon, span.known_days
        )
        return found(rows.where(f"NOT {UNDECIDED}")), found(rows.where(UNDECIDED))

    # Of the first key the second day is the first that bronze has whole; of the other, the end is not seen.
    assert chosen_of(TWO) == ({(1, 1, 0)}, {(2, 6, 0)})


@pytest.mark.parametrize("policy", [Policy(), pytest.param(Policy("last"), marks=pytest.mark.thorough)])
def test_the_rows_are_those_of_an_oracle_whatever_the_copies(
    spark: SparkSession, small_by_flight: DataContract, policy: Policy
) -> None:
    contract = replace(small_by_flight, key=("flight",), policy=policy)

    @seed(11)
    @settings(
        max_examples=3,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.lists(st.lists(st.integers(0, 14), min_size=1, max_size=12), min_size=150, max_size=150),
        st.randoms(use_true_random=False),
        st.integers(0, 3),
    )
    def check(days: list[list[int]], random: Any, horizon: int) -> None:
        places = [(key, day) for key, of_key in enumerate(days) for day in of_key]
        moments = random.sample(range(10_000), len(places))
        copies = [(key, day, sent) for (key, day), sent in zip(places, moments, strict=True)]
        expected = plain(copies, horizon, first=policy == Policy())
        events = frame(spark, copies)
        rows = found(winners(events.repartition(3), contract, horizon))
        assert rows == expected
        for one, other in combinations(rows, 2):
            assert one[0] != other[0] or abs(one[1] - other[1]) > horizon
        for key, day, _ in copies:
            assert any(row[0] == key and abs(row[1] - day) <= horizon for row in rows)
        # What some days decide is what all decide, and only what hangs on others is left.
        known = days_of(date(2013, 1, 4), date(2013, 1, 11))
        part = winners_on_known_days(events.where(F.col("_event_date").isin(known)), contract, horizon, known)
        decided, undecided = (found(part.where(condition)) for condition in (f"NOT {UNDECIDED}", UNDECIDED))
        of_part = {copy for copy in expected if 3 <= copy[1] <= 10}
        assert decided <= of_part <= decided | undecided
        assert horizon or not undecided

    check()
