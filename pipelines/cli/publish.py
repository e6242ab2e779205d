"""`publish_stream`, and `oncelake publish`: whole days, how far publishing is, and how it is put right."""

from datetime import datetime
from typing import Any

import click

from pipelines.cli.job_runner import Job, run_job
from pipelines.cli.options import DAY, CommonOptions, common_options, days_between
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.contracts.event_days import closed_days, days_of
from pipelines.publishing.settings import settings_of
from pipelines.spark.pipeline import Pipeline
from pipelines.steps import publish as step
from pipelines.steps.publish_days import publish_days
from pipelines.steps.publish_reset import InFlight, ResetTo
from pipelines.steps.publish_reset import reset_publishing as reset_progress


@click.command("publish_stream")
@common_options
@click.option("--once", is_flag=True, help="Publish what is available now, then stop.")
def publish_stream(once: bool, **common: Any) -> None:
    """Publish the speed layer to Kafka, each event exactly once for read_committed readers."""
    run_job(
        Job(
            "publish_stream",
            lambda pipeline, run_id: step.publish(pipeline, once=once),
            check=_require_topic,
            is_stream=True,
        ),
        CommonOptions(**common),
    )


class DayByDefault(click.Group):
    """A group whose options alone stand for its command `day`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words after the group's name."""
        return super().parse_args(ctx, self.completed(args))

    @staticmethod
    def completed(words: list[str]) -> list[str]:
        """Return the words, with the command that they stand for."""
        return ["day", *words] if words and words[0].startswith("-") and words[0] != "--help" else words


@click.group(cls=DayByDefault)
def publish() -> None:
    """Publish whole days; show or repair the progress of publishing.

    Options alone mean `day`: oncelake publish --pipeline flights --date 2013-01-01.
    """


@publish.command("day")
@common_options
@click.option("--date", "day", type=DAY, help="Certified day; default: yesterday.")
@click.option("--from", "first", type=DAY, help="The first of several days.")
@click.option("--to", "last", type=DAY, help="The last of several days.")
@click.option("--again", is_flag=True, help="Also publish days that were published before.")
def publish_day(
    day: datetime | None, first: datetime | None, last: datetime | None, again: bool, **common: Any
) -> None:
    """Publish certified days as a whole, each once, for new readers."""
    between = days_between(day, first, last)

    def check(config: PipelineConfig, contract: DataContract) -> None:
        _require_topic(config, contract)
        closed_days(contract, *between)

    def body(pipeline: Pipeline, run_id: str) -> Any:
        days = days_of(*closed_days(pipeline.contract, *between))
        return publish_days(pipeline, run_id, days, again=again)

    run_job(Job("publish", body, check=check), CommonOptions(**common))


@publish.command()
@common_options
def status(**common: Any) -> None:
    """Show the progress of publishing in the checkpoint and in the cluster."""
    run_job(
        Job(
            "publish status", lambda pipeline, run_id: step.publishing_status(pipeline), check=_require_topic
        ),
        CommonOptions(**common),
    )


@publish.command()
@common_options
def doctor(**common: Any) -> None:
    """Check the cluster for misconfiguration that affects publishing: limits, topic, replicas."""
    run_job(
        Job(
            "publish doctor",
            lambda pipeline, run_id: step.diagnose_publishing(pipeline.config),
            check=_require_topic,
        ),
        CommonOptions(**common),
    )


@publish.command()
@common_options
@click.option(
    "--to",
    type=click.Choice(["beginning", "checkpoint"]),
    required=True,
    help="beginning: drop the progress and publish open days again; checkpoint: continue from it.",
)
@click.option(
    "--in-flight",
    type=click.Choice(["published", "unpublished"]),
    help="With --to checkpoint: whether the micro-batch in flight counts as published.",
)
def reset(to: ResetTo, in_flight: InFlight | None, **common: Any) -> None:
    """Reconcile progress and checkpoint while publish_stream is stopped."""
    if in_flight and to == "beginning":
        raise click.UsageError("--in-flight goes with --to checkpoint")
    run_job(
        Job(
            "publish reset",
            lambda pipeline, run_id: reset_progress(pipeline, to, in_flight),
            check=_require_topic,
        ),
        CommonOptions(**common),
    )


def _require_topic(config: PipelineConfig, contract: DataContract) -> None:
    settings_of(config)
