"""Nothing is certified by the index of another bronze than the one at hand."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable

from pipelines.audit.audited_days import AuditedDays
from pipelines.audit.integrity_checks import INTEGRITY_CHECKS
from pipelines.contracts.contract import DataContract
from pipelines.contracts.event_days import Span
from pipelines.delta.io import append, read
from pipelines.delta.record_tables import ensure_bronze
from pipelines.delta.table_properties import (
    REMOVED_BELOW,
    WHOLE_FROM,
    set_table_properties,
    set_table_property,
)
from pipelines.delta.tables import ensure_table, shape, table_id, version
from pipelines.errors import SourceError
from pipelines.fault_points import Point, armed
from pipelines.ledger.bronze_index import BronzeIndex, bronze_slice
from pipelines.ledger.bronze_indexer import index_bronze, require_known_offsets
from pipelines.ledger.certifications import Verdict, history, newest_certified, of_bronze
from pipelines.ledger.decoding import decoding_key_of_bronze
from pipelines.ledger.leases import Lease, lease
from pipelines.nightly.rebuild_plan import due_days
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.session import forget_tables
from pipelines.steps.report import report
from tests.support.changes_by_hand import change_by_hand
from tests.support.lakes import EPOCH, Lake, Record
from tests.support.nights import LATER, ONE, THREE, TWO, on, run
from tests.support.prepared_lakes import Nights

OLD_INDEX = (
    "pipeline string, made_for string, until bigint, kind string, commit bigint, ingested_at timestamp,"
    " day date, reason string, records bigint, newest timestamp, topic string, partition int, first bigint,"
    " last bigint, distinct bigint, sent timestamp"
)


@pytest.fixture
def lake(make_lake: Callable[..., Lake], small: DataContract) -> Lake:
    return make_lake("batch.seal_wait=0 seconds", contract=replace(small, day_rules=()))


def index_of(lake: Lake, *, keep: bool = True) -> BronzeIndex:
    if not keep:
        return kept_index(lake, None)
    with lease(lake.pipeline, "index") as held:
        return kept_index(lake, held)


def kept_index(lake: Lake, held: Lease | None) -> BronzeIndex:
    """The index of bronze as it is, which is kept if a lease is held."""
    return index_bronze(lake.pipeline, version(lake.spark, lake.config.table("bronze")), held)


def put_aside(lake: Lake) -> Path:
    """Moves bronze aside, as one does with a table that shall be made anew."""
    bronze = Path(lake.config.table("bronze"))
    return bronze.rename(bronze.with_name("aside"))


def flights(day: int, numbers: range) -> list[Record]:
    """Departures of a day, by their offsets."""
    return [replace(on(day, number + 1), offset=number) for number in numbers]


@pytest.mark.thorough
def test_a_day_of_a_bronze_that_was_made_anew_is_certified_with_all_that_it_holds(
    certified_lake: Callable[[Nights], Lake], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = certified_lake("one night")
    lake.contract = replace(lake.contract, day_rules=())
    bronze = lake.config.table("bronze")
    known = version(lake.spark, bronze)
    put_aside(lake)
    # As many commits as the index knows already, of a day that it has other records of.
    lake.ingest(flights(2, range(120)))
    assert version(lake.spark, bronze) == known
    found = run(lake, TWO)
    assert (found.days, found.counts.records, found.counts.rows) == ({TWO: "certified"}, 120, 120)
    one, two = newest_certified(history(lake.pipeline)).values()
    assert two.bronze_id is not None
    assert two.bronze_id.startswith(table_id(lake.spark, lake.config.table("bronze")))
    assert (one.bronze_id == two.bronze_id, two.bronze) == (False, 120)
    # What is certified of the day before may be all that is left of it.
    assert (
        "holds fewer records than when they were built; they are left as they are: 2013-01-01" in caplog.text
    )
    checked = read(lake.spark, lake.config.ops_table("validation_results")).where("day = DATE'2013-01-02'")
    whole = checked.where("name = 'index_is_whole'").select("status", "expected")
    assert [tuple(row) for row in whole.collect()] == [("passed", "120 records in bronze")]
    with pytest.raises(SourceError, match=f"on 2013-01-01 names version {known} of another table"):
        report(lake.pipeline, ONE, tmp_path / "reports")


@pytest.mark.thorough
def test_a_bronze_that_lacks_what_nights_have_seen_is_refused_until_it_says_from_which_day_it_is_whole(
    lake: Lake,
) -> None:
    lake.ingest(flights(1, range(10)))
    lake.ingest([Record(None, partition=1, offset=n) for n in range(4)])
    index_of(lake)
    put_aside(lake)
    lake.ingest(flights(2, range(5, 30)))
    for keep in (True, False, True):
        with pytest.raises(SourceError, match="records are gone that nightly runs have seen") as refused:
            index_of(lake, keep=keep)
    assert "flights-0: the offsets 0..9 except 5..9; flights-1: all of the offsets 0..3" in str(refused.value)
    set_table_property(lake.spark, lake.config.table("bronze"), WHOLE_FROM, "2013-01-02")
    assert index_of(lake).counts() == ({TWO: 25}, 0)


def test_retention_explains_no_more_than_it_has_removed(lake: Lake) -> None:
    """As where a person deletes rows for want of room, and `maintain` has run since the last night."""
    bronze = lake.config.table("bronze")
    lake.ingest(flights(1, range(4)))
    lake.ingest(flights(2, range(4, 8)))
    index_of(lake)
    set_table_properties(
        lake.spark, bronze, {WHOLE_FROM: "2013-01-02", REMOVED_BELOW: "2013-01-02 flights-0@4"}
    )
    change_by_hand(lake.spark, bronze, lambda rows: rows.delete("_offset < 4"))
    assert index_of(lake, keep=False).counts() == ({TWO: 4}, 0)
    change_by_hand(lake.spark, bronze, lambda rows: rows.delete("_offset < 6"))
    with pytest.raises(SourceError, match=r"records are gone .*flights-0: the offsets 4\.\.7 except 6\.\.7"):
        index_of(lake)
    with pytest.raises(SourceError, match="records are gone"):
        require_known_offsets(lake.pipeline)
    set_table_property(lake.spark, bronze, WHOLE_FROM, "2013-01-03")
    # What `maintain` asks: a removal now would look as if it explained the loss.
    assert not require_known_offsets(lake.pipeline)
    assert index_of(lake).counts() == ({TWO: 2}, 0)
    assert require_known_offsets(lake.pipeline)


def test_a_bronze_that_was_put_back_from_a_copy_and_went_on_is_not_taken_for_what_it_was(lake: Lake) -> None:
    bronze = Path(lake.config.table("bronze"))
    lake.ingest(flights(1, range(4)))
    shutil.copytree(bronze, bronze.with_name("copy"))
    lake.ingest(flights(1, range(4, 8)))
    with lease(lake.pipeline, "index") as held:
        first = kept_index(lake, held)
        put_aside(lake)
        bronze.with_name("copy").rename(bronze)
        lake.ingest(flights(2, range(8, 12)))
        with pytest.raises(SourceError, match=r"flights-0: the offsets 0\.\.7 except 0\.\.3"):
            kept_index(lake, held)
        # Ingest reads again what Kafka has still.
        lake.ingest([*flights(1, range(4, 8)), *flights(2, range(8, 12))])
        second = kept_index(lake, held)
        assert (second.counts(), first.counts()) == (({ONE: 8, TWO: 8}, 0), ({ONE: 8}, 0))
        assert table_id(lake.spark, str(bronze)) == first.bronze_id != second.bronze_id
        assert kept_index(lake, None).bronze_id == second.bronze_id
        # Its versions say nothing of what came for days certified before; the number of records does.
        names = (
            "batch_version",
            "rows",
            "duplicates",
            "conflicts",
            "late",
            "quarantined",
            "other_days",
            "bronze",
        )
        counts: dict[str, Any] = dict.fromkeys(names, 5)
        before = Verdict(
            pipeline="flights",
            day=ONE,
            status="certified",
            run_id="run",
            bronze_version=99,
            records=5,
            decided_at=EPOCH,
            bronze_id=first.bronze_id,
            **counts,
        )
        due = due_days(lake.pipeline, second, [TWO], "late", [before])
        assert due.came_late == {ONE: 3}

        # The same table, cut by hand.
        set_table_property(lake.spark, str(bronze), "delta.appendOnly", "false")
        DeltaTable.forPath(lake.spark, str(bronze)).delete("_offset = 5")
        with pytest.raises(SourceError, match=r"flights-0: 1 of the offsets 0\.\.11\."):
            kept_index(lake, held)


@pytest.mark.thorough
def test_a_bronze_that_was_put_back_from_the_same_copy_twice_is_missed_what_it_lacks(lake: Lake) -> None:
    bronze = Path(lake.config.table("bronze"))
    lake.ingest(flights(1, range(4)))
    copy = shutil.copytree(bronze, bronze.with_name("copy"))

    def put_back() -> None:
        shutil.rmtree(bronze)
        shutil.copytree(copy, bronze)
        forget_tables()

    # The first time it lacks no record.
    set_table_property(lake.spark, str(bronze), "oncelake.test", "1")
    index_of(lake)
    put_back()
    assert index_of(lake).counts() == ({ONE: 4}, 0)
    lake.ingest(flights(1, range(4, 8)))
    assert index_of(lake).counts() == ({ONE: 8}, 0)
    put_back()
    with pytest.raises(SourceError, match=r"flights-0: the offsets 0\.\.7 except 0\.\.3"):
        index_of(lake)


def put_back_and_killed(lake: Lake) -> None:
    """Puts the copy of the log of the index back before a run writes to it, and ends the run after that."""
    log = Path(lake.config.ops_table("bronze_index"), "_delta_log")
    copy = log.with_name("copy")

    def put_back() -> None:
        if not copy.exists():
            raise RuntimeError("the run is killed")
        shutil.rmtree(log)
        copy.rename(log)

    with armed(Point.INDEX_ROWS_READ, put_back), pytest.raises(RuntimeError, match="the run is killed"):
        index_of(lake)


@pytest.mark.thorough
def test_rows_of_another_contract_that_a_copy_of_the_index_brings_back_are_not_taken(lake: Lake) -> None:
    log = Path(lake.config.ops_table("bronze_index"), "_delta_log")
    lake.ingest([*flights(1, range(2)), replace(on(1, 3, origin="LAX"), offset=2)])
    assert index_of(lake).counts() == ({ONE: 2}, 1)
    shutil.copytree(log, log.with_name("copy"))
    lake.contract = replace(lake.contract, row_rules=())
    assert index_of(lake).counts() == ({ONE: 3}, 0)
    lake.ingest(flights(1, range(3, 4)))

    # The copy lacks the commit by which the rows of the second contract took the place of those of the first.
    # With what came since they count as many records as bronze has. The run sees that they are not its own.
    put_back_and_killed(lake)
    for keep in (False, True):
        assert index_of(lake, keep=keep).counts() == ({ONE: 4}, 0)


@pytest.mark.thorough
def test_a_copy_of_the_index_from_before_retention_does_not_say_that_records_are_missing(lake: Lake) -> None:
    bronze = lake.config.table("bronze")
    lake.ingest(flights(1, range(4)))
    index_of(lake)
    log = Path(lake.config.ops_table("bronze_index"), "_delta_log")
    shutil.copytree(log, log.with_name("copy"))
    for name, value in ((WHOLE_FROM, "2013-01-02"), ("delta.appendOnly", "false")):
        set_table_property(lake.spark, bronze, name, value)
    DeltaTable.forPath(lake.spark, bronze).delete("_offset < 2")
    assert index_of(lake).counts() == ({ONE: 2}, 0)
    lake.ingest(flights(2, range(4, 6)))
    put_back_and_killed(lake)
    assert index_of(lake).counts() == ({ONE: 2, TWO: 2}, 0)


@pytest.mark.parametrize("is_anew", [False, True])
def test_what_was_read_of_a_bronze_that_was_replaced_meanwhile_is_not_written(
    lake: Lake, is_anew: bool
) -> None:
    bronze = Path(lake.config.table("bronze"))
    lake.ingest(flights(1, range(4)))
    if not is_anew:
        index_of(lake)
    shutil.copytree(bronze, bronze.with_name("copy"))
    lake.ingest(flights(1, range(4, 8)))

    def replaced() -> None:
        put_aside(lake)
        bronze.with_name("copy").rename(bronze)
        lake.ingest(flights(1, range(9, 12)))

    with armed(Point.INDEX_ROWS_READ, replaced), pytest.raises(SourceError, match="while this run read it"):
        index_of(lake)
    assert index_of(lake).counts() == ({ONE: 7}, 0)


@pytest.mark.thorough
def test_an_index_from_before_bronze_had_a_name_goes_on_to_tell_what_came_late(lake: Lake) -> None:
    lake.ingest(flights(1, range(3)))
    lake.ingest(flights(2, range(3, 5)))
    run(lake, ONE)
    ledger = DeltaTable.forPath(lake.spark, lake.config.ops_table("certifications"))
    ledger.update(set={"bronze_id": "NULL"})
    table = lake.config.ops_table("bronze_index")
    rows = read(lake.spark, table).select(*shape(OLD_INDEX).names).localCheckpoint()
    shutil.rmtree(table)
    ensure_table(lake.spark, table, shape(OLD_INDEX), partitions=["pipeline"])
    append(rows, table)
    lake.ingest([replace(on(1, 9, sent=LATER), offset=5)])
    index = index_of(lake)
    verdicts = history(lake.pipeline)
    due = due_days(lake.pipeline, index, [TWO], "late", verdicts)
    assert (due.causes, due.came_late) == ({ONE: "late", TWO: "asked"}, {ONE: 1})
    named = replace(verdicts[0], bronze_id="another")
    assert of_bronze([*verdicts, named], index.bronze_id) == []


@pytest.mark.thorough
def test_a_run_keeps_to_its_index_and_an_index_that_does_not_count_as_bronze_does_is_made_anew(
    certified_lake: Callable[[Nights], Lake],
) -> None:
    lake = certified_lake("one night")
    lake.ingest([on(2, 5)])
    index = index_of(lake)
    DeltaTable.forPath(lake.spark, lake.config.ops_table("bronze_index")).delete("day = DATE'2013-01-02'")
    counts = {ONE: 1, TWO: 3, THREE: 1}
    assert index.counts() == (counts, 0)
    assert index_of(lake, keep=False).counts() == (counts, 0)
    lake.ingest([on(2, 6)])
    assert index_of(lake).counts() == (counts | {TWO: 4}, 0)


def test_the_audit_counts_bronze_without_its_index(certified_lake: Callable[[Nights], Lake]) -> None:
    lake = certified_lake("one night")
    index = index_of(lake, keep=False)
    [check] = [check for check in INTEGRITY_CHECKS if check.name == "index_is_whole"]
    for rows, status in (
        (index.rows, "passed"),
        (index.rows.where("NOT day <=> DATE'2013-01-02'"), "failed"),
    ):
        of_two = bronze_slice(lake.pipeline, replace(index, rows=rows), [TWO], index.version)
        finding = check.find(AuditedDays(lake.pipeline, Span([TWO], [TWO], 0), [TWO], of_two, 0))[TWO]
        assert (finding.status, finding.expected) == (status, "4 records in bronze")


def test_whatever_decides_how_records_decode_decides_for_which_index(
    make_lake: Callable[..., Lake], small: DataContract
) -> None:
    lake = make_lake(contract=small)
    ensure_bronze(lake.pipeline)
    longer = lake.config.model_copy(
        update={"decode": lake.config.decode.model_copy(update={"max_future": timedelta(hours=3)})}
    )
    bronze = ("id", None)
    others = [
        (lake.config, replace(small, key=("carrier", "flight", "origin")), bronze),
        (lake.config, replace(small, row_rules=small.row_rules[1:]), bronze),
        (lake.config, replace(small, day_time_zone="UTC"), bronze),
        (longer, small, bronze),
        (lake.config, small, ("other", None)),
        (lake.config, small, ("id", date(2013, 1, 1))),
    ]
    keys = [
        decoding_key_of_bronze(Pipeline(lake.spark, config, contract), *name)
        for config, contract, name in ((lake.config, small, bronze), *others)
    ]
    assert len({*keys}) == len(keys)
    assert decoding_key_of_bronze(replace(lake.pipeline, contract=small), *bronze) == keys[0]
