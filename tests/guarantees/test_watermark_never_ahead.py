"""The watermark never runs ahead of the time at which records were sent or read."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame

from pipelines.contracts.contract import DataContract
from pipelines.delta.table_properties import BY_CLOCK_SINCE
from pipelines.delta.tables import set_table_property, table_property
from pipelines.durations import format_interval
from pipelines.errors import AuditFailed
from pipelines.lineage.key_filter import asked_key
from pipelines.records import dedup
from pipelines.steps.explain import explain
from tests.support.lakes import EPOCH, Lake, Record, flight
from tests.support.nights import ONE, TWO, run, stream

HOUR = timedelta(hours=1)
FEW = ("speed.state_partitions=1",)


@pytest.fixture
def lake(make_lake: Callable[..., Lake], small: DataContract) -> Lake:
    return make_lake(*FEW, contract=small)


def departure(number: int, at: datetime, sent: datetime) -> Record:
    """A flight that departs at a moment, told of at another."""
    return Record(flight(flight=number, scheduled_departure=at.isoformat()), sent=sent)


def in_time(first: int, last: int, at: datetime) -> list[Record]:
    """Flights that depart when they are told of."""
    return [departure(number, at, at) for number in range(first, last + 1)]


def with_one_ahead(lake: Lake) -> None:
    """A lake whose stream has seen one flight of 23 hours later, and then good ones."""
    lake.ingest([departure(1, EPOCH + 23 * HOUR, EPOCH)])
    stream(lake)
    # Spark holds records against the watermark as it was one micro-batch before.
    lake.ingest(in_time(2, 2, EPOCH))
    stream(lake)


def test_one_event_dated_ahead_makes_no_other_late(lake: Lake) -> None:
    with_one_ahead(lake)
    lake.ingest([*in_time(3, 42, EPOCH + HOUR), departure(1, EPOCH + 23 * HOUR, EPOCH + 2 * HOUR)])
    summary = stream(lake)
    counts = summary["counts"]
    assert (counts["rows"], counts["late"], counts["duplicates"]) == (40, 0, 1)
    assert str(summary["watermark"]) < "2013-01-01T12:00"
    # The audit, and `explain`, excuse nothing by a watermark that there never was.
    DeltaTable.forPath(lake.spark, lake.config.table("speed")).delete("flight = 2")
    with pytest.raises(AuditFailed, match=r"lacks 0 late, .* and 1 unexplained keys"):
        run(lake, ONE)
    asked = asked_key(lake.contract, ["flight=2"])
    ((_, fate),) = explain(lake.pipeline, asked, 1).records
    assert fate.verdict == "missing"


def test_a_clock_that_is_slow_drops_neither_its_own_events_nor_others(lake: Lake) -> None:
    lake.ingest(in_time(1, 1, EPOCH))
    stream(lake)
    slow = departure(2, EPOCH, EPOCH - 20 * HOUR)
    lake.ingest([slow])
    assert stream(lake)["counts"]["late"] == 0
    lake.ingest([slow, *in_time(3, 3, EPOCH - 5 * HOUR)])
    counts = stream(lake)["counts"]
    assert (counts["rows"], counts["duplicates"], counts["late"]) == (1, 1, 0)


def test_records_behind_the_watermark_are_late_and_explained(lake: Lake) -> None:
    with_one_ahead(lake)
    lake.ingest([*in_time(3, 3, EPOCH - 7 * HOUR), *in_time(4, 4, EPOCH - 5 * HOUR)])
    counts = stream(lake)["counts"]
    assert (counts["rows"], counts["late"]) == (1, 1)
    assert run(lake, ONE)["counts"]["late"] == 1


def test_many_late_records_are_told_once(
    make_lake: Callable[..., Lake], small: DataContract, caplog: pytest.LogCaptureFixture
) -> None:
    lake = make_lake(
        "speed.late_warn_records=10",
        "speed.late_warn_share=0.3",
        "speed.max_bytes_per_trigger=1b",
        *FEW,
        contract=small,
    )
    for at in (EPOCH, EPOCH + HOUR):
        lake.ingest(in_time(1, 1, at))
        assert stream(lake)["warnings"] == []
    caplog.clear()
    for span in range(2):
        lake.ingest([*in_time(20, 24, EPOCH - 7 * HOUR), *in_time(30 + span, 34 + span, EPOCH)])
    (told,) = stream(lake)["warnings"]
    assert told.startswith("late records: 5 of 10 records came behind the watermark")
    assert [r.levelno for r in caplog.records if "behind the watermark" in r.message] == [logging.WARNING]
    (told,) = run(lake, ONE)["warnings"]
    assert told.startswith("late events on 2013-01-01: 5 of 13 events")


@pytest.mark.thorough
def test_what_a_speed_layer_of_before_dropped_is_still_explained(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_event_time(routes: DataFrame, contract: DataContract, delay: timedelta) -> DataFrame:
        return routes.withWatermark(contract.event_time, format_interval(delay))

    speed = lake.config.table("speed")
    with monkeypatch.context() as before:
        before.setattr(dedup, "with_watermark", by_event_time)
        with_one_ahead(lake)
        lake.ingest(in_time(3, 3, EPOCH))
        assert stream(lake)["counts"]["late"] == 1
        lake.spark.sql(f"ALTER TABLE delta.`{speed}` UNSET TBLPROPERTIES ('{BY_CLOCK_SINCE}')")
        # Before its stream has started anew.
        assert run(lake, ONE)["counts"]["late"] == 1
    # The state goes on, with the watermark that it has.
    lake.ingest(in_time(4, 4, EPOCH))
    assert stream(lake)["counts"]["late"] == 1
    assert table_property(lake.spark, speed, BY_CLOCK_SINCE) is not None
    set_table_property(lake.spark, speed, BY_CLOCK_SINCE, "2026-01-01T00:03:00+00:00")
    assert run(lake, ONE)["counts"]["late"] == 2
    lake.ingest(in_time(5, 5, EPOCH + 23 * HOUR))
    assert stream(lake)["counts"]["rows"] == 1
    assert run(lake, TWO)["counts"]["late"] == 0
