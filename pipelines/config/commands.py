"""Commands as messages name them, so that they can be copied."""

from pipelines.config.model import PipelineConfig


def of_pipeline(config: PipelineConfig) -> str:
    """Return the options that name a pipeline and its environment to every command."""
    return f"--pipeline {config.name}" + ("" if config.env == "local" else f" --env {config.env}")


def command(config: PipelineConfig, name: str, *options: str) -> str:
    """Return a pipeline's command, such as `oncelake nightly_batch --pipeline flights --date 2013-01-01`."""
    return " ".join(("oncelake", name, of_pipeline(config), *options))
