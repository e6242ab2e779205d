"""Commands as messages name them, so that they can be copied."""

from typing import Final

from pipelines.config.model import PipelineConfig

_OF_CLUSTER: Final = ("ingest_stream", "checkpoint reset", "reconcile", "doctor", "backfill")


def of_pipeline(config: PipelineConfig) -> str:
    """Return the options that name a pipeline and its environment to every command."""
    return f"--pipeline {config.name}" + ("" if config.env == "local" else f" --env {config.env}")


def command(config: PipelineConfig, name: str, *options: str) -> str:
    """Return a pipeline's command, such as `oncelake nightly_batch --pipeline flights --date 2013-01-01`."""
    cluster = (f"--cluster {config.cluster}",) if config.cluster and name in _OF_CLUSTER else ()
    return " ".join(("oncelake", name, of_pipeline(config), *cluster, *options))
