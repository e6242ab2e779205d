"""A past day is rebuilt from bronze, audited as written, and shown only when it passed."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Any

import deltalake
import pyarrow.parquet as pq
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, DoubleType, FloatType, StringType, StructField, StructType

from pipelines.contracts.contract import DataContract
from pipelines.contracts.custom_properties import Policy
from pipelines.contracts.rules import RowRule
from pipelines.delta.fenced_commits import replace_days_fenced
from pipelines.errors import AuditFailed, ConfigError
from pipelines.fault_points import Point, armed
from pipelines.nightly import rebuild
from pipelines.nightly.verdicts import NightCounts, NightFailed, NightResult
from pipelines.records.decode import decode, valid
from pipelines.records.dedup import winners
from pipelines.session_settings import session_settings
from pipelines.steps.nightly import nightly
from pipelines.steps.serving import read_serving, refresh_view, refresh_view_or_warn
from pipelines.steps.validate import validate
from tests.support.lake_copies import lake_in
from tests.support.lakes import EPOCH, Lake
from tests.support.nights import LATER, ONE, THREE, TWO, at, begin, departures, flights_of, on, run, stream

pytestmark = pytest.mark.usefixtures("two_partitions")

FOUR = date(2013, 1, 4)
# Clocks in New York went from 02:00-05:00 to 03:00-04:00, and in November from 02:00-04:00 to 01:00-05:00.
SHORT, LONG = date(2013, 3, 10), date(2013, 11, 3)
EDGES = (
    *(f"{SHORT}T{edge}" for edge in ("00:00:00-05:00", "01:59:00-05:00", "03:00:00-04:00", "23:59:00-04:00")),
    *(f"{LONG}T{edge}" for edge in ("00:00:00-04:00", "01:30:00-04:00", "01:30:00-05:00", "23:59:00-05:00")),
    *("2013-03-09T23:59:00-05:00", "2013-03-11T00:00:00-04:00"),
    *("2013-11-02T23:59:00-04:00", "2013-11-04T00:00:00-05:00"),
)
"""Departures at the edges of these days, and next to them."""


@dataclass
class Widened:
    """A lake with a certified day, whose contract gets a column and a wider type; and its next night."""

    lake: Lake
    narrow: Lake
    between: list[dict[int, str | None]]
    """By flight, the new column before that night: as readers get it, and as the view shows it."""


@pytest.fixture(scope="module")
def widened(spark: SparkSession, small: DataContract, tmp_path_factory: pytest.TempPathFactory) -> Widened:
    fields = [replaced(each, FloatType()) if each.name == "air_time" else each for each in small.schema]
    contract = replace(small, schema=StructType(fields))
    folder = tmp_path_factory.mktemp("widened")
    lake = lake_in(folder, spark, contract, "serving.view=serving_of_flights")
    lake.ingest([on(1, 1, gate="A1"), on(2, 2, gate="B2")])
    stream(lake)
    run(lake, ONE)
    columns = [*small.schema.fields, StructField("gate", StringType())]
    later = Lake(replace(lake.pipeline, contract=replace(small, schema=StructType(columns))))
    refresh_view(lake.pipeline)
    # What was certified before lacks the column, and is audited and read all the same.
    with pytest.raises(AuditFailed, match="rows_are_the_winners"):
        validate(later.pipeline, "v", ONE)
    later.ingest([on(2, 3, gate="C3"), on(4, 4)])
    stream(later)
    between = [gates(read_serving(lake.pipeline)), gates(_viewed(lake))]
    run(later, ONE, TWO)
    return Widened(later, lake, between)


def gates(rows: Any) -> dict[int, str | None]:
    return {row["flight"]: row["gate"] for row in rows.collect()}


@dataclass
class BesideStreams:
    """A night beside streams, whose third day has too many conflicts; and one by a stricter contract.

    The first one has days on which clocks are changed as well.
    """

    lake: Lake
    before: list[tuple[int, float]] = field(default_factory=list)
    failed: NightFailed = field(init=False)
    built: dict[date, list[tuple[int, float]]] = field(default_factory=dict)
    served: dict[date, list[tuple[int, float]]] = field(default_factory=dict)

    def first_night(self) -> None:
        """Certify all days but the third, while records arrive."""
        lake, hour = self.lake, timedelta(hours=1)
        lake.ingest([on(1, 1), on(1, 2, sent=EPOCH + hour, departure_delay=9.0), b"poison", on(1, 5)])
        lake.ingest([on(1, 1), on(1, 2, departure_delay=5.0, partition=1), on(2, 3, distance=100.0)])
        lake.ingest([on(3, 6), on(3, 7), on(3, 6, departure_delay=5.0), on(4, 4), *map(at, EDGES)])
        stream(lake)
        self.before = flights_of(read_serving(lake.pipeline), ONE)

        arriving = replace(on(1, 8), offset=10 + len(EDGES))

        def records_arrive() -> None:
            lake.ingest([arriving])
            lake.enter([arriving])

        with armed(Point.DAYS_BUILT, records_arrive), pytest.raises(NightFailed) as failed:
            nightly(lake.pipeline, "run", [ONE, TWO, THREE, SHORT, LONG])
        self.failed = failed.value
        batch = lake.table("batch")
        self.built = {day: flights_of(batch, day) for day in (ONE, TWO)}
        # What is certified is read from the batch layer, also where the speed layer has nothing of it.
        speed = DeltaTable.forPath(lake.spark, lake.config.table("speed"))
        speed.delete("_event_date = '2013-01-01'")
        serving = read_serving(lake.pipeline)
        self.served = {day: flights_of(serving, day) for day in (ONE, THREE, FOUR)}

    def second_night(self) -> NightResult:
        """Rebuild two days by a contract that lets another copy win, and no short flight."""
        lake = self.lake
        lake.ingest([on(1, 2, sent=EPOCH + timedelta(hours=2), departure_delay=None)])
        lake.contract = replace(
            lake.contract,
            policy=Policy("highest", "departure_delay"),
            row_rules=(*lake.contract.row_rules, RowRule("distance", "minimum", 1_000)),
        )
        # The speed layer has what the contract of before let in.
        audit = lake.config.audit.model_copy(update={"layer_differences": "warn"})
        lake.config = lake.config.model_copy(update={"audit": audit})
        return run(lake, ONE, TWO)


@pytest.fixture(scope="module")
def beside_streams(
    spark: SparkSession, small: DataContract, tmp_path_factory: pytest.TempPathFactory
) -> BesideStreams:
    contract = replace(small, max_conflicts=40.0)
    passed = BesideStreams(lake_in(tmp_path_factory.mktemp("rebuild"), spark, contract))
    passed.first_night()
    return passed


@pytest.fixture(scope="module")
def rebuilt(beside_streams: BesideStreams) -> NightResult:
    """What the second night says."""
    return beside_streams.second_night()


def test_each_event_stands_once_and_the_first_copy_in_kafka_s_order_wins(
    beside_streams: BesideStreams,
) -> None:
    assert beside_streams.built == {ONE: [(1, 2.0), (2, 5.0), (5, 2.0)], TWO: [(3, 2.0)]}
    assert beside_streams.failed.result.counts == NightCounts(
        days=5,
        days_certified=4,
        records=17,
        rows=14,
        duplicates=3,
        conflicts=2,
        late=0,
        quarantined=1,
        days_repaired=0,
    )


@pytest.mark.parametrize("is_adaptive", [False, True])
def test_files_of_a_day_are_in_the_order_of_the_key(
    make_lake: Callable[..., Lake], small_by_flight: DataContract, *, is_adaptive: bool
) -> None:
    # What the user has set stays, also for few rows.
    adaptive = {"spark.sql.adaptive.enabled": str(is_adaptive).lower()}
    lake = make_lake(
        *(f"spark.conf.{key}={value}" for key, value in adaptive.items()), contract=small_by_flight
    )
    numbers = [number * 37 % 101 for number in range(1, 41)]
    for first in range(0, len(numbers), 10):
        lake.ingest([on(1, number) for number in numbers[first : first + 10]])
    with session_settings(lake.spark, adaptive):
        run(lake, ONE)
    files = deltalake.DeltaTable(lake.config.table("batch")).file_uris()
    read = [pq.ParquetFile(file).read(["flight"])["flight"].to_pylist() for file in files]
    assert sorted(number for file in read for number in file) == sorted(numbers)
    assert all(file == sorted(file) for file in read)


def test_the_rows_of_one_day_are_written_without_a_further_sort(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A sort by day breaks the order of the key only if it spills, which few rows never do.
    limits = list[str | None]()

    def recorded(*given: Any) -> int:
        limits.append(lake.spark.conf.get("spark.sql.maxConcurrentOutputFileWriters"))
        return replace_days_fenced(*given)

    monkeypatch.setattr(rebuild, "replace_days_fenced", recorded)
    lake.ingest([on(1, 1)])
    run(lake, ONE)
    assert limits == ["2"]


@pytest.mark.thorough
@pytest.mark.usefixtures("rebuilt")
def test_the_contract_may_let_another_copy_win(beside_streams: BesideStreams) -> None:
    lake = beside_streams.lake
    of_others = [(1, 2.0), (5, 2.0), (8, 2.0)]
    assert flights_of(lake.table("batch"), ONE) == sorted([*of_others, (2, 9.0)])
    decoded = decode(lake.table("bronze"), lake.contract, timedelta(days=1))
    for policy, delay in ((Policy("last"), None), (Policy(), 5.0)):
        contract = replace(lake.contract, policy=policy)
        won = dict(flights_of(winners(valid(decoded, contract), contract, 1), ONE))
        assert won == dict([*of_others, (2, delay)])


@pytest.mark.thorough
def test_more_conflicts_than_the_contract_allows_fail_the_day(beside_streams: BesideStreams) -> None:
    # One event of three on the first day is within the limit.
    [found] = [line for line in str(beside_streams.failed).splitlines() if "conflicts_within_limit" in line]
    assert "2013-01-03 conflicts_within_limit: found 1 of 2 events" in found
    assert "40 % at most" in found
    assert beside_streams.failed.result.days[THREE] == "failed"


@pytest.mark.thorough
def test_a_range_of_days_gives_the_rows_that_its_parts_give_in_another_order(
    make_lake: Callable[..., Lake], small_by_flight: Any
) -> None:
    lake = make_lake(contract=small_by_flight)
    lake.ingest([on(1, 1), on(2, 1), on(4, 1), on(4, 2), on(3, 2, sent=LATER), on(7, 3)])
    lake.ingest([on(2, n % 7 + 10, partition=n % 3) for n in range(1, 40)])
    run(lake, ONE, date(2013, 1, 4))
    of_range = sorted(map(str, lake.table("batch").collect()))
    run(lake, THREE, date(2013, 1, 4))
    run(lake, ONE, TWO)
    assert sorted(map(str, lake.table("batch").collect())) == of_range
    days = [row["_event_date"].day for row in lake.table("batch").where("flight = 1").collect()]
    assert sorted(days) == [1, 4], "copies three days apart are two events"


def test_a_day_that_lost_all_its_rows_becomes_empty(
    beside_streams: BesideStreams, rebuilt: NightResult
) -> None:
    assert beside_streams.built[TWO] == [(3, 2.0)]
    assert rebuilt.days == dict.fromkeys((ONE, TWO), "certified")
    lake = beside_streams.lake
    assert flights_of(lake.table("batch"), TWO) == []
    assert flights_of(read_serving(lake.pipeline), TWO) == []


def test_days_of_23_and_of_25_hours_are_whole(beside_streams: BesideStreams) -> None:
    rows = read_serving(beside_streams.lake.pipeline)
    assert departures(rows, SHORT) == ["10 05:00", "10 06:59", "10 07:00", "11 03:59"]
    assert departures(rows, LONG) == ["03 04:00", "03 05:30", "03 06:30", "04 04:59"]


def test_streams_may_go_on_while_a_day_is_rebuilt(beside_streams: BesideStreams) -> None:
    days = beside_streams.failed.result.days
    assert [day for day, status in days.items() if status == "certified"] == [ONE, TWO, SHORT, LONG]
    bronze = beside_streams.lake.table("bronze")
    arrived = bronze.where("get_json_object(string(value), '$.flight') = '8'")
    assert arrived.count() == 1, "no record has arrived meanwhile"


@pytest.mark.thorough
def test_a_late_event_is_known_as_late_and_put_into_its_day(lake: Lake) -> None:
    lake.ingest([on(1, 1), on(2, 2)])
    stream(lake)
    lake.ingest([on(2, 5)])
    stream(lake)  # Spark holds rows against the watermark of the micro-batch before
    lake.ingest([on(1, 3, sent=LATER), on(3, 4)])
    counts = stream(lake).counts
    assert (counts.records, counts.rows, counts.late) == (2, 1, 1)
    assert run(lake, ONE).counts.late == 1
    assert [number for number, _ in flights_of(read_serving(lake.pipeline), ONE)] == [1, 3]


def test_readers_take_certified_days_from_batch_and_all_others_from_speed(
    beside_streams: BesideStreams,
) -> None:
    assert [number for number, _ in beside_streams.before] == [1, 2, 5]
    served = beside_streams.served
    assert served[ONE] == beside_streams.built[ONE]
    assert [number for number, _ in served[THREE]] == [6, 7]
    assert served[FOUR] == [(4, 2.0)]


@pytest.mark.thorough
def test_the_view_shows_what_read_serving_shows(
    make_lake: Callable[..., Lake], small: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lake = make_lake("serving.view=serving_of_flights", contract=small)
    lake.ingest([on(1, 1), on(1, 1), on(2, 2)])
    stream(lake)
    run(lake, ONE)
    lake.spark.sql("CREATE VIEW serving_of_flights AS SELECT 1 AS carrier")
    assert refresh_view_or_warn(lake.pipeline)[0].endswith("then run: oncelake maintain --pipeline flights")
    assert lake.spark.table("serving_of_flights").columns == ["carrier"]
    lake.spark.sql("DROP VIEW serving_of_flights")
    refresh_view(lake.pipeline)
    assert "serving_of_flights is lost when this job ends" in caplog.text
    try:
        # That of a copy of this pipeline's file, as of its next release, and one of an earlier release.
        lake.spark.sql("ALTER VIEW serving_of_flights SET TBLPROPERTIES ('oncelake.serves' = 'flights_2')")
        with pytest.raises(ConfigError, match="found a view serving_of_flights of flights_2, expected none"):
            refresh_view(lake.pipeline)
        lake.spark.sql("ALTER VIEW serving_of_flights UNSET TBLPROPERTIES ('oncelake.serves')")
        refresh_view(lake.pipeline)
        viewed = lake.spark.table("serving_of_flights")
        assert sorted(map(str, viewed.collect())) == sorted(
            map(str, read_serving(lake.pipeline).select(*viewed.columns).collect())
        )
    finally:
        lake.spark.sql("DROP VIEW serving_of_flights")


@pytest.mark.thorough
def test_an_optional_column_added_and_a_type_made_wider_change_the_tables(widened: Widened) -> None:
    assert widened.between == [{1: None, 2: None, 3: "C3", 4: None}] * 2
    serving = read_serving(widened.lake.pipeline)
    assert gates(serving) == {1: "A1", 2: "B2", 3: "C3", 4: None}
    assert serving.schema["air_time"].dataType == DoubleType()
    with pytest.raises(ConfigError, match="Only optional columns can be added"):
        begin(widened.narrow, ONE)


def replaced(column: StructField, kind: DataType) -> StructField:
    return StructField(column.name, kind, column.nullable)


def _viewed(lake: Lake) -> Any:
    refresh_view(lake.pipeline)
    return lake.spark.table("serving_of_flights")
