"""The dedup key that makes a task long is named, from some rows that the stage has not read."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from pipelines.config.streams import TableQuery
from pipelines.contracts.contract import DataContract
from pipelines.delta.sampled_rows import sampled_rows
from pipelines.delta.upkeep import compact
from pipelines.lag.causes import find_cause
from pipelines.lag.dedup_key_looks import dedup_keys, keys_looked_at
from pipelines.lag.stage_facts import PartitionLag, StageFacts
from pipelines.lag.stages import stages
from pipelines.spark.stream_progress import BatchFigures, StreamProgress, TaskFigures, write_progress
from pipelines.steps.speed import speed
from tests.support.lakes import Lake, Record, compact_and_vacuum, flight

HOT = "carrier=UA flight=1545 origin=EWR scheduled_departure="
MakeLake = Callable[..., Lake]


def skewed(count: int, at: int = 0) -> list[bytes]:
    """Records of which six of ten have one dedup key."""
    return [flight() if n % 10 < 6 else flight(flight=at + n + 2_000) for n in range(count)]


def behind(query: TableQuery) -> StageFacts:
    """A stage that is an hour behind, with a task that runs for most of each micro-batch."""
    now = datetime.now(UTC)
    tasks = TaskFigures(16, 0, 20.0, 0.5, 0, 9.0)
    batches = tuple(
        BatchFigures(n, now - timedelta(seconds=10 * (10 - n)), 10.0, 100, {"write": 9.0}, tasks=tasks)
        for n in range(10)
    )
    begun = now - timedelta(hours=2)
    stream = StreamProgress(query, "host", 7, begun, now, now, 10.0, batches=batches)
    return StageFacts(query, now, (PartitionLag(0, 10_000, 3_600.0),), stream, now, is_alive=True)


def test_the_hot_key_of_bronze_is_named_with_what_breaks_the_contract_among_the_rows(lake: Lake) -> None:
    # Two with each key, and of more keys than are named; what is broken has no key.
    broken = [flight(flight=9_000 + n // 2, departure_delay="late") for n in range(10)]
    lake.ingest([*skewed(90), *broken])
    found = keys_looked_at(lake.pipeline, behind("speed"), "speed")
    sample = found.dedup_keys
    assert sample
    assert (sample.rows, sample.keys[0].share, sample.keys[0].place) == (100, 0.54, "flights-0@0")
    assert (sample.keys[0].shown or "").startswith(HOT)
    assert [each.share for each in sample.keys[1:]] == [0.01, 0.01]
    told = find_cause(found)
    assert (told.cause, told.advice) == ("skew", "fewer_of_key")
    assert [each.kind for each in told.symptoms] == ["long_task", "frequent_dedup_key"]


def test_who_has_no_long_task_costs_no_look(lake: Lake) -> None:
    lake.ingest(skewed(10))
    even = replace(behind("speed"), stream=None)
    assert keys_looked_at(lake.pipeline, even, "speed") == even


def test_the_sample_is_bounded_and_spread_over_what_is_unread(lake: Lake) -> None:
    for at in range(0, 3_000, 1_000):
        lake.ingest([flight(flight=at + n) for n in range(1_000)])
    rows = sampled_rows(lake.pipeline, "speed")
    assert rows
    offsets = [row["_offset"] for row in rows.collect()]
    assert 1_500 <= len(offsets) <= 2_000
    assert {offset // 1_000 for offset in offsets} == {0, 1, 2}
    assert len({*offsets}) == len(offsets)


def test_a_key_is_shown_as_far_as_the_contract_lets_it_be(lake: Lake) -> None:
    lake.ingest(skewed(20))
    hidden: Any = {"carrier": "drop", "flight": "hash"}
    lake.contract = replace(lake.contract, personal=hidden)
    sample = dedup_keys(lake.pipeline, "speed")
    assert sample
    shown = sample.keys[0].shown or ""
    assert shown.startswith("carrier flight=sha256:")
    assert "UA" not in shown
    assert "1545" not in shown
    lake.contract = replace(lake.contract, personal=dict.fromkeys(lake.contract.key, "drop"))
    all_hidden = dedup_keys(lake.pipeline, "speed")
    assert all_hidden
    assert (all_hidden.keys[0].shown, all_hidden.keys[0].share) == (None, 0.6)


@pytest.mark.parametrize("part", ["total", "count", "place"])
def test_a_key_may_have_any_name(make_lake: MakeLake, contract: DataContract, part: str) -> None:
    fields = [field for field in contract.schema if field.name != "flight"]
    schema = StructType([*fields, StructField(part, LongType())])
    lake = make_lake(contract=replace(contract, schema=schema, key=(part,), row_rules=(), day_rules=()))
    lake.ingest([flight(**{part: 7 if n < 6 else n + 100}) for n in range(10)])
    sample = dedup_keys(lake.pipeline, "speed")
    assert sample
    assert (sample.rows, sample.keys[0].shown, sample.keys[0].share) == (10, f"{part}=7", 0.6)


def test_compaction_adds_no_rows_and_what_vacuum_has_removed_is_not_looked_for(lake: Lake) -> None:
    lake.ingest(skewed(20))
    lake.ingest(skewed(20, at=500))
    table = lake.config.table("bronze")
    compact(lake.spark, table)
    sample = dedup_keys(lake.pipeline, "speed")
    assert sample
    assert sample.rows == 40
    compact_and_vacuum(lake.spark, table)
    assert dedup_keys(lake.pipeline, "speed") is None


def test_rows_of_the_speed_layer_are_looked_at_for_publishing(make_lake: MakeLake) -> None:
    lake = make_lake("publish.topic=out")
    # Its stream keeps a key for some hours, so a key may come again.
    for day in range(1, 6):
        lake.enter([Record(flight(), sent=datetime(2013, 1, day, 12, tzinfo=UTC))])
    lake.enter([flight(flight=7), flight(flight=8)])
    sample = dedup_keys(lake.pipeline, "publish")
    assert sample
    assert (sample.rows, sample.keys[0].share) == (7, 5 / 7)


def test_the_stages_of_a_pipeline_are_looked_at(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.ingest(skewed(100))
    speed(lake.pipeline, once=True)
    lake.ingest([Record(value, sent=datetime(2013, 1, 1, tzinfo=UTC)) for value in skewed(100, at=500)])
    facts = behind("speed").stream
    assert facts
    write_progress(lake.spark, lake.pipeline.checkpoint("speed"), facts)
    only = lake.config.model_copy()
    monkeypatch.setattr(type(only), "streams", ("speed",))
    (found,) = stages(lake.pipeline)
    assert found.records == 100
    assert found.dedup_keys
    assert (found.dedup_keys.keys[0].shown or "").startswith(HOT)


def test_a_commit_that_cannot_be_read_hides_nothing_else(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    lake.ingest(skewed(10))
    newest = max(Path(lake.config.table("bronze"), "_delta_log").glob("*.json"))
    newest.write_text("{cut off", encoding="utf-8")
    facts = behind("speed")
    assert keys_looked_at(lake.pipeline, facts, "speed") == facts
    assert "the dedup keys that speed reads are unknown" in caplog.text
