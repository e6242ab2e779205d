"""What is forgotten is gone from every layer, stays gone, and no audit holds it against the day."""

import itertools
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.cli.forget import summary_of
from pipelines.contracts.contract import DataContract
from pipelines.delta.io import append, read
from pipelines.delta.table_properties import TOPIC_ID, WHOLE_FROM
from pipelines.delta.tables import (
    BRONZE,
    ensure_table,
    hidden,
    set_table_property,
    shape,
    small_frame,
    table_property,
    version,
)
from pipelines.delta.upkeep import change_rows, delete_rows, old_files, vacuum
from pipelines.errors import AuditFailed, InfrastructureError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.ledger.catalog import VALIDATION_RESULTS
from pipelines.ledger.certifications import history
from pipelines.ledger.forgotten import forgetting_commits
from pipelines.ledger.forgotten_places import emptied_on_arrival, places
from pipelines.ledger.kept_values import delete_values
from pipelines.ledger.quarantine import Selection
from pipelines.lineage.key_filter import asked_key
from pipelines.lineage.searches import OfKey, again
from pipelines.spark.failures import explain_stream_failure
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.session import forget_tables
from pipelines.steps import forget as forgetting
from pipelines.steps import rebuild as rebuilding
from pipelines.steps import speed as speed_layer
from pipelines.steps.forget import Forgotten, forget, forget_and_rebuild
from pipelines.steps.maintain import maintain
from pipelines.steps.nightly import nightly
from pipelines.steps.replay import replay
from pipelines.steps.serving import read_serving
from pipelines.steps.validate import validate
from tests.support.accidents import dying
from tests.support.lakes import Lake, Record, clean_log
from tests.support.nights import LATER, ONE, TWO, on, run, stream

WHO = "N-FORGET-ME"


@pytest.fixture
def lake(make_lake: Callable[..., Lake], small: DataContract) -> Lake:
    return make_lake(contract=small)


def forget_key(lake: Lake, *given: str, dry_run: bool = False) -> tuple[Forgotten, dict[str, Any]]:
    search = OfKey(lake.pipeline, asked_key(lake.contract, given))
    result = forget_and_rebuild(lake.pipeline, "forget", search, dry_run=dry_run)
    return result.forgotten, summary_of(lake.config, result, dry_run=dry_run)


def of(day: int, number: int, **changes: Any) -> Record:
    """A departure that is to be forgotten."""
    return on(day, number, tailnum=WHO, **changes)


def fill(lake: Lake) -> None:
    """A certified day and an open one, both with events of flight 1, broken ones among them."""
    forged = Record(None, headers=[("oncelake.forgotten", b"1"), ("_forgotten", b"1")])
    lake.ingest(
        [of(1, 1), on(1, 2), of(1, 1, sent=LATER), of(1, 1, distance=-1.0), Record(b"poison"), forged]
    )
    stream(lake)
    lake.ingest([of(2, 1), on(2, 3)])
    stream(lake)
    run(lake, ONE)


def served(lake: Lake) -> list[int]:
    return sorted(row["flight"] for row in read_serving(lake.pipeline).toLocalIterator())


def checks(lake: Lake, day: date) -> dict[str, str]:
    """The outcome of each integrity check in the newest run on a day."""
    rows = read(lake.spark, lake.config.ops_table("validation_results")).where(f"day = DATE'{day}'")
    ordered = rows.where("kind = 'integrity'").orderBy("checked_at")
    return {row["name"]: row["status"] for row in ordered.toLocalIterator()}


def values_kept(lake: Lake) -> set[str]:
    """What the results of the night before quote, but for counts."""
    rows = read(lake.spark, lake.config.ops_table("validation_results")).where("run_id = 'run'")
    said = rows.selectExpr("result", "nullif(detail, '') AS detail").toLocalIterator()
    return {each for row in said for each in row if each is not None}


def who_is_in(lake: Lake, layer: str) -> int:
    """Rows in which the name still stands, as a column or in the bytes of a record."""
    value = "CAST(value AS STRING)" if layer in ("bronze", "quarantine") else "tailnum"
    return lake.table(layer).where(f"contains({value}, '{WHO}')").count()


def files_with(folder: Path) -> list[str]:
    """The data files, those of the change feed among them, in which the name still stands."""
    found = []
    for path in folder.rglob("*.parquet"):
        if path.parent.name != "_delta_log":
            columns = pq.ParquetFile(path).read().to_pydict().values()
            if any(WHO in str(value) for values in columns for value in values):
                found.append(str(path))
    return found


def said_by_commits(lake: Lake, layer: Any) -> set[str]:
    """The operations on a table, and the words of their conditions."""
    history = DeltaTable.forPath(lake.spark, lake.config.table(layer)).history().toLocalIterator()
    said = set[str]()
    for row in history:
        said |= {row["operation"], *re.findall("[a-z_]+", str(row["operationParameters"].get("predicate")))}
    return said


def test_what_is_forgotten_is_gone_from_every_layer_and_stays_gone(lake: Lake, small: DataContract) -> None:
    fill(lake)
    asked = ("carrier=UA", "flight=1")
    before = [lake.count(layer) for layer in ("bronze", "quarantine", "speed", "batch")]
    counted, told = forget_key(lake, *asked, dry_run=True)
    assert [lake.count(layer) for layer in ("bronze", "quarantine", "speed", "batch")] == before
    assert (counted.days, told["days_to_rebuild"]) == ((ONE,), ["2013-01-01"])

    found, told = forget_key(lake, *asked)
    assert found.counts == counted.counts == {"bronze": 4, "quarantine": 1, "speed": 2, "batch": 1}
    assert told["days"] == {"2013-01-01": "certified"}
    assert served(lake) == [2, 3]
    # Places stay, so that offsets have no gap; what a producer sends cannot look forgotten.
    assert [lake.count(layer) for layer in ("bronze", "quarantine", "speed", "batch")] == [8, 2, 2, 1]
    emptied = lake.table("bronze").where("_forgotten IS NOT NULL")
    assert {tuple(row) for row in emptied.select("key", "value", "headers").toLocalIterator()} == {
        (None,) * 3
    }
    assert table_property(lake.spark, lake.config.table("bronze"), "delta.appendOnly") == "true"
    verdict = history(lake.pipeline)[-1]
    assert (verdict.cause, verdict.removed, verdict.rows, verdict.records) == ("forgotten", 1, 1, 1)
    assert (verdict.bronze, verdict.quarantined, verdict.other_days) == (4, 2, 1)

    assert set(checks(lake, ONE).values()) == {"passed"}
    assert values_kept(lake) == set()
    repeated, _ = forget_key(lake, *asked)
    assert set(repeated.counts.values()) == {0}

    # A contract that takes what was broken, and a speed layer made anew, find nothing of it either.
    lake.contract = replace(small, row_rules=(), version="2")
    replay(lake.pipeline, "replay", Selection(), dry_run=False)
    # As `checkpoint reset` leaves it: what the stream writes to goes with its checkpoint.
    for place in (
        lake.config.table("speed"),
        lake.config.table("quarantine"),
        lake.config.checkpoint("speed"),
    ):
        shutil.rmtree(place)
    assert stream(lake)["counts"] == {
        "records": 4, "rows": 2, "duplicates": 0, "late": 0, "quarantined": 2, "batches": 1
    }  # fmt: skip
    run(lake, ONE, TWO)
    assert set(checks(lake, TWO).values()) == {"passed"}
    assert served(lake) == [2, 3]
    assert [who_is_in(lake, layer) for layer in ("bronze", "quarantine", "speed", "batch")] == [0] * 4


@pytest.mark.thorough
def test_a_run_that_dies_anywhere_is_completed_by_the_next_and_upkeep_removes_what_old_files_hold(
    lake: Lake,
) -> None:
    lake.ingest([of(1, 1, sent=LATER), on(1, 2), of(1, 1, distance=-1.0)])
    stream(lake)
    lake.ingest([of(1, 1)])
    stream(lake)
    run(lake, ONE)
    samples = read(lake.spark, lake.config.ops_table("layer_samples"))
    results = read(lake.spark, lake.config.ops_table("validation_results")).where("result IS NOT NULL")
    assert not samples.isEmpty()
    assert not results.isEmpty()

    def dies_at(point: Point) -> None:
        with armed(point, dying(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
            forget_key(lake, "flight=1")

    dies_at(Point.VALUES_DELETED)
    dies_at(Point.PLACES_REMEMBERED)
    with pytest.raises(SourceError, match=r"3 records that were forgotten.*oncelake forget .*--again") as no:
        run(lake, ONE)
    assert no.value.exit_code == 4
    dies_at(Point.RECORDS_EMPTIED)
    # Of the quarantine, and then of the speed layer.
    dies_at(Point.ROWS_DELETED)
    dies_at(Point.ROWS_DELETED)
    # As it is left where the process dies before the table refuses changes again.
    set_table_property(lake.spark, lake.config.table("bronze"), "delta.appendOnly", "false")
    found, told = forget_key(lake, "flight=1")
    assert (found.counts, told["days"]) == (
        {"bronze": 0, "quarantine": 0, "speed": 0, "batch": 1},
        {"2013-01-01": "certified"},
    )
    assert table_property(lake.spark, lake.config.table("bronze"), "delta.appendOnly") == "true"
    assert served(lake) == [2]
    assert read(lake.spark, lake.config.ops_table("layer_samples")).isEmpty()

    assert files_with(Path(lake.config.root))
    maintain(lake.pipeline, "upkeep", dry_run=False, vacuum_now=True)
    assert files_with(Path(lake.config.root)) == []
    assert served(lake) == [2]
    # Nor does Delta's log say whom it was: conditions of a DELETE would stand there.
    assert said_by_commits(lake, "speed") & {"DELETE", "flight"} == set()


def test_a_record_that_the_speed_stream_has_not_read_is_not_forgotten_yet(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.ingest([of(1, 1), on(1, 2)])
    stream(lake)
    lake.ingest([of(2, 1), on(2, 2)])
    way_out = r"speed_stream has not read 1 records.*speed_stream --pipeline flights --once"
    with pytest.raises(SourceError, match=way_out) as refused:
        forget_key(lake, "flight=1")
    assert refused.value.exit_code == 4
    assert who_is_in(lake, "bronze") == 2
    # A stream that begins while records are emptied, in a run that dies before it looks once more.
    with monkeypatch.context() as patched:
        patched.setattr(forgetting, "unread_rows", lambda pipeline: lake.table("bronze").where("false"))
        assert forget_key(lake, "flight=1")[0].counts["bronze"] == 2
    with pytest.raises(SourceError, match="speed_stream has not read 1 records"):
        forget_key(lake, "flight=1")
    stream(lake)
    assert forget_key(lake, "flight=1")[0].counts["speed"] == 1
    # A clock that ingest does not refuse was put back: what it reads then lies before what was read.
    lake._ingested = itertools.count(-3)
    lake.ingest([of(2, 1, distance=-1.0), on(2, 9)])
    with pytest.raises(SourceError, match="speed_stream has not read 1 records"):
        forget_key(lake, "flight=1")
    lake._ingested = itertools.count(10)
    stream(lake)
    assert forget_key(lake, "flight=1")[0].counts["quarantine"] == 1
    # What comes later is new. The stream remembers the key, and the audit says that something lacks.
    lake.ingest([on(2, 1)])
    lake.ingest([on(2, 3)])
    counts = stream(lake)["counts"]
    assert (counts["records"], counts["rows"], counts["duplicates"]) == (2, 1, 1)
    with pytest.raises(AuditFailed, match="1 unexplained"):
        run(lake, TWO)
    assert forget_key(lake, "flight=1")[0].counts["bronze"] == 1
    run(lake, TWO)
    assert forget_key(lake, "flight=99")[1]["lines"][1] == "no matching event was found"


def test_files_go_at_once_also_where_the_log_was_cleaned(spark: SparkSession, tmp_path: Path) -> None:
    table, week = str(tmp_path / "table"), timedelta(days=7)
    spark.range(0, 4, 1, 2).withColumn("of", F.expr("id % 2")).write.format("delta").partitionBy("of").save(
        table
    )
    DeltaTable.forPath(spark, table).delete("id = 1")
    DeltaTable.forPath(spark, table).delete("id = 2")
    clean_log(spark, table)
    # As of a commit that is under way.
    young = Path(table, "of=0", "part-young.parquet")
    young.write_bytes(b"young")
    assert vacuum(spark, table, week).count == 0
    before = {*Path(table).glob("of=*/*.parquet")}
    counted = old_files(spark, table, week, now=True)
    assert {*Path(table).glob("of=*/*.parquet")} == before
    gone = vacuum(spark, table, week, now=True)
    left = {*Path(table).glob("of=*/*.parquet")}
    assert (counted, gone.count) == (gone, len(before - left))
    assert gone.count == 2
    assert young in left
    assert sorted(row["id"] for row in read(spark, table).toLocalIterator()) == [0, 3]


def test_a_stream_goes_on_after_nothing_but_broken_records_was_forgotten(lake: Lake) -> None:
    lake.ingest([of(1, 1, distance=-1.0), on(1, 2)])
    stream(lake)
    assert forget_key(lake, "flight=1")[0].counts["bronze"] == 1
    lake.ingest([on(1, 3)])
    assert stream(lake)["counts"]["rows"] == 1


def test_values_and_keys_that_checks_have_kept_go_with_the_days_records(lake: Lake) -> None:
    spark, table = lake.spark, lake.config.ops_table("validation_results")
    shapes = {
        "expect_column_max_to_be_between flight": ("expectation", "1545", "", '{"observed_value": 1545}'),
        "expect_column_values_to_be_in_set origin": ("expectation", "1 of 2 values unexpected", "XYZ", "{}"),
        "expect_table_row_count_to_be_between": ("expectation", "2", "", None),
        "keys_come_to_an_end": ("integrity", "1 keys recur", "UA, 1545, EWR", None),
    }
    VALIDATION_RESULTS.ensure(spark, table)
    rows = [
        dict.fromkeys(VALIDATION_RESULTS.schema.names)
        | {"pipeline": "flights", "day": day, "name": name, "kind": kind}
        | {"observed": observed, "detail": detail, "result": result}
        for day in (ONE, TWO)
        for name, (kind, observed, detail, result) in shapes.items()
    ]
    append(small_frame(spark, rows, VALIDATION_RESULTS.schema), table)
    delete_values(Pipeline(spark, lake.config, lake.contract), [ONE])

    def kept(day: date) -> dict[str, tuple[Any, ...]]:
        rows = read(spark, table).where(F.col("day") == day)
        return {
            row["name"]: (row["observed"], row["detail"], row["result"]) for row in rows.toLocalIterator()
        }

    assert kept(TWO) == {name: tuple(told) for name, (_, *told) in shapes.items()}
    assert kept(ONE) == {
        "expect_column_max_to_be_between flight": (
            "a value, which was forgotten with a record of the day",
            "",
            None,
        ),
        "expect_column_values_to_be_in_set origin": ("1 of 2 values unexpected", "", None),
        "expect_table_row_count_to_be_between": ("2", "", None),
        "keys_come_to_an_end": ("1 keys recur", "", None),
    }


def backup_of(tmp_path: Path, place: str) -> Path:
    return tmp_path / "backup" / Path(place).parent.name / Path(place).name


def back_up(tmp_path: Path, *places: str) -> None:
    for place in places:
        shutil.copytree(place, backup_of(tmp_path, place))


def put_back(tmp_path: Path, *places: str) -> None:
    for place in places:
        shutil.rmtree(place)
        shutil.copytree(backup_of(tmp_path, place), place)
    # A job is a session of its own, which knows nothing of the tables that were here.
    forget_tables()


def test_a_layer_that_is_put_back_brings_nothing_back(
    lake: Lake, small: DataContract, tmp_path: Path
) -> None:
    fill(lake)
    decided = lake.config.table("batch"), lake.config.ops_table("certifications")
    streamed = lake.config.table("speed"), lake.config.table("quarantine"), lake.config.checkpoint("speed")
    back_up(tmp_path, *decided, *streamed)
    forget_key(lake, "flight=1")
    put_back(tmp_path, *decided)
    assert 1 in served(lake)
    run(lake, TWO)
    assert [(v.day, v.cause) for v in history(lake.pipeline)[-2:]] == [(ONE, "forgotten"), (TWO, "asked")]
    assert served(lake) == [2, 3]

    put_back(tmp_path, lake.config.table("quarantine"))
    assert who_is_in(lake, "quarantine") == 1
    lake.contract = replace(small, row_rules=(), version="2")
    done = replay(lake.pipeline, "replay", Selection(), dry_run=False)
    assert (done.counts["rows"], done.counts["closed"]) == (0, 0)

    put_back(tmp_path, *streamed)
    match = r"speed/flights: found 2 records; .*quarantine/flights: found 1 records that were forgotten"
    with pytest.raises(SourceError, match=match) as refused:
        stream(lake)
    assert refused.value.exit_code == 4
    search = again(lake.pipeline)
    assert search is not None
    found = forget(lake.pipeline, "again", search, dry_run=False)
    assert found.counts == {"bronze": 0, "quarantine": 1, "speed": 2, "batch": 0}
    stream(lake)
    assert [who_is_in(lake, layer) for layer in ("bronze", "quarantine", "speed", "batch")] == [0] * 4


def test_a_rebuild_that_is_refused_is_told_and_done_by_the_next_night_also_where_the_index_was_lost(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake)
    shutil.rmtree(lake.config.ops_table("bronze_index"))

    def refuse(*_: Any, **__: Any) -> Any:
        raise SourceError("bronze is behind")

    with monkeypatch.context() as patched:
        patched.setattr(rebuilding, "nightly", refuse)
        told = (
            r"deleted from bronze.* readers still get them on 2013-01-01: bronze is behind.*forget .*--again"
        )
        with pytest.raises(SourceError, match=told) as refused:
            forget_key(lake, "flight=1")
    assert refused.value.summary["counts"]["bronze"] == 4
    assert served(lake) == [1, 2, 3]
    # Not by its lookback.
    batch = lake.config.batch.model_copy(update={"lookback_days": 0})
    without = replace(lake.pipeline, config=lake.config.model_copy(update={"batch": batch}))
    nightly(without, "night", [TWO], "late and missed")
    assert served(lake) == [2, 3]
    assert [(v.day, v.cause) for v in history(lake.pipeline)[-2:]] == [(ONE, "forgotten"), (TWO, "asked")]


def test_another_pipeline_of_the_topic_keeps_nothing_that_was_forgotten(
    make_lake: Callable[..., Lake], small: DataContract
) -> None:
    lake = make_lake(contract=small)
    other = Lake(Pipeline(lake.spark, lake.config.model_copy(update={"name": "flights_2"}), small))
    for each in (lake, other):
        each.ingest([of(1, 1), on(1, 2)])
        set_table_property(each.spark, each.config.table("bronze"), TOPIC_ID, hidden("the topic's id"))
        stream(each)
    forget_key(lake, "flight=1")
    with pytest.raises(SourceError, match=r"1 records that were forgotten.*--pipeline flights_2 --again"):
        run(other, ONE)
    search = again(replace(other.pipeline, contract=small))
    assert search is not None
    found = forget(replace(other.pipeline, contract=small), "again", search, dry_run=False)
    assert (found.counts["bronze"], found.counts["speed"]) == (1, 1)
    run(other, ONE)
    assert served(other) == [2]


@pytest.mark.thorough
def test_what_is_late_by_a_forgotten_record_is_late_still(lake: Lake) -> None:
    # Spark holds rows against the watermark of the micro-batch before.
    for records in ([of(9, 5)], [of(9, 6)], [on(1, 1), on(1, 2, sent=LATER)]):
        lake.ingest(records)
        counts = stream(lake)["counts"]
    assert counts["late"] == 2
    forget_key(lake, "scheduled_departure=2013-01-09T05:15:00-05:00")
    run(lake, ONE)
    assert history(lake.pipeline)[-1].late == 2


@pytest.mark.thorough
def test_bronze_of_an_earlier_version_gets_its_mark_when_it_is_needed(lake: Lake) -> None:
    properties = {"delta.appendOnly": "true", "delta.enableChangeDataFeed": "true"}
    ensure_table(lake.spark, lake.config.table("bronze"), shape(BRONZE), properties=properties)
    lake.ingest([of(1, 1), on(1, 2)])
    stream(lake)
    assert "_forgotten" not in lake.table("bronze").columns
    seen: list[int] = []
    rows = speed_layer._bronze(lake.pipeline).writeStream.foreachBatch(
        lambda got, _: seen.append(got.count())
    )
    running = rows.option("checkpointLocation", f"{lake.config.root}/ops/checkpoints/other").start()
    try:
        running.processAllAvailable()
        forget_key(lake, "flight=1")
        with pytest.raises(Exception, match="DELTA_SCHEMA_CHANGED") as failed:
            running.awaitTermination(60)
    finally:
        running.stop()
    said = explain_stream_failure(failed.value)
    assert isinstance(said, InfrastructureError)
    assert "Start the job again" in str(said)
    append(lake.envelopes([on(1, 3)]), lake.config.table("bronze"))
    assert stream(lake)["counts"]["rows"] == 1
    run(lake, ONE)
    assert (served(lake), seen) == ([2, 3], [2])


@pytest.mark.thorough
def test_a_day_past_its_retention_is_certified_again_without_what_is_forgotten(lake: Lake) -> None:
    fill(lake)
    # As retention leaves a lake: what it removed from bronze it has told before.
    delete_rows(lake.spark, lake.config.table("bronze"), "_offset < 6", {WHOLE_FROM: "2013-01-02"})
    found, told = forget_key(lake, "flight=1")
    assert (found.days, found.final, told["days"]) == ((), (ONE,), {})
    assert served(lake) == [2, 3]
    verdict = history(lake.pipeline)[-1]
    assert (verdict.day, verdict.status, verdict.rows, verdict.removed) == (ONE, "certified", 1, 1)
    assert set(forget_key(lake, "flight=1")[0].counts.values()) == {0}


def test_a_bronze_that_is_put_back_is_used_by_nobody_until_it_is_emptied_again(
    lake: Lake, tmp_path: Path
) -> None:
    fill(lake)
    assert again(lake.pipeline) is None
    bronze = Path(lake.config.table("bronze"))
    shutil.copytree(bronze, tmp_path / "backup")
    forget_key(lake, "flight=1")
    shutil.rmtree(bronze)
    shutil.copytree(tmp_path / "backup", bronze)
    uses: list[Callable[[], object]] = [
        lambda: stream(lake),
        lambda: run(lake, ONE),
        lambda: validate(lake.pipeline, "validate", ONE),
    ]
    for use in uses:
        with pytest.raises(SourceError, match="4 records that were forgotten") as refused:
            use()
        assert refused.value.exit_code == 4
    search = again(lake.pipeline)
    assert search is not None
    found = forget(lake.pipeline, "again", search, dry_run=False)
    assert found.counts == {"bronze": 4, "quarantine": 0, "speed": 0, "batch": 0}
    # What ingest reads once more is empty on arrival, and the rest of the micro-batch is as it came.
    lake.ingest([on(2, 4)])
    read_again = lake.envelopes([of(1, 1), replace(on(2, 5), offset=20)])
    read_again = read_again.withColumn("_offset", F.expr("CASE _offset WHEN 9 THEN 0 ELSE _offset END"))
    append(emptied_on_arrival(read_again, places(lake.pipeline)), lake.config.table("bronze"))
    assert who_is_in(lake, "bronze") == 0
    assert lake.table("bronze").where("_forgotten IS NOT NULL AND _offset = 0").count() == 2
    assert stream(lake)["counts"]["rows"] == 2
    # Offsets that are missing are found all the same.
    delete_rows(lake.spark, lake.config.table("bronze"), "_offset = 1", {})
    with pytest.raises(SourceError, match="records are gone that nightly runs have seen"):
        run(lake, ONE)


def test_a_loss_beside_what_is_forgotten_is_found(lake: Lake) -> None:
    lake.ingest([of(1, 1), on(1, 2), on(1, 3), on(1, 4)])
    stream(lake)
    run(lake, ONE)
    forget_key(lake, "flight=1")
    # One that nobody has forgotten is emptied, and not marked.
    emptied = {"key": "NULL", "value": "NULL", "headers": "NULL"}
    change_rows(
        lake.spark, lake.config.table("bronze"), lambda rows: rows.update("_offset = 2", dict(emptied)), {}
    )
    lake.ingest([on(2, 5)])
    stream(lake)
    with pytest.raises(AuditFailed):
        validate(lake.pipeline, "validate", ONE)
    assert served(lake) == [2, 3, 4, 5]
    # Rows of the speed layer that were changed by no command: nobody knows what was published of them.
    speed = lake.config.table("speed")
    before = version(lake.spark, speed)
    assert [*forgetting_commits(lake.spark, speed, -1, before).values()] == [(ONE,)]
    change_rows(lake.spark, speed, lambda rows: rows.update("flight = 5", {"tailnum": "NULL"}), {})
    with pytest.raises(SourceError, match=f"version {before + 1} .UPDATE. has changed or deleted rows"):
        forgetting_commits(lake.spark, speed, -1, before + 1)
