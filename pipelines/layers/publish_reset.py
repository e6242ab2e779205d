"""Publish reset: progress and checkpoint agree again, by what an operator has found out."""

from dataclasses import replace
from typing import Any, Literal

from pyspark.sql import SparkSession

from pipelines.config import PipelineConfig
from pipelines.errors import ConfigError
from pipelines.ops.publish_cluster import (
    asking,
    known_partitions,
    make_progress_topic,
    marks,
    take_all,
    topic_id,
    write_marks,
)
from pipelines.ops.publish_progress import PARTITIONS, fits_in
from pipelines.ops.publish_sink import sink_of
from pipelines.ops.query_files import QueryFiles, query_files, write_note
from pipelines.sinks.kafka_transactional import begun_with
from pipelines.sinks.slots import Mark

ResetTo = Literal["beginning", "checkpoint"]
InFlight = Literal["published", "unpublished"]


def reset(
    spark: SparkSession, config: PipelineConfig, to: ResetTo, in_flight: InFlight | None
) -> dict[str, Any]:
    """Makes progress and checkpoint agree again, by what an operator has found out.

    Args:
        spark: the session.
        config: the pipeline's configuration.
        to: `beginning`: the cluster forgets the progress, for a checkpoint that is gone or was moved aside;
            `checkpoint`: progress becomes what the checkpoint says.
        in_flight: whether the micro-batch that was under way, if there was one, is to count as published.

    Raises:
        ConfigError: a checkpoint is there, or is not, or it has to be said what becomes of a micro-batch.
        InfrastructureError: the cluster does not answer, or publishing goes on.
    """
    sink, files = sink_of(config), query_files(spark, config.checkpoint("publish"))
    following = None if to == "beginning" else _as_asked(files, in_flight)
    if to == "beginning" and files.query is not None:
        raise ConfigError(
            f"{files.path}: the checkpoint is still there, and publish_stream would go on from it. Stop"
            " publish_stream, move that folder aside, and say this again"
        )
    with asking(sink) as cluster:
        topic = topic_id(cluster, sink.topic)
        make_progress_topic(cluster, sink)
        taken = take_all(sink, marks(cluster, sink))
        known = marks(cluster, sink, is_stable=True)
        partitions = known_partitions(cluster, sink.topic)
        ours = Mark(files.next_batch, files.query or "", topic, sink.slots, partitions=partitions)
        done = {slot: mark for slot, mark in known.items() if mark.position > (files.next_batch, 0)}
        ours = begun_with(done, ours)
        # Of slots that know themselves how far they are nothing needs to be said.
        unknown = [
            slot
            for slot in range(sink.slots)
            if slot not in known or known[slot].is_lost or not fits_in(known[slot], ours, files)
        ]
        wanted = replace(ours, next_batch=following or 0)
        write_marks(sink, taken, dict.fromkeys(range(sink.slots) if to == "beginning" else unknown, wanted))
    if to == "checkpoint":
        write_note(spark, files.path, {"topic_id": topic, PARTITIONS: str(partitions)})
    if to == "beginning":
        return {"lines": [f"{sink.name}: all days that are not certified will be published again"]}
    return {"lines": [f"{sink.name}: micro-batch {following} comes next"]}


def _as_asked(files: QueryFiles, in_flight: InFlight | None) -> int:
    if files.query is None:
        raise ConfigError(
            f"{files.path}: there is no checkpoint to go on from; --to beginning publishes all rows"
        )
    if files.in_flight is None:
        return files.next_batch
    if in_flight is None:
        raise ConfigError(
            f"{files.path}: micro-batch {files.in_flight} was under way; look into the topic, and say whether"
            " it is there: --in-flight published or --in-flight unpublished"
        )
    return files.next_batch + (in_flight == "published")
