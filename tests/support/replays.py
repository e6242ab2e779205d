"""Replays step by step: what is rebuilt and marked afterwards is up to the test."""

from collections.abc import Sequence
from datetime import date

from pyspark.sql import DataFrame

from pipelines.ledger.quarantine import Selection
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.replay import replay_lake
from pipelines.steps.replay_run import Replay, mark_rebuilt, put_back, replay_under_lease


def replay(pipeline: Pipeline, run_id: str, selection: Selection, *, dry_run: bool) -> Replay[DataFrame]:
    """Puts back what passes, and leaves the certified days to a rebuild; `mark_replayed` comes after it."""
    lake = replay_lake(pipeline, run_id, selection, dry_run=dry_run)
    return put_back(lake, None) if dry_run else replay_under_lease(lake)


def mark_replayed(pipeline: Pipeline, done: Replay[DataFrame], days: Sequence[date]) -> None:
    """Marks the records of these days, which were rebuilt and certified."""
    mark_rebuilt(replay_lake(pipeline, "mark", Selection(), dry_run=True), done, days)
