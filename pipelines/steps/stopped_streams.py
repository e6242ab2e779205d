"""Refuse a command while the stream runs whose checkpoint or progress it changes."""

from pipelines.config.streams import STREAMS, Query
from pipelines.errors import InfrastructureError
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.stream_progress import read_progress


def require_stopped(pipeline: Pipeline, query: Query) -> None:
    """Make sure that a stream does not run, as far as that is seen from here.

    Raises:
        InfrastructureError: It runs, as a process of this machine.
    """
    run = read_progress(pipeline.spark, pipeline.checkpoint(query))
    if run and run.ended_at is None and run.is_alive():
        raise InfrastructureError(
            f"{STREAMS[query].job} runs, as process {run.pid} on this machine ({run.host}): expected it to be"
            " stopped before its checkpoint or its progress is changed. Nothing was changed. Stop it, see"
            " docs/runbook.md, 'Stop the jobs', and run the command again"
        )
