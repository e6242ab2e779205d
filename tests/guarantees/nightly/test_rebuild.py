"""A closed day is rebuilt from bronze, audited as written, and shown only when it passed."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql.types import DataType, DoubleType, FloatType, StringType, StructField, StructType

from pipelines.contracts.custom_properties import Policy
from pipelines.contracts.rules import RowRule
from pipelines.errors import AuditFailed, ConfigError
from pipelines.fault_points import Point, armed
from pipelines.records.decode import decode, valid
from pipelines.records.dedup import winners
from pipelines.steps.serving import read_serving, refresh_view
from pipelines.steps.validate import validate
from tests.support.lakes import EPOCH, Lake
from tests.support.nights import LATER, ONE, THREE, TWO, flights_of, on, run, stream


def test_each_event_stands_once_and_the_first_copy_in_kafka_s_order_wins(lake: Lake) -> None:
    lake.ingest([on(1, 1), on(1, 2, sent=EPOCH + timedelta(hours=1), departure_delay=9.0), b"poison"])
    lake.ingest([on(1, 1), on(1, 2, departure_delay=5.0, partition=1), on(2, 3), on(4, 4)])
    stream(lake)
    summary = run(lake, ONE, TWO)
    assert flights_of(lake.table("batch"), ONE) == [(1, 2.0), (2, 5.0)]
    assert flights_of(lake.table("batch"), TWO) == [(3, 2.0)]
    counts = {"records": 5, "rows": 3, "duplicates": 2, "conflicts": 1, "late": 0, "quarantined": 1}
    assert summary["counts"] == {"days": 2, "days_certified": 2, **counts, "days_repaired": 0}


def test_the_contract_may_let_another_copy_win(lake: Lake) -> None:
    lake.contract = replace(lake.contract, policy=Policy("highest", "departure_delay"))
    later = EPOCH + timedelta(hours=1)
    lake.ingest([on(1, 1, departure_delay=3.0), on(1, 1, sent=later, departure_delay=9.0)])
    lake.ingest([on(1, 1, departure_delay=None), on(3, 3)])
    run(lake, ONE)
    assert flights_of(lake.table("batch"), ONE) == [(1, 9.0)]
    decoded = decode(lake.table("bronze"), lake.contract, timedelta(days=1))
    last = replace(lake.contract, policy=Policy("last"))
    assert flights_of(winners(valid(decoded, last), last, 1), ONE) == [(1, 9.0)]
    first = replace(lake.contract, policy=Policy())
    assert flights_of(winners(valid(decoded, first), first, 1), ONE) == [(1, 3.0)]


def test_more_conflicts_than_the_contract_allows_fail_the_day(lake: Lake) -> None:
    lake.contract = replace(lake.contract, max_conflicts=40.0)
    lake.ingest([on(1, 1), on(1, 2), on(1, 1, departure_delay=5.0), on(3, 3)])
    with pytest.raises(AuditFailed, match=r"conflicts_within_limit: found 1 of 2 events .* 40 % at most"):
        run(lake, ONE)


def test_copies_of_a_key_on_neighbouring_days_are_one_event(
    make_lake: Callable[..., Lake], small_by_flight: Any
) -> None:
    lake = make_lake(contract=small_by_flight)
    lake.ingest([on(2, 1, sent=EPOCH), on(1, 1, sent=EPOCH + timedelta(hours=1)), on(2, 9), on(4, 4)])
    run(lake, ONE, TWO)
    assert flights_of(lake.table("batch"), ONE) == []
    assert [number for number, _ in flights_of(lake.table("batch"), TWO)] == [1, 9]


@pytest.mark.thorough
def test_a_range_of_days_gives_the_rows_that_its_parts_give_in_another_order(
    make_lake: Callable[..., Lake], small_by_flight: Any
) -> None:
    lake = make_lake(contract=small_by_flight)
    lake.ingest([on(1, 1), on(2, 1), on(4, 1), on(4, 2), on(3, 2, sent=LATER), on(7, 3)])
    lake.ingest([on(2, n % 7 + 10, partition=n % 3) for n in range(1, 40)])
    run(lake, ONE, date(2013, 1, 4))
    of_range = sorted(map(str, lake.table("batch").toLocalIterator()))
    run(lake, THREE, date(2013, 1, 4))
    run(lake, ONE, TWO)
    assert sorted(map(str, lake.table("batch").toLocalIterator())) == of_range
    days = [row["_event_date"].day for row in lake.table("batch").where("flight = 1").toLocalIterator()]
    assert sorted(days) == [1, 4], "copies three days apart are two events"


def test_a_day_that_lost_all_its_rows_becomes_empty(lake: Lake) -> None:
    lake.ingest([on(1, 1), on(2, 2), on(3, 3)])
    run(lake, ONE, TWO)
    assert flights_of(lake.table("batch"), TWO) == [(2, 2.0)]
    far_only = (*lake.contract.row_rules, RowRule("distance", "minimum", 1_000_000))
    stricter = lake.variant(contract=replace(lake.contract, row_rules=far_only))
    run(stricter, TWO)
    assert flights_of(lake.table("batch"), TWO) == []
    assert flights_of(read_serving(lake.pipeline), TWO) == []


def test_streams_may_go_on_while_a_day_is_rebuilt(lake: Lake) -> None:
    lake.ingest([on(1, 1), on(3, 3)])
    stream(lake)

    def records_arrive() -> None:
        lake.ingest([on(1, 2)])
        stream(lake)

    with armed(Point.DAYS_BUILT, records_arrive):
        assert run(lake, ONE)["days"] == {"2013-01-01": "certified"}
    assert lake.count("bronze") == 3, "no record has arrived meanwhile"


@pytest.mark.thorough
def test_a_late_event_is_known_as_late_and_put_into_its_day(lake: Lake) -> None:
    lake.ingest([on(1, 1), on(2, 2)])
    stream(lake)
    lake.ingest([on(2, 5)])
    stream(lake)  # Spark holds rows against the watermark of the micro-batch before
    lake.ingest([on(1, 3, sent=LATER), on(3, 4)])
    counts = stream(lake)["counts"]
    assert (counts["records"], counts["rows"], counts["late"]) == (2, 1, 1)
    assert run(lake, ONE)["counts"]["late"] == 1
    assert [number for number, _ in flights_of(read_serving(lake.pipeline), ONE)] == [1, 3]


def test_readers_take_certified_days_from_batch_and_all_others_from_speed(lake: Lake) -> None:
    lake.ingest([on(1, 1), on(1, 1), on(2, 2)])
    stream(lake)
    assert flights_of(read_serving(lake.pipeline), ONE) == [(1, 2.0)]
    run(lake, ONE)
    DeltaTable.forPath(lake.spark, lake.config.table("speed")).delete("_event_date = '2013-01-01'")
    serving = read_serving(lake.pipeline)
    assert flights_of(serving, ONE) == [(1, 2.0)]
    assert flights_of(serving, TWO) == [(2, 2.0)]


@pytest.mark.thorough
def test_the_view_shows_what_read_serving_shows(
    make_lake: Callable[..., Lake], small: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lake = make_lake("serving.view=serving_of_flights", contract=small)
    lake.ingest([on(1, 1), on(1, 1), on(2, 2)])
    stream(lake)
    run(lake, ONE)
    refresh_view(lake.pipeline)
    assert "serving_of_flights is lost when this job ends" in caplog.text
    try:
        viewed = lake.spark.table("serving_of_flights")
        assert sorted(map(str, viewed.toLocalIterator())) == sorted(
            map(str, read_serving(lake.pipeline).select(*viewed.columns).toLocalIterator())
        )
    finally:
        lake.spark.sql("DROP VIEW serving_of_flights")


def test_an_optional_column_added_and_a_type_made_wider_change_the_tables(
    make_lake: Callable[..., Lake], small: Any
) -> None:
    narrow = [replaced(field, FloatType()) if field.name == "air_time" else field for field in small.schema]
    lake = make_lake("serving.view=serving_of_flights", contract=replace(small, schema=StructType(narrow)))
    lake.ingest([on(1, 1, gate="A1"), on(2, 2, gate="B2")])
    stream(lake)
    run(lake, ONE)
    wider = replace(small, schema=StructType([*small.schema.fields, StructField("gate", StringType())]))
    later = Lake(replace(lake.pipeline, contract=wider))
    refresh_view(lake.pipeline)
    # What was certified before lacks the column, and is audited and read all the same.
    with pytest.raises(AuditFailed, match="rows_are_the_winners"):
        validate(replace(lake.pipeline, contract=wider), "v", ONE)
    later.ingest([on(2, 3, gate="C3"), on(4, 4)])
    stream(later)
    for reader in (read_serving(lake.pipeline), _viewed(lake)):
        gates = {row["flight"]: row["gate"] for row in reader.toLocalIterator()}
        assert gates == {1: None, 2: None, 3: "C3", 4: None}
    run(later, ONE, TWO)
    gates = {row["flight"]: row["gate"] for row in read_serving(lake.pipeline).toLocalIterator()}
    assert gates == {1: "A1", 2: "B2", 3: "C3", 4: None}
    assert read_serving(lake.pipeline).schema["air_time"].dataType == DoubleType()
    with pytest.raises(ConfigError, match="Only optional columns can be added"):
        run(lake, ONE)


def replaced(field: StructField, kind: DataType) -> StructField:
    return StructField(field.name, kind, field.nullable)


def _viewed(lake: Lake) -> Any:
    refresh_view(lake.pipeline)
    return lake.spark.table("serving_of_flights")
