"""A job over all pipelines that none of them can run: it ends applications, so it has its own process."""

from pathlib import Path
from typing import Any

from pipelines.cli.job_runner import Job
from pipelines.cli.run_all import run_all
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError
from pipelines.spark.pipeline import Pipeline


def check(config: PipelineConfig, contract: DataContract) -> None:
    """Refuses every pipeline: flights by an error that nobody foresaw."""
    if config.name == "flights":
        raise ZeroDivisionError("odd")
    raise ConfigError("refused")


def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
    """Is never called."""
    raise AssertionError


if __name__ == "__main__":
    places = {
        "env": "local",
        "conf_dir": Path("conf"),
        "contracts_dir": Path("data_contracts"),
        "settings": (),
    }
    run_all(Job("a job", body, check=check), {**places, "log_format": "json", "verbose": False})
