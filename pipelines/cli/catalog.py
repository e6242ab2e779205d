"""`oncelake catalog`: makes a lake known to a catalog."""

from typing import Any

import click

from pipelines.cli.job_runner import Job, run_job
from pipelines.cli.options import CommonOptions, common_options
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.registration import Registration
from pipelines.steps.registration import register as register_tables


@click.group()
def catalog() -> None:
    """Register the tables of a pipeline in a catalog."""


@catalog.command()
@common_options
def register(**common: Any) -> None:
    """Register the tables and the view in serving.database, with comments from the contract.

    Names are bronze_NAME, speed_NAME, batch_NAME, quarantine_NAME, and NAME for the serving table. Repeating
    the command brings comments up to date.
    """

    def check(config: PipelineConfig, contract: DataContract) -> None:
        if config.serving.database is None:
            raise ConfigError(
                "serving.database: found nothing, expected the database of the catalog in which the tables"
                " are registered, such as lake"
            )

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        return summary_of(register_tables(pipeline))

    run_job(Job("catalog register", body, check=check), CommonOptions(**common))


def summary_of(done: Registration) -> dict[str, Any]:
    """Tell what the catalog has.

    Returns:
        `tables`: what was done, by name; `view`; `lines`.
    """
    lines = [f"{entry}: {what}" for entry, what in done.entries.items()]
    lines += [f"{done.view}: the view was recreated"] if done.view else []
    lines += [f"{path}: no such table yet; run this command again when it is there" for path in done.missing]
    return {"tables": dict(done.entries), "view": done.view, "lines": lines}
