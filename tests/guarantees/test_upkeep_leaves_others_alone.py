"""Upkeep of a pipeline rewrites no file of another pipeline in the ledgers that they share."""

from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

from pipelines.config.model import PipelineConfig
from pipelines.delta.epochs import Epoch
from pipelines.ledger.certifications import Verdict, ensure_ledger, history, record_verdicts
from pipelines.steps.maintain import maintain
from tests.support.lakes import Lake, flight


def decide(lake: Lake, config: PipelineConfig, day: int) -> None:
    verdict = Verdict(
        pipeline=config.name,
        day=date(2013, 1, day),
        status="failed",
        run_id=f"run {day}",
        batch_version=day,
        bronze_version=day,
        records=1,
        rows=1,
        duplicates=1,
        conflicts=1,
        late=1,
        quarantined=1,
        other_days=0,
        bronze=1,
        decided_at=datetime(2013, 1, day, tzinfo=UTC),
    )
    ensure_ledger(replace(lake.pipeline, config=config))
    _, stamp = Epoch(config.name, verdict.run_id, day).after("certify")
    record_verdicts(replace(lake.pipeline, config=config), [verdict], stamp)


def live_files(lake: Lake, pipeline: str) -> set[str]:
    ledger = lake.spark.read.format("delta").load(lake.config.ops_table("certifications"))
    rows = ledger.where(f"pipeline = '{pipeline}'").select("_metadata.file_path").distinct()
    return {Path(row["file_path"]).name for row in rows.toLocalIterator()}


def test_a_ledger_is_compacted_for_the_own_pipeline_alone(lake: Lake) -> None:
    other = lake.config.model_copy(update={"name": "flights_2"})
    for day in (1, 2, 3):
        decide(lake, lake.config, day)
        decide(lake, other, day)
    lake.ingest([flight()])
    before = live_files(lake, "flights_2")
    maintain(lake.pipeline, "upkeep", dry_run=False)
    assert len(live_files(lake, "flights")) == 1
    assert live_files(lake, "flights_2") == before
    assert len(before) == 3
    assert [verdict.day.day for verdict in history(lake.pipeline)] == [1, 2, 3]
