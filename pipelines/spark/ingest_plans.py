"""Micro-batches of ingest by its checkpoint: the offsets at which they end, and when they were planned."""

from dataclasses import dataclass
from datetime import datetime

from pipelines.config.clusters import micros_of
from pipelines.config.model import PipelineConfig
from pipelines.spark.checkpoints import kafka_offsets_in, offsets_of, planned_at, query_files, sources_of
from pipelines.spark.pipeline import Pipeline


@dataclass(frozen=True)
class MicroBatchPlan:
    """A micro-batch: the offsets at which it ends, by partition, and when it was planned.

    What it brings is in bronze as ingested at this moment.
    """

    ends: dict[int, int]
    at: datetime


def plan_of(pipeline: Pipeline, batch: int) -> MicroBatchPlan | None:
    """Return the plan of a micro-batch of ingest; None if the checkpoint no longer has it, or not yet."""
    text = offsets_of(pipeline.spark, pipeline.checkpoint("ingest"), batch)
    if text is None:
        return None
    at = planned_at(text) + micros_of(pipeline.config.cluster)
    return MicroBatchPlan(offsets_in(sources_of(text)[0], pipeline.config), at)


def ends_of(pipeline: Pipeline, batch: int) -> dict[int, int]:
    """Return the offsets at which a micro-batch of ingest ends, by partition; empty if it has no plan."""
    plan = plan_of(pipeline, batch)
    return plan.ends if plan else {}


def read_until(pipeline: Pipeline) -> dict[int, int]:
    """Return the offset after the last that ingest has read, by partition; empty if it finished nothing."""
    done = query_files(pipeline.spark, pipeline.checkpoint("ingest")).next_batch - 1
    return ends_of(pipeline, done) if done >= 0 else {}


def offsets_in(text: str, config: PipelineConfig) -> dict[int, int]:
    """Return the offsets of the pipeline's topic, by partition, as Kafka's source writes them.

    Raises:
        SourceError: They are damaged.
    """
    return kafka_offsets_in(text, f"{config.checkpoint('ingest')}/offsets").get(config.kafka.topic, {})
