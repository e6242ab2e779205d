"""Reset the checkpoint of a stream that does not match its tables."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import SparkSession

from pipelines.config.streams import STREAMS, LakeQuery
from pipelines.delta.checkpoint_fit import BEGIN
from pipelines.delta.fenced_commits import claim
from pipelines.delta.path_renaming import move_aside, timestamp_suffix
from pipelines.delta.reset_fence import next_fence
from pipelines.delta.stream_check import check_ingest, reset_command
from pipelines.delta.tables import exists
from pipelines.errors import SourceError
from pipelines.fault_points import Point, reach
from pipelines.kafka.beginnings import Beginning
from pipelines.kafka.ingest_position import Continuation, beginning, continuation, passed
from pipelines.kafka.ingest_state import SparkIngestState
from pipelines.kafka.topics import find_topic
from pipelines.ledger.leases import backfill_lease, lease
from pipelines.spark.checkpoints import DamagedFileError, note_path, write_note
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.stopped_streams import require_stopped

_JOB: Final = "checkpoint reset"


@dataclass(frozen=True)
class CheckpointReset:
    """What was moved aside of a stream, and where it begins.

    Attributes:
        query: The stream.
        moved: Where each path was moved to; empty if there was nothing to move.
        begins: Where ingest goes on in Kafka; None if it reads all that Kafka has, since there is no bronze.
            The speed stream always begins anew.
    """

    query: LakeQuery
    moved: Mapping[str, str]
    begins: Continuation | None = None


def reset_checkpoint(pipeline: Pipeline, run_id: str, query: LakeQuery) -> CheckpointReset:
    """Move the checkpoint of a stream aside, and what the stream would else write twice.

    The stream must not run. Ingest then begins after the last record of each partition in bronze, which is
    looked up when it starts; a run of it that nobody knows of commits nothing any more. The speed stream
    rebuilds speed layer and quarantine, from all of bronze. Done twice, or again after it died, it does
    what is left.

    Args:
        pipeline: The pipeline.
        run_id: The holder of the lease meanwhile.
        query: The stream.

    Raises:
        ConfigError: There is no such topic.
        SourceError: Bronze has offsets that Kafka has not.
        InfrastructureError: The stream runs on this machine; another run holds the pipeline's lease, or a
            backfill is at work; or cluster or file system do not answer.
    """
    require_stopped(pipeline, query)
    with lease(pipeline, run_id, _JOB):
        match query:
            case "ingest":
                with _naming_the_reader(pipeline):
                    return _reset_ingest(pipeline, run_id)
            case "speed":
                return _reset_speed(pipeline)


@contextmanager
def _naming_the_reader(pipeline: Pipeline) -> Iterator[None]:
    """Say what comes first if the checkpoint of the stream that reads bronze is damaged.

    Raises:
        SourceError: It is.
    """
    try:
        yield
    except DamagedFileError as damage:
        if pipeline.checkpoint("speed") not in str(damage):
            raise
        raise SourceError(
            f"{damage}. Ingest cannot begin before the stream that reads bronze can: first run:"
            f" {reset_command(pipeline.config, 'speed')}; then this command again"
        ) from damage


@dataclass(frozen=True)
class _IngestBefore(SparkIngestState):
    """Ingest by a checkpoint that is moved aside, perhaps since a file of it is damaged."""

    def began(self) -> Mapping[int, int] | None:
        """Return what is known all the same."""
        with suppress(SourceError):
            return super().began()
        return None

    def noted(self) -> Beginning:
        """Return what is known all the same."""
        with suppress(SourceError):
            return super().noted()
        return Beginning()

    def note(self) -> Mapping[str, str | int]:
        """Return what is known all the same; empty if the file is damaged."""
        with suppress(SourceError):
            return super().note()
        return {}


def _reset_ingest(pipeline: Pipeline, run_id: str) -> CheckpointReset:
    spark = pipeline.spark
    topic = find_topic(spark, pipeline.config.kafka)
    # Ingest may then read again what a backfill, by the checkpoint of before, took for its own.
    with backfill_lease(pipeline, run_id, _JOB):
        ingest = _IngestBefore(pipeline, topic)
        begins = continuation(ingest) if exists(spark, pipeline.table("bronze")) else None
        began = beginning(ingest, begins) if begins else {}
        kept = replace(ingest.noted(), began=began, passed=_passed(ingest)).entries()
        checkpoint = pipeline.checkpoint("ingest")
        note = ingest.note()
        fence = next_fence(pipeline, run_id)
        # One that cannot be read is moved aside as it is.
        moved = {} if note else _moved(spark, [note_path(checkpoint)])
        # Where ingest first began must outlive the checkpoint, wherever this dies.
        write_note(spark, checkpoint, {**{n: v for n, v in note.items() if n != BEGIN}, **kept})
        moved |= _moved(spark, [checkpoint])
        reach(Point.CHECKPOINT_MOVED)
        if note and checkpoint in moved:
            write_note(spark, moved[checkpoint], note)
        # A run that nobody knows of may still be there. Without BEGIN no other one begins.
        if fence:
            claim(spark, pipeline.table("bronze"), fence)
        write_note(spark, checkpoint, {BEGIN: "bronze", **kept})
    return CheckpointReset("ingest", moved, begins)


def _passed(ingest: _IngestBefore) -> Mapping[int, int]:
    """Return up to where the checkpoint has read; empty unless it fits bronze, and can be read."""
    with suppress(SourceError):
        return passed(ingest, check_ingest(ingest.pipeline))
    return {}


def _reset_speed(pipeline: Pipeline) -> CheckpointReset:
    checkpoint = pipeline.checkpoint("speed")
    # The note, which knows what has to be there, goes last.
    paths = [*map(pipeline.table, STREAMS["speed"].writes), checkpoint, note_path(checkpoint)]
    return CheckpointReset("speed", _moved(pipeline.spark, paths))


def _moved(spark: SparkSession, paths: list[str]) -> dict[str, str]:
    suffix = timestamp_suffix()
    places = {path: move_aside(spark, path, suffix) for path in paths}
    return {path: target for path, target in places.items() if target}
