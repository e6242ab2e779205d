"""Lag: how far each stage of a pipeline is behind, and why."""

from dataclasses import dataclass

from pipelines.config.commands import command
from pipelines.config.streams import STREAMS
from pipelines.lag.causes import find_cause
from pipelines.lag.diagnosis import Diagnosis
from pipelines.lag.stage_facts import StageFacts
from pipelines.lag.stages import stages
from pipelines.spark.pipeline import Pipeline


@dataclass(frozen=True)
class StageLag:
    """How far a stage is behind.

    Attributes:
        facts: The figures.
        diagnosis: Why.
        start: The command that starts its stream.
    """

    facts: StageFacts
    diagnosis: Diagnosis
    start: str


def lag(pipeline: Pipeline) -> list[StageLag]:
    """Return how far each stage is behind, and why, in the order of the data.

    Raises:
        ConfigError: There is no such topic.
        SourceError: Ingest's checkpoint was reset, and bronze has offsets that Kafka has not.
        InfrastructureError: The cluster does not answer.
    """
    return [StageLag(each, find_cause(each), _start(pipeline, each)) for each in stages(pipeline)]


def _start(pipeline: Pipeline, facts: StageFacts) -> str:
    config = pipeline.config.source(facts.cluster) if facts.cluster else pipeline.config
    start = command(config, STREAMS[facts.stage].job)
    return f"{start} --once" if facts.is_once else start
