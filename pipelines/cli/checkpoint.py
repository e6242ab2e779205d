"""`oncelake checkpoint`: lets a stream continue whose tables and checkpoint do not match."""

from collections.abc import Iterator
from typing import Any, get_args

import click

from pipelines.cli.job_runner import Job, run_job
from pipelines.cli.options import CommonOptions, cluster_option, common_options
from pipelines.config.clusters import qualified
from pipelines.config.model import PipelineConfig
from pipelines.config.streams import LakeQuery
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.checkpoints import CheckpointReset, reset_checkpoint
from pipelines.steps.ingest_start import fate_of_gaps


@click.group()
def checkpoint() -> None:
    """Reset the checkpoint of a stopped stream."""


@checkpoint.command()
@common_options
@cluster_option
@click.option(
    "--query",
    type=click.Choice(get_args(LakeQuery)),
    required=True,
    help="ingest: continue after the last records in bronze; speed: rebuild speed layer and quarantine.",
)
def reset(query: LakeQuery, **common: Any) -> None:
    """Move the checkpoint of a stopped stream aside.

    With --query speed, also the speed layer and the quarantine, which are then rebuilt from bronze. With
    --query ingest, ingest then continues after the last records in bronze. The command lists offsets that
    Kafka deleted before they were read.
    """
    if common["cluster"] and query != "ingest":
        raise click.UsageError(f"--cluster: expected with --query ingest only, got --query {query}")

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        return summary_of(pipeline.config, reset_checkpoint(pipeline, run_id, query))

    run_job(Job("checkpoint reset", body), CommonOptions(**common))


def summary_of(config: PipelineConfig, done: CheckpointReset) -> dict[str, Any]:
    """Tell what was moved, and what the stream will do.

    Args:
        config: The pipeline's configuration.
        done: What was done.

    Returns:
        `moved`: what was moved, and where to; `lines`.
    """
    moved = [f"moved {path} to {target}" for path, target in done.moved.items()]
    match done.query:
        case "ingest":
            following = _of_ingest(config, done)
        case "speed":
            following = _of_speed(config)
    return {"moved": done.moved, "lines": [*(moved or ["there was nothing to move"]), *following]}


def _of_ingest(config: PipelineConfig, done: CheckpointReset) -> Iterator[str]:
    if done.begins is None:
        yield "there is no bronze: ingest_stream reads from the earliest offset that Kafka has"
        return
    topic = qualified(config.cluster, done.begins.topic)
    for partition, at in done.begins.starts.items():
        place = "the earliest offset" if at is None else f"offset {at}"
        yield f"ingest_stream reads {topic}-{partition}: from {place} on"
    for partition, deleted in done.begins.deleted.items():
        yield (
            f"MISSING  {topic}-{partition} @ {deleted.start}..{deleted.stop - 1}: Kafka has deleted them"
            f" before they were read; {fate_of_gaps(config)}"
        )


def _of_speed(config: PipelineConfig) -> Iterator[str]:
    yield (
        "speed_stream rebuilds speed layer and quarantine from bronze; until then readers lack uncertified"
        " days"
    )
    yield (
        "what bronze no longer holds is not rebuilt: its events of uncertified days, and its unresolved"
        " records, are in what was moved alone; keep it until no such record matters"
    )
    if config.publish is not None:
        yield "publish_stream has read the table that was moved: docs/publishing.md, 'When versions are gone'"
