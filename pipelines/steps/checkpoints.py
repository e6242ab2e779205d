"""A stream whose checkpoint does not go together with its tables, brought to a new checkpoint."""

from typing import Any

from pyspark.sql import SparkSession

from pipelines.delta.checkpoint_fit import BEGIN
from pipelines.delta.moved_aside import move_aside, timestamp_suffix
from pipelines.delta.stream_check import Query
from pipelines.delta.tables import exists
from pipelines.kafka.ingest_position import continuation
from pipelines.kafka.topics import find_topic
from pipelines.ledger.leases import lease
from pipelines.spark.checkpoints import note_path, write_note
from pipelines.spark.pipeline import Pipeline


def reset_checkpoint(pipeline: Pipeline, run_id: str, query: Query) -> dict[str, Any]:
    """Move the checkpoint of a stream aside, and what the stream would else write twice.

    The stream must not run. Ingest then begins after the last record of each partition in bronze, which is
    looked up when it starts. The speed stream makes speed layer and quarantine anew, from all of bronze.
    Done twice, or again after it died, it does what is left.

    Args:
        pipeline: The pipeline.
        run_id: the holder of the lease meanwhile.
        query: the stream.

    Returns:
        `moved`: what was moved, and where to; `lines` for people.

    Raises:
        ConfigError: there is no such topic.
        SourceError: bronze has offsets that Kafka has not.
        InfrastructureError: another run holds the pipeline's lease, or cluster or file system do not answer.
    """
    with lease(pipeline, run_id):
        return (_reset_ingest if query == "ingest" else _reset_speed)(pipeline)


def _reset_ingest(pipeline: Pipeline) -> dict[str, Any]:
    spark = pipeline.spark
    topic = find_topic(spark, pipeline.config.kafka)
    lines = ["ingest_stream reads from the earliest offset on that Kafka has: there is no bronze"]
    gone: tuple[str, ...] = ()
    if exists(spark, pipeline.table("bronze")):
        found = continuation(pipeline, topic)
        lines, gone = [f"ingest_stream reads {line}" for line in found.lines], found.gone
    checkpoint = pipeline.checkpoint("ingest")
    moved = _moved(spark, [checkpoint, note_path(checkpoint)])
    write_note(spark, checkpoint, {BEGIN: "bronze"})
    lost = [
        f"MISSING  {line}: Kafka has deleted them before they were read; audits will fail" for line in gone
    ]
    return {"moved": moved, "lines": [*_told(moved), *lines, *lost]}


def _reset_speed(pipeline: Pipeline) -> dict[str, Any]:
    checkpoint = pipeline.checkpoint("speed")
    # The note, which knows what has to be there, goes last.
    paths = [pipeline.table("speed"), pipeline.table("quarantine"), checkpoint, note_path(checkpoint)]
    moved = _moved(pipeline.spark, paths)
    said = [
        "speed_stream makes speed layer and quarantine anew from bronze; until then readers lack open days"
    ]
    if pipeline.config.publish is not None:
        said.append(
            "publish_stream has read the table that was moved: docs/publishing.md, 'When versions are gone'"
        )
    return {"moved": moved, "lines": [*_told(moved), *said]}


def _moved(spark: SparkSession, paths: list[str]) -> dict[str, str]:
    suffix = timestamp_suffix()
    places = {path: move_aside(spark, path, suffix) for path in paths}
    return {path: there for path, there in places.items() if there}


def _told(moved: dict[str, str]) -> list[str]:
    return [f"moved {path} to {there}" for path, there in moved.items()] or ["there was nothing to move"]
