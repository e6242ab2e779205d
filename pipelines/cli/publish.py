"""`publish_stream`, and `oncelake publish`: how far publishing is, and how it is put right."""

from typing import Any

import click

from pipelines.cli.options import CommonOptions, common_options
from pipelines.cli.running import run_job
from pipelines.config import PipelineConfig
from pipelines.contract import DataContract
from pipelines.layers import publish as layer


@click.command("publish_stream")
@common_options
@click.option("--once", is_flag=True, help="Publish what is there now, then stop.")
def publish_stream(once: bool, **common: Any) -> None:
    """Speed layer -> Kafka: every event once for read_committed readers."""
    run_job(
        "publish_stream",
        CommonOptions(**common),
        lambda spark, config, contract, run_id: layer.publish(spark, config, contract, once=once),
        check=_require_topic,
        is_done_when_stopped=True,
    )


@click.group()
def publish() -> None:
    """See how far publishing is, and make cluster and checkpoint agree again."""


@publish.command()
@common_options
def status(**common: Any) -> None:
    """Tell how far publishing is, by the checkpoint and by the cluster."""
    run_job(
        "publish status",
        CommonOptions(**common),
        lambda spark, config, contract, run_id: layer.status(spark, config),
        check=_require_topic,
    )


@publish.command()
@common_options
@click.option(
    "--to",
    type=click.Choice(["beginning", "checkpoint"]),
    required=True,
    help="beginning: forget the progress, all rows are published again; checkpoint: go on from it.",
)
@click.option(
    "--in-flight",
    type=click.Choice(["published", "unpublished"]),
    help="With --to checkpoint: what the micro-batch that was under way is to count as.",
)
def reset(to: layer.ResetTo, in_flight: layer.InFlight | None, **common: Any) -> None:
    """Make the cluster's progress and the checkpoint agree again; publish_stream must not run."""
    run_job(
        "publish reset",
        CommonOptions(**common),
        lambda spark, config, contract, run_id: layer.reset(spark, config, to, in_flight),
        check=_require_topic,
    )


def _require_topic(config: PipelineConfig, contract: DataContract) -> None:
    layer.settings_of(config)
