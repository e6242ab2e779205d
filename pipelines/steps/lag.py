"""Lag: how far each stage of a pipeline is behind, and why."""

from dataclasses import dataclass

from pipelines.config.commands import command
from pipelines.config.streams import STREAMS
from pipelines.lag.causes import diagnose
from pipelines.lag.diagnosis import Diagnosis
from pipelines.lag.evidence import Evidence
from pipelines.lag.stages import stages
from pipelines.spark.pipeline import Pipeline


@dataclass(frozen=True)
class StageLag:
    """How far a stage is behind.

    Attributes:
        evidence: The figures.
        diagnosis: Why.
        start: The command that starts its stream.
    """

    evidence: Evidence
    diagnosis: Diagnosis
    start: str


def lag(pipeline: Pipeline) -> list[StageLag]:
    """Return how far each stage is behind, and why, in the order of the data.

    Raises:
        ConfigError: there is no such topic.
        SourceError: ingest's checkpoint was reset, and bronze has offsets that Kafka has not.
        InfrastructureError: the cluster does not answer.
    """
    return [StageLag(each, diagnose(each), _start(pipeline, each)) for each in stages(pipeline)]


def _start(pipeline: Pipeline, evidence: Evidence) -> str:
    config = pipeline.config.source(evidence.cluster) if evidence.cluster else pipeline.config
    start = command(config, STREAMS[evidence.stage].job)
    return f"{start} --once" if evidence.is_once else start
