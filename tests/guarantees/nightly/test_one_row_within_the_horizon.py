"""Rows of a key lie beyond the horizon of each other, and each record has one within it."""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
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
from pipelines.ledger.layer_samples import samples_of
from pipelines.lineage.key_filter import asked_key
from pipelines.nightly import rebuild
from pipelines.nightly.verdicts import NightFailed
from pipelines.records.dedup import UNDECIDED, clustered, winners, winners_on_known_days
from pipelines.records.kept_copies import kept_copies
from pipelines.steps.explain import explain
from pipelines.steps.nightly import nightly
from pipelines.steps.serving import read_serving
from tests.support.lake_copies import continued, lake_in
from tests.support.lakes import Lake
from tests.support.nights import LATER, ONE, THREE, TWO, on, run, stream

pytestmark = pytest.mark.usefixtures("two_partitions")

FOUR, EIGHT = date(2013, 1, 4), date(2013, 1, 8)
ONE_DAY = "batch.dedup_horizon_days=1"
HOUR = timedelta(hours=1)
Copy = tuple[int, int, int]
"""A key, the number of a day, and when it was sent."""


def days_of_flights(lake: Lake, *numbers: int) -> list[list[int]]:
    """The days on which readers have some flights."""
    rows = read_serving(lake.pipeline).where(F.col("flight").isin(*numbers)).select("flight", "_event_date")
    served = [(row["flight"], row["_event_date"].day) for row in rows.collect()]
    return [sorted(day for flight, day in served if flight == number) for number in numbers]


@pytest.fixture
def lake(make_lake: Callable[..., Lake], small_by_flight: DataContract) -> Lake:
    return make_lake(ONE_DAY, contract=small_by_flight)


@pytest.fixture(scope="module")
def streamed(
    spark: SparkSession, small_by_flight: DataContract, tmp_path_factory: pytest.TempPathFactory
) -> Lake:
    """A lake that the stream has read, and no night: keys that recur within three days."""
    # Each file of bronze, and so each of the three that are ingested, is a micro-batch of its own: the state
    # holds a key of the first day's flight, or of the fourth day's, when another day's comes in the same.
    settings = (ONE_DAY, "speed.max_bytes_per_trigger=1b")
    lake = lake_in(tmp_path_factory.mktemp("streamed") / "lake", spark, small_by_flight, *settings)
    lake.ingest([on(1, 31), on(3, 31), on(1, 1), on(2, 1), on(3, 1), on(2, 2), on(3, 2)])
    lake.ingest([on(4, 61), on(6, 61), on(6, 62)])
    lake.ingest([on(6, 63)])
    stream(lake)
    return lake


@pytest.fixture(scope="module")
def certified(streamed: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The same, of which a night has certified four days, with more keys, and one that recurs daily."""
    to = lake_in(tmp_path_factory.mktemp("certified") / "lake", streamed.spark, streamed.contract, ONE_DAY)
    lake = continued(streamed, to)
    lake.ingest([on(day, number) for day in range(1, 9) for number in (7, 20 + day)])
    lake.ingest([on(2, 11, sent=LATER), on(3, 11, sent=LATER + HOUR), on(4, 51, sent=LATER), on(5, 51)])
    # Others are built with the first one later: it does not matter which are built together.
    run(lake, ONE, FOUR)
    return lake


@dataclass(frozen=True)
class Further:
    """The same after a further night, of the first day and of several more, which looks farther.

    Attributes:
        lake: the lake, to be read.
        rows: rows that both nights were to give, by the first night.
        failed: what the night said of the days that it did not certify.
    """

    lake: Lake
    rows: list[str]
    failed: NightFailed


@pytest.fixture(scope="module")
def further(certified: Lake, tmp_path_factory: pytest.TempPathFactory) -> Further:
    settings = (ONE_DAY, "batch.chain_horizons=9")
    to = lake_in(tmp_path_factory.mktemp("further") / "lake", certified.spark, certified.contract, *settings)
    lake = continued(certified, to)
    rows = rows_of_others(lake)
    # It was sent before all others, so its day has the row, and the third day needs one of its own.
    lake.ingest([on(1, 11)])
    # A flight of which each day's copy loses to the next day's, for longer than any night looks.
    lake.ingest([on(day, 17, sent=LATER + timedelta(days=25) - day * HOUR) for day in range(8, 27)])
    # A key that the speed layer does not have at all is explained by nothing.
    DeltaTable.forPath(lake.spark, lake.config.table("speed")).delete("flight = 62")
    with pytest.raises(NightFailed) as failed:
        nightly(lake.pipeline, "further", [ONE, *days_of(date(2013, 1, 5), EIGHT)])
    return Further(lake, rows, failed.value)


def without_later_rows(choose: Callable[..., DataFrame], *given_: Any) -> DataFrame:
    """A choice of rows that has none of a flight after the first of its days."""
    return choose(*given_).where("flight != 1 OR _event_date = DATE'2013-01-01'")


def rows_of_others(lake: Lake) -> list[str]:
    """The rows of four days, but for the flight of which another copy wins later."""
    rows = lake.table("batch").where("flight <> 11 AND _event_date < DATE'2013-01-05'")
    return sorted(map(str, rows.collect()))


@pytest.mark.thorough
def test_a_key_on_several_days_in_a_row_has_a_row_within_the_horizon_of_each(
    certified: Lake, further: Further
) -> None:
    # Of the last one an uncertified day has the copy that wins.
    assert days_of_flights(certified, 1, 2, 7, 51) == [[1, 3], [2], [1, 3], []]
    assert days_of_flights(further.lake, 1, 2, 7, 51) == [[1, 3], [2], [1, 3, 5, 7], [5]]
    # Nor does it matter which days are built together.
    assert rows_of_others(further.lake) == further.rows


@pytest.mark.thorough
def test_an_event_that_the_stream_took_for_a_copy_is_certified_and_named(
    streamed: Lake, certified: Lake, further: Further
) -> None:
    asked = asked_key(streamed.contract, ["carrier=UA", "flight=31", "origin=EWR"])
    (_, (_, fate)) = explain(streamed.pipeline, asked, 1).records
    assert (fate.verdict, "had flights-0 @ 0 of this key" in fate.reason) == ("remembered", True)
    samples = samples_of(certified.pipeline, THREE, "run")
    remembered = [sample.batch for sample in samples if sample.difference == "remembered"]
    assert sorted(batch["offset"] for batch in remembered if batch) == [1, 4]
    assert days_of_flights(certified, 31) == [[1, 3]]
    assert re.search(r"2013-01-06 layers_agree: .* 1 remembered and 1 unexplained keys", str(further.failed))
    assert further.failed.result.days[date(2013, 1, 6)] == "failed"


@pytest.mark.thorough
def test_a_copy_that_wins_later_moves_every_row_of_the_chain(certified: Lake, further: Further) -> None:
    assert days_of_flights(certified, 11) == [[2]]
    done = further.failed.result.days
    passed = [day for day, status in done.items() if status == "certified"]
    assert passed == [date(2013, 1, day) for day in (1, 2, 3, 5, 7)]
    assert days_of_flights(further.lake, 11) == [[1, 3]]


@pytest.mark.thorough
def test_a_key_that_recurs_daily_fails_the_day_and_is_named(further: Further) -> None:
    said = r"2013-01-08 keys_come_to_an_end: found 1 keys .*UA, 17, EWR\. .*does not identify an event"
    assert re.search(said, str(further.failed))
    assert further.failed.result.days[EIGHT] == "failed"
    # One that recurs for some days comes to an end where a night looks that far.
    contract = replace(further.lake.contract, key=("flight",))
    events = frame(further.lake.spark, [(7, day, day) for day in range(8)])
    for horizons, undecided in ((4, {(7, 7, 7)}), (9, set())):
        batch = further.lake.config.batch.model_copy(update={"chain_horizons": horizons})
        config = further.lake.config.model_copy(update={"batch": batch})
        span = span_of(replace(further.lake.pipeline, config=config, contract=contract), [EIGHT], None)
        rows = winners_on_known_days(
            events.where(F.col("_event_date").isin(span.near)), contract, span.horizon, span.known_days
        )
        assert decided_or_not(rows.where(F.col("_event_date") == F.lit(EIGHT)))[1] == undecided


def test_the_audit_finds_by_itself_what_a_rebuild_loses(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.ingest([on(day, number) for day in (1, 2, 3) for number in (1, 2 + day)])
    # A flight of which each day's copy loses to the next day's, for longer than a night looks.
    lake.ingest([on(day, 17, sent=LATER + timedelta(days=25) - day * HOUR) for day in range(3, 22)])
    monkeypatch.setattr(rebuild, "kept_copies", partial(without_later_rows, kept_copies))
    monkeypatch.setattr(recount, "winners_on_known_days", partial(without_later_rows, winners_on_known_days))
    with pytest.raises(NightFailed, match="2013-01-03 each_event_has_a_row: found 1 records") as failed:
        run(lake, ONE, THREE)
    assert re.search(r"2013-01-03 keys_come_to_an_end: found 1 keys .*UA, 17, EWR", str(failed.value))
    assert failed.value.result.days[THREE] == "failed"


@pytest.mark.thorough
def test_a_day_that_opens_the_way_back_gives_a_certified_day_its_row(lake: Lake) -> None:
    # The second day's copy wins over the first's, and loses to the third's, which came after both verdicts.
    lake.ingest([on(1, 1, sent=LATER + timedelta(hours=2)), on(2, 1, sent=LATER + timedelta(hours=1))])
    lake.ingest([on(1, 9), on(2, 9), on(9, 9)])
    run(lake, ONE, TWO)
    assert days_of_flights(lake, 1) == [[2]]
    lake.ingest([on(3, 1, sent=LATER)])
    assert set(run(lake, THREE).days.values()) == {"certified"}
    assert days_of_flights(lake, 1) == [[1, 3]]


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


def part_of(events: DataFrame, days: Sequence[date]) -> DataFrame:
    return events.where(F.col("_event_date").isin(days))


def found(rows: DataFrame) -> set[Copy]:
    return {copy for copies in decided_or_not(rows.withColumn(UNDECIDED, F.lit(False))) for copy in copies}


def decided_or_not(rows: DataFrame) -> tuple[set[Copy], set[Copy]]:
    """The rows that are chosen, and those that may be."""
    columns = ("flight", F.datediff("_event_date", F.lit(ONE)).alias("day"), "_offset", UNDECIDED)
    chosen: tuple[set[Copy], set[Copy]] = set(), set()
    for row in rows.select(*columns).collect():
        chosen[row[UNDECIDED]].add((row["flight"], row["day"], row["_offset"]))
    return chosen


@pytest.mark.thorough
def test_nothing_hangs_on_days_that_retention_has_removed(lake: Lake) -> None:
    contract = replace(lake.contract, key=("flight",))
    events = frame(lake.spark, [(1, 1, 0), (1, 2, 1), (2, 6, 0), (2, 7, 1)])

    def chosen_of(whole: date | None) -> tuple[set[Copy], set[Copy]]:
        span = span_of(replace(lake.pipeline, contract=contract), [THREE], whole)
        rows = winners_on_known_days(
            events.where(F.col("_event_date").isin(span.near)), contract, span.horizon, span.known_days
        )
        return decided_or_not(rows)

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
        part = winners_on_known_days(part_of(events, known), contract, horizon, known)
        decided, undecided = decided_or_not(part)
        of_part = {copy for copy in expected if 3 <= copy[1] <= 10}
        assert decided <= of_part <= decided | undecided
        assert horizon or not undecided
        # The rebuild goes another way, in one pass.
        built = found(kept_copies(clustered(part_of(events, known), contract, 1), contract, horizon, known))
        assert built == decided | undecided

    check()
