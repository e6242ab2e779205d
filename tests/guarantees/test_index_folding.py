"""An index whose old rows are folded answers what it answered before."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from delta.tables import DeltaTable
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.delta.epochs import StaleEpoch
from pipelines.delta.io import append, read
from pipelines.delta.tables import small_frame, version
from pipelines.ledger.bronze_index import OFFSETS, RECORDS, BronzeIndex
from pipelines.ledger.bronze_indexer import index_bronze
from pipelines.ledger.certifications import history, newest_certified
from pipelines.ledger.index_folding import fold, fold_index
from pipelines.ledger.leases import lease
from pipelines.ledger.ops_tables import BRONZE_INDEX
from pipelines.retention.upkeep_run import FoldedIndex
from pipelines.steps.maintain import maintain
from pipelines.steps.nightly import nightly
from tests.support.lakes import Lake, Record
from tests.support.nights import LATER, ONE, THREE, TWO, on, run, stream

BEGIN = datetime(2026, 1, 1, 23, 30, tzinfo=UTC)
DAYS = (ONE, TWO, THREE)
REASONS = ("null_value", "unknown_schema")
# To the end of the second hour: what came later is left as it came.
OLD = "coalesce(ingested_at < TIMESTAMP'2026-01-02 01:00:00Z', until <= {})"


@dataclass(frozen=True)
class Piece:
    """A micro-batch: seconds since the one before, records by day (None: broken), newest, and its offsets."""

    after: int
    records: dict[date | str, int]
    minute: int
    offset: int
    length: int
    gap: bool
    ends_run: bool


_pieces = st.builds(
    Piece,
    after=st.sampled_from([10, 10, 60, 700, 1800]),
    records=st.dictionaries(st.sampled_from([*DAYS, *REASONS]), st.integers(1, 3), min_size=1),
    minute=st.integers(-90, 90),
    # Mostly right behind the last one, sometimes read again, or behind a gap.
    offset=st.sampled_from([0, 0, 0, 0, -2, 1]),
    length=st.integers(1, 3),
    gap=st.booleans(),
    ends_run=st.booleans(),
)


def rows_of(pieces: list[Piece]) -> list[dict[str, Any]]:
    """The index as nights would have made it, of micro-batches two versions apart."""
    rows: list[dict[str, Any]] = []
    nothing = dict.fromkeys(BRONZE_INDEX.schema.names)
    moment, end, pending = BEGIN, {0: 0, 1: 0}, list[dict[str, Any]]()
    for number, piece in enumerate(pieces):
        moment, commit = moment + timedelta(seconds=piece.after), 2 * number
        for key, records in piece.records.items():
            is_valid = isinstance(key, date)
            newest = moment + timedelta(minutes=piece.minute)
            pending.append(
                {
                    "kind": RECORDS,
                    "commit": commit,
                    "ingested_at": moment,
                    "day": key if is_valid else None,
                    "reason": None if is_valid else key,
                    "records": records,
                    "newest": newest if is_valid else None,
                    "clock": min(newest, moment) if is_valid else None,
                }
            )
        first = max(end[number % 2] + piece.offset, 0)
        last = first + piece.length - 1 + piece.gap
        end[number % 2] = last + 1
        pending.append(
            {
                "kind": OFFSETS,
                "topic": "t",
                "partition": number % 2,
                "first": first,
                "last": last,
                "records": piece.length,
                "distinct": piece.length,
                "sent": moment,
                "appended": moment if number % 2 else None,
            }
        )
        if piece.ends_run or number == len(pieces) - 1:
            made = {"pipeline": "p", "made_for": "m", "until": commit + 1, "until_commit": f"c{commit}"}
            rows += [nothing | row | made for row in pending]
            pending = []
    return rows


def answers(index: BronzeIndex, known: dict[date, int], since: datetime, clock: datetime) -> dict[str, Any]:
    """What callers ask of an index, but for `ranges`."""
    moved = index.newest_events(since, clock).orderBy("_ingested_at").toArrow().to_pylist()
    made = index.rows.selectExpr("max_by(until_commit, until) AS made").toArrow().to_pylist()
    return {
        "counts": index.counts(),
        "total": index.total(),
        "reasons": index.reasons(),
        "came_since": index.records_after(known, index.rows.sparkSession),
        "then": [index.until(at).counts() for at in sorted({*known.values()})],
        "offsets": index.offsets(),
        "moved": moved,
        "commits": index.micro_batches().orderBy("at").toArrow().to_pylist(),
        "newest_ingest": index.newest_ingest(),
        "made": made,
    }


def wanted(frame: DataFrame, days: list[date], since: int) -> list[datetime]:
    """The moments that `ranges` must hold, of rows as they came."""
    return [
        row["ingested_at"]
        for row in frame.where("kind = 'records'").toArrow().to_pylist()
        if row["day"] in days or row["commit"] > since
    ]


@given(
    pieces=st.lists(_pieces, min_size=30, max_size=80),
    known=st.lists(st.integers(0, 120), min_size=3, max_size=3),
    others=st.lists(st.integers(0, 120), max_size=3),
    minutes=st.tuples(st.integers(-5, 300), st.integers(-5, 300)),
)
@settings(
    max_examples=2,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_any_history_is_told_as_before(
    spark: SparkSession,
    pieces: list[Piece],
    known: list[int],
    others: list[int],
    minutes: tuple[int, int],
) -> None:
    frame = small_frame(spark, rows_of(pieces), BRONZE_INDEX.schema).persist()
    versions = dict(zip(DAYS, known, strict=True))
    since, clock = (BEGIN + timedelta(minutes=after) for after in minutes)
    before = BronzeIndex(99, "b", frame)
    newest = frame.where("ingested_at < TIMESTAMP'2026-01-02 01:00:00Z'").selectExpr("max(commit)")
    old = OLD.format(newest.toArrow().to_pylist()[0]["max(commit)"])
    # The last hour is folded again, with rows that are folded already.
    half = fold(frame.where("coalesce(ingested_at < TIMESTAMP'2026-01-02 00:10:00Z', false)"), known)
    rest = frame.where("NOT coalesce(ingested_at < TIMESTAMP'2026-01-02 00:10:00Z', false)")
    twice = half.unionByName(rest)
    folded = fold(twice.where(old), [*known, *others]).unionByName(twice.where(f"NOT {old}")).persist()
    after = BronzeIndex(99, "b", folded)
    try:
        assert answers(after, versions, since, clock) == answers(before, versions, since, clock)
        spans = after.ranges([ONE, THREE], known[0])
        for moment in wanted(frame, [ONE, THREE], known[0]):
            assert any(first <= moment <= last for first, last in spans), moment
    finally:
        frame.unpersist()
        folded.unpersist()


@pytest.fixture
def lake(make_lake: Callable[..., Lake], small: DataContract) -> Lake:
    return make_lake("batch.lookback_days=3", "maintain.compact=false", contract=small)


def index_of(lake: Lake) -> BronzeIndex:
    return index_bronze(lake.pipeline, version(lake.spark, lake.config.table("bronze")))


def index_rows(lake: Lake) -> int:
    return read(lake.spark, lake.config.ops_table("bronze_index")).where("kind = 'records'").count()


@pytest.mark.thorough
def test_a_day_is_repaired_and_compared_with_the_speed_layer_by_a_folded_index(lake: Lake) -> None:
    for number in range(1, 5):
        lake.ingest([on(1, number)])
    lake.ingest([on(2, 1)])
    lake.ingest([on(1, 5, sent=LATER)])
    lake.ingest([on(2, 2), Record(None)])
    stream(lake)
    run(lake, ONE)
    lake.ingest([on(2, 3)])
    stream(lake)
    # Behind the watermark, to which records of the same hour have moved it.
    lake.ingest([on(1, 6, sent=LATER)])
    stream(lake)
    with lease(lake.pipeline, "index") as held:
        index_bronze(lake.pipeline, version(lake.spark, lake.config.table("bronze")), held)
    dry = fold_index(lake.pipeline, None)
    told = maintain(lake.pipeline, "upkeep", dry_run=False)
    # Of each day what came until the first verdict, and what came after it; and the broken record. And one
    # piece of offsets instead of two.
    assert FoldedIndex(6) in told.findings
    assert (dry, index_rows(lake)) == (6, 5)
    assert fold_index(lake.pipeline, None) == 0
    repaired = nightly(lake.pipeline, "repair", [TWO], "late")
    assert repaired.days == {ONE: "certified", TWO: "certified"}
    verdict = newest_certified(history(lake.pipeline))[ONE]
    assert (verdict.cause, verdict.came_late, verdict.rows, verdict.late) == ("late", 1, 6, 1)


@pytest.mark.thorough
def test_of_a_fold_and_a_night_that_lost_its_lease_the_later_one_stands(lake: Lake) -> None:
    lake.ingest([on(1, 1)])
    lake.ingest([on(1, 2)])
    run(lake, ONE)
    lake.ingest([on(1, 3)])
    with lease(lake.pipeline, "night") as night:
        # It stands still, and is taken for dead.
        DeltaTable.forPath(lake.spark, lake.config.ops_table("leases")).update(
            set={"until": "timestamp_seconds(0)"}
        )
        with lease(lake.pipeline, "upkeep") as upkeep:
            assert fold_index(lake.pipeline, upkeep) == 1
            at = version(lake.spark, lake.config.table("bronze"))
            with pytest.raises(StaleEpoch):
                index_bronze(lake.pipeline, at, night)
            with pytest.raises(StaleEpoch):
                fold_index(lake.pipeline, night)
    assert index_of(lake).counts() == ({ONE: 3}, 0)


@pytest.mark.thorough
def test_an_index_that_is_made_anew_knows_of_folded_micro_batches_when_they_came(lake: Lake) -> None:
    for number in (1, 2, 3):
        lake.ingest([on(1, number)])
    run(lake, ONE)
    before = index_of(lake).micro_batches().orderBy("at").toArrow().to_pylist()
    with lease(lake.pipeline, "upkeep") as held:
        assert fold_index(lake.pipeline, held) == 2
    lake.contract = replace(lake.contract, row_rules=lake.contract.row_rules[1:])
    anew = index_of(lake)
    assert anew.micro_batches().orderBy("at").toArrow().to_pylist() == before


@pytest.mark.thorough
def test_rows_of_two_ways_of_decoding_are_not_folded(lake: Lake) -> None:
    """As a copy of the index leaves them that was put back while a run was at work."""
    for number in (1, 2):
        lake.ingest([on(1, number)])
    run(lake, ONE)
    table = lake.config.ops_table("bronze_index")
    others = read(lake.spark, table).withColumn("made_for", F.lit("another contract")).localCheckpoint()
    append(others, table)
    assert fold_index(lake.pipeline, None) == 0
    with lease(lake.pipeline, "night") as night:
        index_bronze(lake.pipeline, version(lake.spark, lake.config.table("bronze")), night)
    assert fold_index(lake.pipeline, None) == 1
