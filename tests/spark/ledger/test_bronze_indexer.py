"""What the index counts, held against the records themselves."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from delta.tables import DeltaTable
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.delta.table_properties import REMOVED_BELOW, WHOLE_FROM
from pipelines.delta.tables import version
from pipelines.delta.upkeep import delete_rows
from pipelines.errors import SourceError
from pipelines.ledger.bronze_index import BronzeIndex
from pipelines.ledger.bronze_indexer import index_bronze
from pipelines.ledger.index_folding import fold_index
from pipelines.ledger.leases import lease
from tests.support.changes_by_hand import change_by_hand
from tests.support.delta_rows import rows_in
from tests.support.lakes import Lake, Record, flight
from tests.support.nights import ONE, THREE, TWO, on


def index_of(lake: Lake) -> BronzeIndex:
    with lease(lake.pipeline, "index") as held:
        return index_bronze(lake.pipeline, version(lake.spark, lake.config.table("bronze")), held)


def test_different_offsets_are_counted_whatever_comes_twice_or_is_missing(
    make_lake: Callable[..., Lake],
) -> None:
    random = Random(0)  # noqa: S311 - nothing here is secret
    lake, held = make_lake(), dict[int, list[int]]()
    for begin in (0, 200, 400):
        records = []
        for partition in range(2):
            # More than a block of offsets, with gaps, and some of them twice within the micro-batch.
            offsets = random.choices(range(begin, begin + 150), k=120)
            records += [Record(flight(), partition, offset) for offset in offsets]
            held.setdefault(partition, []).extend(offsets)
        lake.ingest(records)
    bronze = version(lake.spark, lake.config.table("bronze"))
    counted = {each.partition: each for each in index_bronze(lake.pipeline, bronze).offsets()}
    for partition, offsets in held.items():
        each = counted[partition]
        assert (each.first, each.last) == (min(offsets), max(offsets))
        assert (each.records, each.distinct) == (len(offsets), len({*offsets}))


def removed_below(lake: Lake, offset: int) -> None:
    """Lets retention remove the first records."""
    cut = {WHOLE_FROM: "2013-01-02", REMOVED_BELOW: f"2013-01-02 flights-0@{offset}"}
    with lease(lake.pipeline, "maintain") as held:
        delete_rows(lake.spark, lake.config.table("bronze"), f"_offset < {offset}", cut, held.stamp)


@pytest.fixture
def five_batches(make_lake: Callable[..., Lake], small: DataContract) -> Lake:
    """Micro-batches of 00:57, 00:58, 00:59, 01:00 and 01:01, of three records each, which are indexed.

    For the next one it is past two.
    """
    pipeline = make_lake(contract=replace(small, day_rules=())).pipeline
    lake = Lake(pipeline, {}, itertools.count(57))
    for day in (1, 2, 2, 2, 3):
        lake.ingest([on(day, 1), on(day, 2), Record(b"broken")])
        if day == 1:
            # The index knows the versions by which records came since it was built first.
            index_of(lake)
    index_of(lake)
    return Lake(pipeline, {0: itertools.count(15)}, itertools.count(125))


def mark_second_hour(lake: Lake) -> None:
    """Makes rows of the index recognizable that are of the second hour."""
    index = DeltaTable.forPath(lake.spark, lake.config.ops_table("bronze_index"))
    index.update(
        "day IS NOT NULL AND ingested_at >= TIMESTAMP'2026-01-01 01:00:00Z'",
        {"clock": "TIMESTAMP'2000-01-01 00:00:00Z'"},
    )


def marked_rows(lake: Lake) -> int:
    """How many of these rows are there."""
    clocks = [clock for _, clock in rows_in(lake.config.ops_table("bronze_index"), "kind", "clock") if clock]
    return sum(clock.year == 2000 for clock in clocks)


@pytest.mark.parametrize("is_folded", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_after_retention_records_are_decoded_again_only_of_hours_that_have_lost_some(
    five_batches: Lake, is_folded: bool
) -> None:
    lake = five_batches
    if is_folded:
        with lease(lake.pipeline, "fold") as held:
            assert fold_index(lake.pipeline, held) > 0
    mark_second_hour(lake)
    # The first micro-batch, and a part of the second.
    removed_below(lake, 4)
    lake.ingest([on(3, 3), on(1, 3)])
    found = index_of(lake)
    assert found.counts() == ({ONE: 1, TWO: 5, THREE: 3}, 4)
    (offsets,) = found.offsets()
    assert (offsets.first, offsets.last, offsets.records, offsets.distinct) == (4, 16, 13, 13)
    assert marked_rows(lake) == 2
    # The versions that they came by are known still.
    commits = {row["at"].minute: row["commit"] for row in found.micro_batches().collect()}
    assert commits[58] < commits[59] < commits[0] < commits[1] < commits[5]
    again = index_of(lake)
    assert (again.counts(), again.offsets()) == (found.counts(), found.offsets())


@pytest.mark.thorough
def test_of_an_hour_in_which_as_many_records_came_as_were_removed_all_are_decoded_again(
    make_lake: Callable[..., Lake], small: DataContract
) -> None:
    lake = make_lake(contract=replace(small, day_rules=()))
    lake.ingest([on(1, 1), on(2, 1)])
    index_of(lake)
    removed_below(lake, 1)
    lake.ingest([on(3, 1)])
    assert index_of(lake).counts() == ({TWO: 1, THREE: 1}, 0)


@pytest.mark.parametrize("is_cut", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_records_that_somebody_has_changed_in_place_are_decoded_again(
    five_batches: Lake, is_cut: bool
) -> None:
    lake = five_batches
    mark_second_hour(lake)
    if is_cut:
        removed_below(lake, 4)
    (changed,) = lake.envelopes([replace(on(1, 9), offset=14)]).collect()
    change_by_hand(
        lake.spark,
        lake.config.table("bronze"),
        lambda rows: rows.update("_offset = 14", {"value": F.lit(changed["value"])}),
    )
    lake.ingest([on(3, 3)])
    counts = {ONE: 1, TWO: 5, THREE: 3} if is_cut else {ONE: 3, TWO: 6, THREE: 3}
    assert index_of(lake).counts() == (counts, 3 if is_cut else 4)
    assert marked_rows(lake) == 0


def test_what_a_run_was_refused_for_the_next_run_is_refused_for_too(
    make_lake: Callable[..., Lake], small: DataContract
) -> None:
    """Rows were deleted by hand from a partition with gaps, and from a file that retention has rewritten."""
    lake = make_lake(contract=replace(small, day_rules=()))
    lake.ingest([replace(on(2, number), offset=2 * number) for number in range(20)])
    index_of(lake)
    removed_below(lake, 4)
    change_by_hand(
        lake.spark, lake.config.table("bronze"), lambda rows: rows.delete("_offset BETWEEN 20 AND 30")
    )
    lake.ingest([replace(on(3, 1), offset=40)])
    for _ in range(2):
        with pytest.raises(SourceError, match="flights-0: 4 of the offsets"):
            index_of(lake)
