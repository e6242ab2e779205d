"""Upkeep removes what nothing needs, and readers, streams and audits find what they had."""

import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pipelines.cli.maintain import summary_of
from pipelines.contracts.contract import DataContract
from pipelines.contracts.rules import RowRule
from pipelines.delta.event_tables import ensure_batch, events_schema
from pipelines.delta.fenced_commits import replace_days_fenced
from pipelines.delta.io import by_day_and_key, read, small_rows
from pipelines.delta.table_properties import WHOLE_FROM, set_table_property, table_property
from pipelines.delta.tables import ensure_table
from pipelines.errors import InfrastructureError, SourceError
from pipelines.ledger.certifications import history, record_verdicts
from pipelines.ledger.leases import backfill_lease, lease
from pipelines.ledger.quarantine import Selection
from pipelines.ledger.retention_properties import first_rebuildable_day, speed_from
from pipelines.nightly.recovery import holds_certified
from pipelines.retention.blockers import RetentionBlocker
from pipelines.retention.removal import SparkRetentionLake
from pipelines.retention.removal_terms import bronze_removal, quarantine_removal, speed_removal
from pipelines.session_settings import session_settings
from pipelines.spark.pipeline import Pipeline
from pipelines.steps import speed as speed_layer
from pipelines.steps.maintain import maintain
from pipelines.steps.nightly import nightly
from pipelines.steps.quarantine import discard, summarise
from pipelines.steps.serving import read_serving
from tests.support.certified_days import certify, rebuild
from tests.support.consoles import verdict
from tests.support.delta_rows import rows_in
from tests.support.lakes import Lake, Record, flight
from tests.support.nights import ONE, TWO, on, stream

EARLY = date(2012, 12, 20)
MONTH = timedelta(days=30)
NOT_CERTIFIED = "{0} is not certified: run first: oncelake nightly_batch --pipeline flights --date {0}"
AT_WORK = r"run first on .* is at work on this pipeline now"
TOLD = (
    "bronze/flights: files compacted: 2",
    "bronze: 4 records that were sent before 2013-01-10 05:00 UTC; whole from 2013-01-11",
    f"bronze: kept from 2013-01-11 on: {NOT_CERTIFIED.format('2013-01-12')}",
    "speed: 1 rows of 1 certified days; kept from 2012-12-24",
)


@pytest.fixture
def lake(make_lake: Callable[..., Lake], small: DataContract) -> Lake:
    kept = ("bronze_retention=30 days", "speed_retention=20 days", "quarantine_retention=30 days")
    return make_lake(*(f"maintain.{setting}" for setting in kept), contract=small)


def upkeep(lake: Lake, *, dry_run: bool = False, **changes: Any) -> tuple[dict[str, int], str]:
    """Runs `maintain`, with settings that a configuration file would not get past its checks."""
    config = lake.config.model_copy(update={"maintain": lake.config.maintain.model_copy(update=changes)})
    done = maintain(replace(lake.pipeline, config=config), "upkeep", dry_run=dry_run)
    told = summary_of(done, vacuum_now=False)
    return told["counts"], "\n".join(told["lines"])


def kept_in_bronze(lake: Lake) -> str:
    """What keeps records in bronze; nothing of it may be removed."""
    found = bronze_removal(SparkRetentionLake(lake.pipeline), MONTH)
    assert (found.rows, found.condition) == (0, "false")
    return "\n".join(f"from {need.day} on: {need.why}" for need in found.needs)


def unresolved(lake: Lake) -> list[tuple[str, int]]:
    """How many unresolved records the quarantine has for each reason."""
    return [(group.reason, group.records) for group in summarise(lake.pipeline, Selection())]


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in small_rows(frame.select("flight", "_offset", "_event_date")))


def files(lake: Lake) -> set[str]:
    """All files of the lake that hold rows."""
    root = Path(lake.config.root)
    return {str(path) for path in root.rglob("*.parquet") if path.parent.name != "_delta_log"}


def offsets_left(lake: Lake) -> list[tuple[int, ...]]:
    """For each partition of bronze: its number, its first and last offset, and how many there are."""
    offsets = defaultdict[int, set[int]](set)
    for partition, offset in rows_in(lake.config.table("bronze"), "_partition", "_offset"):
        offsets[partition].add(offset)
    return sorted((partition, min(of), max(of), len(of)) for partition, of in offsets.items())


def reader(lake: Lake, seen: list[int]) -> StreamingQuery:
    """A query that reads bronze as the speed stream does, and notes how many rows it gets."""
    rows = speed_layer.bronze_stream(lake.pipeline)
    writer = rows.writeStream.foreachBatch(lambda batch, _: seen.append(batch.count()))
    writer = writer.option("checkpointLocation", f"{lake.config.root}/ops/checkpoints/other")
    # Upkeep takes longer. Each look at bronze would take its share of the processor.
    return writer.trigger(processingTime="2 seconds").start()


def hold_on(lake: Lake) -> None:
    """Fills the lake, and sees that bronze and speed layer keep everything as long as something needs it."""
    sent = datetime(2013, 1, 12, 12, tzinfo=UTC)
    early = Record(flight(scheduled_departure="2012-12-20T05:15:00-05:00"), sent=sent)
    lake.ingest([on(1, 1), on(1, 2), on(2, 3), Record(b"poison"), early, on(12, 5)])
    lake.ingest([on(12, 6, partition=1), on(13, 8, partition=1)])
    assert "speed_stream has not read records that were sent at 2013-01-01 12:00" in kept_in_bronze(lake)
    stream(lake)
    kept = kept_in_bronze(lake)
    assert "speed_stream" not in kept
    assert "quarantine holds unresolved records, the first sent at 2013-01-01 12:00" in kept
    discard(lake.pipeline, "discard", Selection(), dry_run=False)
    assert kept_in_bronze(lake) == f"from 2012-12-19 on: {NOT_CERTIFIED.format('2012-12-20')}"
    nightly(lake.pipeline, "run", [EARLY, ONE, TWO, date(2013, 1, 13)])
    # Of the certified days before the one that is uncertified, and not of that behind it.
    removal = speed_removal(SparkRetentionLake(lake.pipeline), timedelta())
    need = RetentionBlocker(date(2013, 1, 12), NOT_CERTIFIED.format("2013-01-12"))
    assert (removal.rows, removal.kept_from, removal.needs) == (4, need.day, (need,))


def lose_a_record(lake: Lake) -> None:
    """Delete a record of bronze by hand, see that retention removes none then, and put bronze back."""
    bronze = Path(lake.config.table("bronze"))
    copy = Path(shutil.copytree(bronze, bronze.with_name("copy")))
    set_table_property(lake.spark, str(bronze), "delta.appendOnly", "false")
    DeltaTable.forPath(lake.spark, str(bronze)).delete("_partition = 1 AND _offset = 1")
    with pytest.raises(SourceError, match=r"are gone .*flights-1: the offsets 0\.\.1 except 0\.\.0"):
        upkeep(lake, compact=False)
    assert (0, 0) in rows_in(bronze, "_partition", "_offset")
    # A person says from which day on bronze is complete: first a nightly run has to see it.
    set_table_property(lake.spark, str(bronze), WHOLE_FROM, "2012-12-30")
    _, told = upkeep(lake, compact=False, speed_retention=None, quarantine_retention=None)
    assert "bronze tells of a loss that no nightly run has seen" in told
    assert (0, 0) in rows_in(bronze, "_partition", "_offset")
    shutil.rmtree(bronze)
    copy.rename(bronze)


def die_at_work(lake: Lake) -> None:
    """Leaves the batch table as a nightly run does that dies when it has built a day."""
    with lease(lake.pipeline, "died") as held:
        again = lake.table("batch").where(F.col("_event_date") == F.lit(TWO)).localCheckpoint()
        replace_days_fenced(again, lake.config.table("batch"), [TWO], held.stamp("build"))


def fails(pipeline: Pipeline, *days: date) -> None:
    """Records, by a commit for each of the days, that it did not pass."""
    with lease(pipeline, "failed") as held:
        for day in days:
            failed = verdict(pipeline.config.name, day, 0, "failed")
            stamp = held.stamp("certify")
            record_verdicts(pipeline, [replace(failed, previous_version=None, epoch=held.epoch)], stamp)


def ledger_files(lake: Lake) -> dict[str, set[str]]:
    """By pipeline, the files of the ledger that pipelines share."""
    ledger = read(lake.spark, lake.config.ops_table("certifications"))
    found: defaultdict[str, set[str]] = defaultdict(set)
    for row in ledger.select("pipeline", "_metadata.file_path").distinct().collect():
        found[row["pipeline"]].add(row["file_path"])
    return found


@contextmanager
def others_left_alone(lake: Lake) -> Iterator[None]:
    """Upkeep in the block puts files of the pipeline in the shared ledger together, and no other's."""
    other = lake.config.model_copy(update={"name": "flights_2"})
    fails(replace(lake.pipeline, config=other), EARLY, ONE, TWO)
    # Not certified, like a day without a verdict.
    fails(lake.pipeline, date(2013, 1, 12))
    before, verdicts = ledger_files(lake), history(lake.pipeline)
    assert {name: len(files) for name, files in before.items()} == {"flights": 2, "flights_2": 3}
    yield
    after = ledger_files(lake)
    assert (len(after["flights"]), after["flights_2"]) == (1, before["flights_2"])
    assert history(lake.pipeline) == verdicts


def test_upkeep_removes_what_nothing_needs_and_readers_and_streams_find_what_they_had(lake: Lake) -> None:
    hold_on(lake)
    serving = rows(read_serving(lake.pipeline))
    lose_a_record(lake)
    die_at_work(lake)
    before = files(lake)
    counts, said = upkeep(lake, dry_run=True)
    assert files(lake) == before
    assert first_rebuildable_day(lake.pipeline) is None
    removed = {"bronze_rows": 4, "speed_rows": 1, "quarantine_rows": 0}
    assert {name: counts[name] for name in removed} == removed

    seen: list[int] = []
    running = reader(lake, seen)
    try:
        running.processAllAvailable()
        with lease(lake.pipeline, "first"), pytest.raises(InfrastructureError, match=AT_WORK):
            upkeep(lake, compact=False)
        with others_left_alone(lake):
            counts, really = upkeep(lake, vacuum_after=timedelta())
        assert {name: counts[name] for name in removed} == removed
        for line in TOLD:
            assert line in said
            assert line in really
        assert "batch: a run died before its verdict; first to be restored to the certified version" in said
        assert "batch: a run died before its verdict; first restored to the certified version" in really
        assert "batch/flights: files removed: 1" in really

        # One day of dedup horizon behind the first day of which nothing is gone.
        assert first_rebuildable_day(lake.pipeline) == date(2013, 1, 12)
        assert speed_from(lake.pipeline) == date(2012, 12, 24)
        assert rows(read_serving(lake.pipeline)) == serving
        # The next run finds the certified state in place, although commits lie behind it.
        assert holds_certified(lake.pipeline)
        assert offsets_left(lake) == [(0, 4, 5, 2), (1, 0, 1, 2)]
        assert table_property(lake.spark, lake.config.table("bronze"), "delta.appendOnly") == "true"

        # A copy of an event that the stream read before, and one that is new.
        lake.ingest([on(12, 5), on(12, 7)])
        running.processAllAvailable()
        assert running.exception() is None
        assert [number for number in seen if number] == [8, 2]
    finally:
        running.stop()
    restarted = stream(lake).counts
    assert (restarted.records, restarted.rows, restarted.duplicates) == (2, 1, 1)
    assert quarantine_removal(SparkRetentionLake(lake.pipeline), MONTH).rows == 0
    assert quarantine_removal(SparkRetentionLake(lake.pipeline), timedelta(seconds=-10)).rows == 1


def test_bronze_keeps_what_a_later_contract_refuses_until_it_is_resolved(lake: Lake) -> None:
    rules = (*lake.contract.row_rules, RowRule("flight", "maximum", 8))
    strict = lake.variant(contract=replace(lake.contract, row_rules=rules))
    lake.ingest([on(1, 1), on(1, 9), on(2, 2), on(12, 3)])
    stream(lake)
    rebuild(strict, [ONE, TWO])
    broken = "records that were sent at 2013-01-01 12:00 UTC break the contract, and are not in quarantine"
    assert broken in kept_in_bronze(strict)
    upkeep(strict, dry_run=True)
    assert unresolved(strict) == []
    # The first puts the record in quarantine, and the second finds it there.
    for why in (broken, "quarantine holds unresolved records"):
        counts, told = upkeep(strict, compact=False)
        assert counts["bronze_rows"] == 0
        assert why in told
        assert unresolved(strict) == [("rule_failed", 1)]
    discard(strict.pipeline, "discard", Selection(), dry_run=False)
    assert bronze_removal(SparkRetentionLake(strict.pipeline), MONTH).rows == 3


@pytest.mark.thorough
def test_upkeep_does_not_believe_a_clock_that_is_far_ahead_of_bronze(lake: Lake) -> None:
    lake.ingest([on(1, 1)])
    # To upkeep it is the same whether its clock is ahead or the newest commit is old.
    newest = max(Path(lake.config.table("bronze"), "_delta_log").glob("*.json"))
    old = time.time() - timedelta(days=8).total_seconds()
    os.utime(newest, (old, old))
    with pytest.raises(InfrastructureError, match=r"may be ahead: .*Nothing was removed.*max_idle='9 days'"):
        upkeep(lake)
    assert lake.count("bronze") == 1
    assert upkeep(lake, max_idle=timedelta(days=9), dry_run=True)[0]["bronze_rows"] == 0


def test_a_version_of_the_batch_layer_stays_readable_however_old_it_gets(lake: Lake) -> None:
    ensure_batch(lake.pipeline)
    batch, other = lake.config.table("batch"), f"{lake.config.root}/other"
    ensure_table(lake.spark, other, events_schema(lake.contract))
    long_ago = time.time() - timedelta(days=40).total_seconds()
    for table in (batch, other):
        set_table_property(lake.spark, table, "delta.checkpointInterval", "1")
        for number, path in enumerate(sorted(Path(table, "_delta_log").glob("*.*"))):
            os.utime(path, (long_ago + number, long_ago + number))
        set_table_property(lake.spark, table, "oncelake.test", "1")
    assert read(lake.spark, batch, 0).count() == 0
    DeltaTable.forPath(lake.spark, batch).restoreToVersion(0)
    with pytest.raises(PySparkException):
        read(lake.spark, other, 0).count()


@pytest.mark.thorough
def test_a_day_is_written_to_few_files_each_sorted_by_key(lake: Lake) -> None:
    table, spark = f"{lake.config.root}/days", lake.spark
    some = spark.range(0, 100, 1, 4).selectExpr(
        "named_struct('id', hash(id)) AS booking", "date_add(DATE'2013-01-01', int(id % 2)) AS _event_date"
    )
    # As in production: adaptive execution puts the rows of a day together.
    with session_settings(spark, {"spark.sql.adaptive.enabled": "true"}):
        by_day_and_key(some, ["booking.id"]).write.format("delta").partitionBy("_event_date").save(table)
    written = [str(path) for path in Path(table).glob("_event_date=*/*.parquet")]
    assert len(written) == 2
    for path in written:
        keys = [row[0] for row in spark.read.parquet(path).select("booking.id").collect()]
        assert len(keys) == 50
        assert keys == sorted(keys)


@pytest.mark.thorough
def test_a_day_that_can_no_longer_be_certified_keeps_no_other_in_the_speed_layer(lake: Lake) -> None:
    lake.ingest_and_enter([on(1, 1), on(5, 2), on(6, 3), on(12, 4)])
    set_table_property(lake.spark, lake.config.table("bronze"), WHOLE_FROM, "2013-01-03")
    certify(lake, *(date(2013, 1, day) for day in (5, 6, 12)))
    removal = speed_removal(SparkRetentionLake(lake.pipeline), timedelta())
    assert (removal.rows, removal.kept_from, removal.needs) == (2, date(2013, 1, 12), ())
    assert lake.table("speed").where(f"NOT ({removal.condition})").count() == 2


def test_bronze_keeps_its_records_while_a_backfill_is_at_work(lake: Lake) -> None:
    """What it brings would go with the records around it, unread and in no certified day."""
    lake.ingest([on(1, 1), on(12, 2)])
    with backfill_lease(lake.pipeline, "backfill"):
        counts, said = upkeep(lake, compact=False)
    assert (counts["bronze_rows"], lake.count("bronze")) == (0, 2)
    # It is asked for first, so what else keeps records is not looked for.
    assert "bronze: kept from 1970-01-01 on: a backfill is at work" in said
    assert "not certified" not in said
