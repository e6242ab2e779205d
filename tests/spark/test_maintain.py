"""Upkeep removes what nothing needs, and readers, streams and audits find what they had."""

import os
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from pipelines.contract import DataContract
from pipelines.errors import InfrastructureError
from pipelines.layers import speed as speed_layer
from pipelines.layers.maintain import maintain
from pipelines.layers.quarantine import discard
from pipelines.layers.serving import read_serving
from pipelines.ops.certification import certified
from pipelines.ops.lease import lease
from pipelines.ops.leftovers import back_to_certified
from pipelines.ops.quarantined import Selection
from pipelines.ops.removal import from_bronze, from_quarantine, from_speed
from pipelines.ops.retention import speed_from, whole_from
from pipelines.sinks.delta import by_day_and_key, read
from pipelines.sinks.tables import (
    ensure_batch,
    ensure_table,
    events_schema,
    set_table_property,
    table_property,
)
from pipelines.sinks.upkeep import delete_rows
from tests.support.lakes import Lake, Record
from tests.support.nights import ONE, TWO, flights_of, on, run, stream

FOUR, FIVE = date(2013, 1, 4), date(2013, 1, 5)
MONTH = timedelta(days=30)


@pytest.fixture
def lake(make_lake: Callable[..., Lake], small: DataContract) -> Lake:
    kept = ("bronze_retention=30 days", "speed_retention=8 days", "quarantine_retention=30 days")
    return make_lake(*(f"maintain.{setting}" for setting in kept), contract=small)


def upkeep(lake: Lake, *, dry_run: bool = False, **changes: Any) -> tuple[dict[str, int], str]:
    """Runs `maintain`, with settings that a configuration file would not get past its checks."""
    config = lake.config.model_copy(update={"maintain": lake.config.maintain.model_copy(update=changes)})
    done = maintain(lake.spark, config, lake.contract, "upkeep", dry_run=dry_run)
    return done["counts"], "\n".join(done["lines"])


def kept_in_bronze(lake: Lake) -> str:
    """What keeps records in bronze; nothing of it may be removed."""
    found = from_bronze(lake.spark, lake.config, lake.contract, MONTH)
    assert (found.rows, found.condition) == (0, "false")
    return "\n".join(found.lines)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.select("flight", "_offset", "_event_date").toLocalIterator()))


def files(lake: Lake, layer: Any) -> set[str]:
    return {
        str(path)
        for path in Path(lake.config.table(layer)).rglob("*.parquet")
        if "_delta_log" not in str(path)
    }


def test_bronze_keeps_what_is_needed_and_loses_the_rest_while_a_stream_reads_it(lake: Lake) -> None:
    spark, config = lake.spark, lake.config
    lake.ingest([on(1, 1), on(1, 2), on(2, 3), Record(b"poison"), on(5, 5)])
    lake.ingest([on(5, 6, partition=1)])
    assert "speed_stream has not read records that were sent at 2013-01-01 12:00" in kept_in_bronze(lake)
    stream(lake)
    assert "speed_stream" not in kept_in_bronze(lake)
    assert "quarantine holds open records, the first sent at 2013-01-01 12:00" in kept_in_bronze(lake)
    discard(spark, config, "discard", Selection(), dry_run=False)
    assert kept_in_bronze(lake) == (
        "bronze: kept from 2012-12-31 on: 2013-01-01 is not certified: run nightly_batch for it"
    )

    run(lake, ONE, TWO)
    serving = rows(read_serving(spark, config))
    seen: list[int] = []
    running = (
        speed_layer._bronze(spark, config)
        .writeStream.foreachBatch(lambda batch, _: seen.append(batch.count()))
        .option("checkpointLocation", f"{config.root}/ops/checkpoints/other")
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        running.processAllAvailable()
        counts, said = upkeep(lake)
        assert (counts["bronze_rows"], counts["speed_rows"], counts["quarantine_rows"]) == (4, 0, 0)
        assert "bronze/flights: files compacted: 2" in said
        assert "bronze: 4 records that were sent before 2013-01-03 05:00 UTC; whole from 2013-01-04" in said
        assert (
            "bronze: kept from 2013-01-04 on: 2013-01-05 is not certified: run nightly_batch for it" in said
        )
        # One day of dedup horizon behind the first day of which nothing is gone.
        assert whole_from(spark, config) == FIVE
        assert table_property(spark, config.table("bronze"), "delta.appendOnly") == "true"
        left = lake.table("bronze").select("_partition", "_offset").orderBy("_partition")
        assert [tuple(row) for row in left.toLocalIterator()] == [(0, 4), (1, 0)]
        assert rows(read_serving(spark, config)) == serving

        # A copy of an event that the stream read before, and one that is new.
        lake.ingest([on(5, 5), on(5, 7)])
        running.processAllAvailable()
        assert running.exception() is None
        assert [number for number in seen if number] == [6, 2]
    finally:
        running.stop()
    restarted = stream(lake)["counts"]
    assert (restarted["records"], restarted["rows"], restarted["duplicates"]) == (2, 1, 1)
    assert run(lake, FIVE)["days"] == {"2013-01-05": "certified"}

    assert from_quarantine(spark, config, MONTH).rows == 0
    assert from_quarantine(spark, config, timedelta(seconds=-10)).rows == 1


def test_the_speed_layer_loses_only_days_that_readers_have_from_the_batch_layer(lake: Lake) -> None:
    spark, config, week = lake.spark, lake.config, timedelta(days=8)
    twelve, before = date(2013, 1, 12), date(2012, 12, 20)
    early = on(12, 9, scheduled_departure="2012-12-20T05:15:00-05:00")
    lake.ingest([on(1, 1), on(1, 2), on(2, 3), on(12, 4), on(13, 5), early])
    stream(lake)
    run(lake, ONE, twelve)
    held = from_speed(spark, config, week)
    said = "speed: kept from 2012-12-20 on: 2012-12-20 is not certified: run nightly_batch for it"
    assert (held.rows, held.condition, held.lines) == (0, "false", (said,))

    run(lake, before)
    serving = rows(read_serving(spark, config))
    removal = from_speed(spark, config, week)
    assert removal.lines == ("speed: 4 rows of 3 certified days; kept from 2013-01-04",)
    delete_rows(spark, config.table("speed"), removal.condition, removal.properties)
    assert rows(read_serving(spark, config)) == serving
    assert speed_from(spark, config) == FOUR
    assert rows(lake.table("speed")) == [(4, 3, twelve), (5, 4, date(2013, 1, 13))]
    assert from_speed(spark, config, week).rows == 0


def test_what_a_dead_run_left_does_not_cost_the_certified_version_its_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.ingest([on(1, 1), on(3, 3)])
    run(lake, ONE)

    def die(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    lake.ingest([on(1, 2)])
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.layers.batch.audit", die)
        with pytest.raises(KeyboardInterrupt):
            run(lake, ONE)
    with (
        lease(lake.spark, lake.config, "first"),
        pytest.raises(InfrastructureError, match=r"run first on .* is rebuilding this pipeline now"),
    ):
        upkeep(lake, compact=False)
    assert "batch: a run died before it decided" in upkeep(lake, dry_run=True, compact=False)[1]
    before = files(lake, "batch")
    said = upkeep(lake, compact=False, vacuum_after=timedelta())[1]
    assert "batch: a run died before it decided; first back to the certified version" in said
    assert "batch/flights: files removed: 1" in said
    assert len(before - files(lake, "batch")) == 1
    assert flights_of(read_serving(lake.spark, lake.config), ONE) == [(1, 2.0)]
    state = certified(lake.spark, lake.config)
    assert state is not None
    assert flights_of(read(lake.spark, lake.config.table("batch"), state.version), ONE) == [(1, 2.0)]
    # The next run finds the certified state in place, although commits lie behind it.
    assert not back_to_certified(lake.spark, lake.config, state)


def test_the_certified_version_stays_readable_when_its_log_is_older_than_delta_keeps_it(lake: Lake) -> None:
    ensure_batch(lake.spark, lake.config, lake.contract)
    batch, other = lake.config.table("batch"), f"{lake.config.root}/other"
    ensure_table(lake.spark, other, events_schema(lake.contract))
    long_ago = time.time() - timedelta(days=40).total_seconds()
    for table in (batch, other):
        set_table_property(lake.spark, table, "delta.checkpointInterval", "1")
        for number, path in enumerate(sorted(Path(table, "_delta_log").glob("*.*"))):
            os.utime(path, (long_ago + number, long_ago + number))
        set_table_property(lake.spark, table, "oncelake.test", "1")
    assert read(lake.spark, batch, 0).count() == 0
    with pytest.raises(PySparkException):
        read(lake.spark, other, 0).count()


def test_a_day_is_written_to_few_files_each_sorted_by_key(lake: Lake) -> None:
    table, spark = f"{lake.config.root}/days", lake.spark
    some = spark.range(0, 100, 1, 4).selectExpr(
        "named_struct('id', hash(id)) AS booking", "date_add(DATE'2013-01-01', int(id % 2)) AS _event_date"
    )
    by_day_and_key(some, ["booking.id"]).write.format("delta").partitionBy("_event_date").save(table)
    written = [str(path) for path in Path(table).glob("_event_date=*/*.parquet")]
    assert len(written) == 2
    for path in written:
        keys = [row[0] for row in spark.read.parquet(path).select("booking.id").toLocalIterator()]
        assert len(keys) == 50
        assert keys == sorted(keys)
