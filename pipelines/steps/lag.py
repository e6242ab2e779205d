"""Lag: how far each stage of a pipeline is behind, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.config.commands import command
from pipelines.config.streams import STREAMS
from pipelines.lag.causes import find_cause
from pipelines.lag.diagnosis import Diagnosis
from pipelines.lag.gauges import lag_gauges
from pipelines.lag.stage_facts import StageFacts
from pipelines.lag.stages import stages
from pipelines.runtime.atomic_files import write_files
from pipelines.runtime.prometheus_text import exposition
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


def write_lag_metrics(pipeline: Pipeline, stages: Sequence[StageLag], out: Path) -> None:
    """Write `OUT/PIPELINE.lag.prom` for a textfile collector, complete or not at all.

    Args:
        pipeline: The pipeline.
        stages: The lag of its stages.
        out: The folder to write to.

    Raises:
        InfrastructureError: The folder cannot be written.
    """
    config = pipeline.config
    gauges = lag_gauges([(each.facts, each.diagnosis.cause) for each in stages])
    text = exposition(gauges, {"pipeline": config.name, "env": config.env})
    what = f"lag of {config.name} for Prometheus"
    write_files(out, {f"{config.name}.lag.prom": text}, what, "--metrics")


def _start(pipeline: Pipeline, facts: StageFacts) -> str:
    config = pipeline.config.source(facts.cluster) if facts.cluster else pipeline.config
    start = command(config, STREAMS[facts.stage].job)
    return f"{start} --once" if facts.is_once else start
