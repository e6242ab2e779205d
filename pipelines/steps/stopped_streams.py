"""Refuse a command while the stream runs whose checkpoint or progress it changes."""

from datetime import UTC, datetime

from pipelines.config.streams import STREAMS, Query
from pipelines.errors import InfrastructureError
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.stream_progress import WRITTEN_S, read_progress


def require_stopped(pipeline: Pipeline, query: Query) -> None:
    """Make sure that a stream does not run, as far as that is seen from here.

    Commits of a run of ingest that goes on elsewhere are refused after a reset; those of the speed stream are
    refused only once it finds another table in the place of its own.

    Raises:
        InfrastructureError: It runs, as a process of this machine; or, of the speed stream, it has told of
            itself on another machine a moment ago.
    """
    run = read_progress(pipeline.spark, pipeline.checkpoint(query))
    if run and query == "speed" and run.is_alive() is None and run.is_recent(datetime.now(UTC)):
        raise InfrastructureError(
            f"{STREAMS[query].job} runs on {run.host}, as process {run.pid}: it wrote its figures less than"
            f" {WRITTEN_S:g} seconds ago. Nothing was changed. Stop it there; if it was killed, wait until"
            " these seconds are over. Then run the command again"
        )
    if run and run.ended_at is None and run.is_alive():
        raise InfrastructureError(
            f"{STREAMS[query].job} runs, as process {run.pid} on this machine ({run.host}): expected it to be"
            " stopped before its checkpoint or its progress is changed. Nothing was changed. Stop it, see"
            " docs/runbook.md, 'Stop the jobs', and run the command again"
        )
