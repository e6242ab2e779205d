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
from pipelines.ops.retention import speed_from, whole_from
from pipelines.sinks.delta import read
from pipelines.sinks.tables import (
    ensure_batch,
    ensure_table,
    events_schema,
    set_table_property,
    table_property,
)
from tests.support.lakes import Lake, Record
from tests.support.nights import ONE, TWO, flights_of, on, run, stream

FOUR, FIVE = date(2013, 1, 4), date(2013, 1, 5)
BRIEF = timedelta(seconds=-10)


@pytest.fixture
def lake(make_lake: Callable[..., Lake], small: DataContract) -> Lake:
    kept = ("bronze_retention=30 days", "speed_retention=8 days", "quarantine_retention=30 days")
    return make_lake(*(f"maintain.{setting}" for setting in kept), contract=small)


def upkeep(lake: Lake, *, dry_run: bool = False, **changes: Any) -> tuple[dict[str, int], str]:
    """Runs `maintain`, with settings that a configuration file would not get past its checks."""
    config = lake.config.model_copy(update={"maintain": lake.config.maintain.model_copy(update=changes)})
    done = maintain(lake.spark, config, lake.contract, "upkeep", dry_run=dry_run)
    return done["counts"], "\n".join(done["lines"])


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

    counts, said = upkeep(lake, compact=False)
    assert counts["bronze_rows"] == 0
    assert "speed_stream has not read records that were sent at 2013-01-01 12:00 UTC" in said
    assert "bronze: no file removed" in said

    stream(lake)
    run(lake, ONE, TWO)
    serving = rows(read_serving(spark, config))
    counts, said = upkeep(lake, compact=False)
    assert counts["bronze_rows"] == 0
    assert "quarantine holds open records, the first sent at 2013-01-01 12:00 UTC" in said

    discard(spark, config, "discard", Selection(), dry_run=False)
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
        before = {layer: files(lake, layer) for layer in ("bronze", "quarantine", "batch", "speed")}
        counts, said = upkeep(lake, dry_run=True)
        assert {layer: files(lake, layer) for layer in before} == before
        assert whole_from(spark, config) is None
        expected = {"bronze_rows": 4, "speed_rows": 0, "quarantine_rows": 0}
        assert {name: counts[name] for name in expected} == expected
        assert "bronze: 4 records that were sent before 2013-01-03 05:00 UTC; whole from 2013-01-04" in said
        assert (
            "bronze: kept from 2013-01-04 on: 2013-01-05 is not certified: run nightly_batch for it" in said
        )
        assert "bronze/flights: files compacted: 2" in said

        counts, said = upkeep(lake)
        assert {name: counts[name] for name in expected} == expected
        # One day of dedup horizon behind the first day of which nothing is gone.
        assert whole_from(spark, config) == FIVE
        assert table_property(spark, config.table("bronze"), "delta.appendOnly") == "true"
        left = read(spark, config.table("bronze")).select("_partition", "_offset").orderBy("_partition")
        assert [tuple(row) for row in left.toLocalIterator()] == [(0, 4), (1, 0)]
        assert rows(read_serving(spark, config)) == serving

        # A copy of an event that was removed, and one that is new: the state is what it was.
        lake.ingest([on(5, 5), on(5, 7)])
        running.processAllAvailable()
        assert running.exception() is None
        assert seen == [6, 2]
    finally:
        running.stop()
    restarted = stream(lake)["counts"]
    assert (restarted["records"], restarted["rows"], restarted["duplicates"]) == (2, 1, 1)

    assert run(lake, FIVE)["days"] == {"2013-01-05": "certified"}
    assert upkeep(lake, compact=False, quarantine_retention=BRIEF)[0]["quarantine_rows"] == 1
    assert flights_of(read_serving(spark, config), ONE) == [(1, 2.0), (2, 2.0)]


def test_the_speed_layer_loses_only_days_that_readers_have_from_the_batch_layer(lake: Lake) -> None:
    twelve, before = date(2013, 1, 12), date(2012, 12, 20)
    early = on(12, 9, scheduled_departure="2012-12-20T05:15:00-05:00")
    lake.ingest([on(1, 1), on(1, 2), on(2, 3), on(12, 4), on(13, 5), early])
    stream(lake)
    run(lake, ONE, twelve)
    counts, said = upkeep(lake, compact=False, bronze_retention=None)
    assert counts["speed_rows"] == 0
    assert "speed: kept from 2012-12-20 on: 2012-12-20 is not certified: run nightly_batch for it" in said

    run(lake, before)
    serving = rows(read_serving(lake.spark, lake.config))
    assert upkeep(lake, compact=False, bronze_retention=None)[0]["speed_rows"] == 4
    assert rows(read_serving(lake.spark, lake.config)) == serving
    assert speed_from(lake.spark, lake.config) == FOUR
    assert rows(lake.table("speed")) == [(4, 3, twelve), (5, 4, date(2013, 1, 13))]
    assert upkeep(lake, compact=False, bronze_retention=None)[0]["speed_rows"] == 0


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
        upkeep(lake, bronze_retention=None)
    assert "batch: a run died before it decided" in upkeep(lake, dry_run=True, bronze_retention=None)[1]
    before = files(lake, "batch")
    said = upkeep(lake, bronze_retention=None, vacuum_after=timedelta())[1]
    assert "batch: a run died before it decided; first back to the certified version" in said
    assert "batch/flights: files removed: 1" in said
    assert len(before - files(lake, "batch")) == 1
    assert flights_of(read_serving(lake.spark, lake.config), ONE) == [(1, 2.0)]
    state = certified(lake.spark, lake.config)
    assert state is not None
    assert flights_of(read(lake.spark, lake.config.table("batch"), state.version), ONE) == [(1, 2.0)]
    # The next run finds the certified state in place, although commits lie behind it.
    assert not back_to_certified(lake.spark, lake.config)


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
