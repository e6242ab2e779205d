"""A stream whose checkpoint or source is not what it was says so, and ends with exit code 4."""

import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from pipelines.delta.idempotent_writer import IdempotentWriter
from pipelines.delta.io import append, read
from pipelines.delta.table_properties import set_table_property
from pipelines.delta.tables import ensure_table, shape
from pipelines.delta.transaction_numbers import damaged_commits
from pipelines.errors import SourceError
from pipelines.fault_points import Point, armed
from pipelines.spark.session import forget_tables
from pipelines.spark.streams import BatchFunction, Trigger, each_batch, query_of, run_stream
from pipelines.steps.speed import speed
from testbed.waiting import wait_until
from tests.support.cli_calls import outcome
from tests.support.lakes import Lake, flight

pytestmark = pytest.mark.usefixtures("two_partitions")


def test_a_commit_that_was_cut_off_ends_streams_and_jobs_with_the_way_back(lake: Lake) -> None:
    """Of a local file Hadoop has a checksum, so Spark and Delta fail over it wherever they read it first."""
    for number in (1, 2):
        lake.ingest([flight(flight=number)])
    log = Path(lake.config.table("bronze"), "_delta_log")
    newest = max(log.glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:-40])
    assert newest.with_name(f".{newest.name}.crc").exists()
    # What `oncelake doctor` asks.
    assert damaged_commits(lake.spark, lake.config.table("bronze")) == [str(newest)]
    forget_tables()
    said = f"{newest.name}: the file of a commit is empty or cut off"
    with pytest.raises(SourceError, match=said):
        speed(lake.pipeline, once=True)
    settings = (f"--set=lake.root={lake.config.root}", "--set=batch.seal_by=bronze")
    for command in (("nightly_batch", "--date", "2013-01-01"), ("maintain",)):
        exit_code, summary = outcome(*command, "--pipeline", "flights", *settings)
        assert (exit_code, said in summary["error"]) == (4, True), summary
    # As the runbook says. A checksum of Hadoop's that was left would be taken for that of the next commit.
    for file in list(log.glob(f"*{newest.stem}*")):
        file.unlink()
    forget_tables()
    lake.ingest([flight(flight=3)])
    forget_tables()
    assert speed(lake.pipeline, once=True).counts.rows == 2


def test_a_commit_that_was_cut_off_is_named_where_no_checksum_tells(lake: Lake) -> None:
    """As on an object store, or of a log that was copied: Delta does not say what it could not read."""
    for number in range(1, 8):
        lake.ingest([flight(flight=number)])
    log = Path(lake.config.table("bronze"), "_delta_log")
    one = sorted(log.glob("*.json"))[-6]
    content = one.read_bytes()
    one.write_bytes(content[: len(content) // 2])
    one.with_name(f".{one.name}.crc").unlink()
    settings = (f"--set=lake.root={lake.config.root}", "--set=batch.seal_by=bronze", "--pipeline", "flights")
    for command in (("speed_stream", "--once"), ("nightly_batch", "--date", "2013-01-01"), ("maintain",)):
        forget_tables()
        exit_code, summary = outcome(*command, *settings)
        assert (exit_code, f"{one.name}: the file of a commit" in summary["error"]) == (4, True), summary


def test_another_bronze_under_the_same_name_and_a_checkpoint_without_its_identity_are_refused(
    lake: Lake, tmp_path: Path
) -> None:
    lake.ingest([flight()])
    counts = speed(lake.pipeline, once=True).counts
    assert (counts.records, counts.rows) == (1, 1)
    shutil.move(lake.config.table("bronze"), tmp_path / "bronze")
    lake.ingest([flight(flight=2)])
    with pytest.raises(SourceError, match="the table is not the one that this checkpoint has read"):
        speed(lake.pipeline, once=True)
    assert lake.table("speed").count() == 1
    shutil.rmtree(lake.config.table("bronze"))
    shutil.move(tmp_path / "bronze", lake.config.table("bronze"))
    assert speed(lake.pipeline, once=True).counts.records == 0
    Path(lake.config.checkpoint("speed"), "metadata").unlink()
    with pytest.raises(SourceError, match=r"its checkpoint .* does not exist") as refused:
        speed(lake.pipeline, once=True)
    assert refused.value.exit_code == 4
    assert not lake.spark.streams.active


@pytest.mark.thorough
def test_a_property_of_a_table_that_is_changed_meanwhile_does_not_end_a_stream(lake: Lake) -> None:
    spark, source, target = lake.spark, f"{lake.config.root}/source", f"{lake.config.root}/target"
    append(spark.range(3).coalesce(1), source)
    ensure_table(spark, target, shape("id bigint, slow string"))
    slow = spark.readStream.format("delta").load(source)
    slow = slow.selectExpr("id", "reflect('java.lang.Thread', 'sleep', 500L) AS slow")
    kept, every = f"{target}-checkpoint", timedelta(1)
    runs: list[StreamingQuery] = []

    writer = IdempotentWriter(target, None)

    def write(rows: DataFrame, batch: int) -> None:
        writer.append(rows, batch, 3)

    def start() -> StreamingQuery:
        query = each_batch(slow, write, name="slow", checkpoint=kept, trigger=Trigger(True, every))
        runs.append(query)
        return query

    def change() -> None:
        wait_until(
            lambda: any(runs[:1]) and bool(spark.sparkContext.statusTracker().getActiveStageIds()),
            "it works",
            60,
        )
        for number in range(3):
            set_table_property(spark, target, "oncelake.test", str(number))

    with ThreadPoolExecutor(1) as pool:
        changed = pool.submit(change)
        run_stream(spark, start)
        changed.result()
    assert sorted(row["id"] for row in read(spark, target).collect()) == [0, 1, 2]


def test_what_a_signal_to_the_whole_group_breaks_is_no_failure_of_a_stream_that_stops(lake: Lake) -> None:
    spark, source = lake.spark, f"{lake.config.root}/source"
    append(spark.range(3), source)
    rows = spark.readStream.format("delta").load(source)

    def write(rows: DataFrame, batch: int) -> None:
        raise OSError("a helper of the JVM was ended by the same signal")

    def start() -> StreamingQuery:
        kept = f"{source}-checkpoint"
        query = each_batch(rows, write, name="told", checkpoint=kept, trigger=Trigger(True, timedelta(1)))
        wait_until(lambda: query.exception() is not None, "it has failed", 60)
        os.kill(os.getpid(), signal.SIGTERM)
        return query

    assert run_stream(spark, start).counts["rows"] == 0


@pytest.mark.parametrize(("ahead", "after_the_look"), [(0, False), (1, False), (0, True)])
def test_a_micro_batch_that_another_run_has_written_is_not_passed_over(
    lake: Lake, ahead: int, after_the_look: bool
) -> None:
    spark, source, target = lake.spark, f"{lake.config.root}/source", f"{lake.config.root}/target"
    append(spark.range(3), source)
    ensure_table(spark, target, shape("id bigint"))
    writer = IdempotentWriter(target, None)

    def write(rows: DataFrame, batch: int) -> None:
        other = rows.limit(0).write.format("delta").mode("append").option("txnAppId", query_of(spark))
        other = other.option("txnVersion", str(batch + ahead))
        if not after_the_look:
            other.save(target)
        overtaken = partial(armed, Point.BATCH_LOOKED_FOR, partial(other.save, target))
        with overtaken() if after_the_look else nullcontext():
            writer.append(rows, batch, 3)

    copied = BatchFunction(write)

    def start() -> StreamingQuery:
        stream = spark.readStream.format("delta").load(source)
        at, every = f"{target}-checkpoint", timedelta(1)
        return each_batch(stream, copied, name="copied", checkpoint=at, trigger=Trigger(True, every))

    with pytest.raises(SourceError, match=f"found micro-batch {ahead} of query"):
        run_stream(spark, start, copied)
    assert read(spark, target).isEmpty()
