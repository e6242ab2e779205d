"""The watermark never runs ahead of the time at which records were sent or read."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pipelines.contracts.contract import DataContract
from pipelines.delta.table_properties import BY_CLOCK_SINCE, set_table_property, table_property
from pipelines.durations import format_interval
from pipelines.lineage.key_filter import asked_key
from pipelines.nightly.verdicts import NightFailed
from pipelines.records import dedup
from pipelines.steps.explain import explain
from pipelines.steps.speed import SpeedResult
from tests.support.lake_copies import lake_in
from tests.support.lakes import EPOCH, Lake, Record, flight
from tests.support.log_capture import logged
from tests.support.nights import ONE, TWO, run, stream

pytestmark = pytest.mark.usefixtures("two_partitions")

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


def ahead(lake: Lake) -> None:
    """A stream that has seen one flight of 23 hours later."""
    lake.ingest([departure(1, EPOCH + 23 * HOUR, EPOCH)])
    stream(lake)


def with_one_ahead(lake: Lake) -> None:
    """A lake whose stream has seen that flight, and then good ones."""
    ahead(lake)
    # Spark holds records against the watermark as it was one micro-batch before.
    lake.ingest(in_time(2, 2, EPOCH))
    stream(lake)


@dataclass(frozen=True)
class History:
    """What became of a lake: its streams, and a night that lacks flight 2 in the speed layer.

    Attributes:
        lake: the lake.
        good: the result of the stream over events that are in time, each commit a micro-batch.
        late: the result of the stream over two micro-batches, of each of which the half is late.
        logged: what that stream logged.
        night: why the night failed.
    """

    lake: Lake
    good: SpeedResult
    late: SpeedResult
    logged: list[logging.LogRecord]
    night: NightFailed


@pytest.fixture(scope="module")
def history(spark: SparkSession, small: DataContract, tmp_path_factory: pytest.TempPathFactory) -> History:
    settings = ("speed.late_warn_records=10", "speed.late_warn_share=0.2", "speed.max_bytes_per_trigger=1b")
    lake = lake_in(tmp_path_factory.mktemp("watermark"), spark, small, *settings, *FEW)
    ahead(lake)
    lake.ingest(in_time(2, 2, EPOCH))
    lake.ingest([*in_time(3, 8, EPOCH + HOUR), departure(1, EPOCH + 23 * HOUR, EPOCH + 2 * HOUR)])
    # Told of by a clock that is slow.
    slow = departure(50, EPOCH, EPOCH - 20 * HOUR)
    lake.ingest([slow])
    lake.ingest([slow, *in_time(51, 51, EPOCH - 3 * HOUR)])
    good = stream(lake)
    for span in range(2):
        # The watermark is at four hours before.
        late, other = EPOCH - 5 * HOUR, EPOCH - 3 * HOUR
        lake.ingest([*in_time(20, 24, late), *in_time(60 + span, 64 + span, other)])
    with logged() as told:
        behind = stream(lake)
    DeltaTable.forPath(spark, lake.config.table("speed")).delete("flight = 2")
    with pytest.raises(NightFailed) as failed:
        run(lake, ONE)
    return History(lake, good, behind, told, failed.value)


def test_one_event_dated_ahead_makes_no_other_late(history: History) -> None:
    counts = history.good.counts
    assert (counts.records, counts.late) == (11, 0)
    assert history.good.watermark is not None
    assert history.good.watermark < datetime(2013, 1, 1, 12, tzinfo=UTC)


def test_what_a_watermark_that_there_never_was_would_excuse_is_missing(history: History) -> None:
    _, *reasons = str(history.night).splitlines()
    (reason,) = reasons
    assert "lacks 5 late," in reason
    assert "and 1 unexplained keys" in reason
    asked = asked_key(history.lake.contract, ["flight=2"])
    ((_, fate),) = explain(history.lake.pipeline, asked, 1).records
    assert fate.verdict == "missing"


def test_a_clock_that_is_slow_drops_neither_its_own_events_nor_others(history: History) -> None:
    counts = history.good.counts
    # Flights 2 to 8, the slow one and the one after it; the copies are those of the slow one and of flight 1.
    assert (counts.rows, counts.duplicates, counts.late) == (9, 2, 0)


def test_records_behind_the_watermark_are_late_and_explained(history: History) -> None:
    counts = history.late.counts
    assert (counts.rows, counts.duplicates, counts.late) == (6, 4, 10)
    assert history.night.result.counts.late == 5


def test_many_late_records_are_told_once(history: History) -> None:
    assert history.good.warnings == ()
    (told,) = history.late.warnings
    assert told.startswith("late records: 5 of 10 records came behind the watermark")
    levels = [r.levelno for r in history.logged if "behind the watermark" in r.getMessage()]
    assert levels == [logging.WARNING]
    (told,) = history.night.result.warnings
    assert told.startswith("late events on 2013-01-01: 5 of 20 events")


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
        assert stream(lake).counts.late == 1
        lake.spark.sql(f"ALTER TABLE delta.`{speed}` UNSET TBLPROPERTIES ('{BY_CLOCK_SINCE}')")
        # Before its stream has started anew.
        assert run(lake, ONE).counts.late == 1
    # The state goes on, with the watermark that it has.
    lake.ingest(in_time(4, 4, EPOCH))
    assert stream(lake).counts.late == 1
    assert table_property(lake.spark, speed, BY_CLOCK_SINCE) is not None
    set_table_property(lake.spark, speed, BY_CLOCK_SINCE, "2026-01-01T00:03:00+00:00")
    assert run(lake, ONE).counts.late == 2
    lake.ingest(in_time(5, 5, EPOCH + 23 * HOUR))
    assert stream(lake).counts.rows == 1
    assert run(lake, TWO).counts.late == 0
