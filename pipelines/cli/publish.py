"""`publish_stream`, and `oncelake publish`: whole days, the progress of publishing, and its repair."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

import click

from pipelines.cli.job_runner import Job, run_job
from pipelines.cli.options import CommonOptions, common_options, day_option, days_between
from pipelines.cli.streams import run_stream_job
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.contracts.event_days import days_of, past_days
from pipelines.durations import format_interval
from pipelines.publishing.progress_gap import micro_batches_text
from pipelines.publishing.settings import settings_of
from pipelines.publishing.unsent_days import how_to_send
from pipelines.spark.checkpoints import QueryFiles
from pipelines.spark.pipeline import Pipeline
from pipelines.steps import publish as step
from pipelines.steps.publish_days import PublishedDays, publish_days
from pipelines.steps.publish_reset import InFlight, PublishingReset, ResetTo, reset_publishing


@click.command("publish_stream")
@common_options
@click.option("--once", is_flag=True, help="Publish what is available now, then stop.")
def publish_stream(once: bool, **common: Any) -> None:
    """Publish the speed layer to Kafka, each event once.

    Consumers with isolation.level=read_committed get each event exactly once.
    """

    def published(pipeline: Pipeline) -> dict[str, Any]:
        return summary_of_stream(pipeline.config, step.publish(pipeline, once=once))

    run_stream_job("publish", published, CommonOptions(**common), _require_topic)


def summary_of_stream(config: PipelineConfig, done: step.PublishedStream) -> dict[str, Any]:
    """Tell what a run of the stream has published.

    Args:
        config: The pipeline's configuration.
        done: What was published.

    Returns:
        `counts`; `unsent_days`: those that were certified before the stream began, and that nobody has sent;
        `lines`.
    """
    return {
        "counts": {
            "rows": done.rows,
            "slots_done_before": done.slots_done_before,
            "batches": done.batches,
        },
        "unsent_days": [str(day) for day in done.unsent.days],
        "lines": how_to_send(config, done.unsent),
    }


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
    """Publish whole certified days.

    "oncelake publish --pipeline NAME --date DAY" is short for "publish day".
    """


@publish.command("day")
@common_options
@day_option("--date", "day", "Certified day; default: yesterday.")
@day_option("--from", "first", "First event day of a range, with --to.")
@day_option("--to", "last", "Last event day of a range, with --from.")
@click.option("--again", is_flag=True, help="Also publish days that were published before.")
@click.option(
    "--accept-partitions",
    is_flag=True,
    help="Publish although the topic has got partitions since days were published to it.",
)
def publish_day(day: datetime | None, first: datetime | None, last: datetime | None, **options: Any) -> None:
    """Publish whole certified days, each once, for new consumers."""
    between = days_between(day, first, last)
    again, accept_partitions = options.pop("again"), options.pop("accept_partitions")

    def check(config: PipelineConfig, contract: DataContract) -> None:
        _require_topic(config, contract)
        past_days(contract, *between)

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        days = days_of(*past_days(pipeline.contract, *between))
        done = publish_days(pipeline, run_id, days, again=again, accept_partitions=accept_partitions)
        return summary_of_days(done)

    run_job(Job("publish", body, check=check), CommonOptions(**options))


def summary_of_days(done: PublishedDays) -> dict[str, Any]:
    """Tell which days were published.

    Args:
        done: What was published.

    Returns:
        `counts`: `days` and `rows` that were published, `days_done_before`; `lines`.
    """
    new = [rows for rows in done.rows.values() if rows is not None]
    return {
        "counts": {"days": len(new), "rows": sum(new), "days_done_before": len(done.rows) - len(new)},
        "lines": [
            f"{day}: {'published before' if rows is None else f'{rows:,} rows published'}"
            for day, rows in done.rows.items()
        ],
    }


@publish.command()
@common_options
def status(**common: Any) -> None:
    """Show the publishing progress in the checkpoint and in the cluster."""

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        return summary_of_status(pipeline.config, step.publishing_status(pipeline))

    run_job(Job("publish status", body, check=_require_topic), CommonOptions(**common))


def summary_of_status(config: PipelineConfig, publishing: step.PublishingStatus) -> dict[str, Any]:
    """Tell how far publishing is.

    Args:
        config: The pipeline's configuration.
        publishing: What was found.

    Returns:
        `checkpoint` (`query`, `next_batch`, `in_flight`); `waiting_days`: those that were certified since the
        stream looked; `unsent_days`: those that were certified before it began, and nobody has sent; `slots`:
        the next micro-batch of each; `agrees`: whether `publish_stream` would start; `problem`, if it would
        not; `lines`.
    """
    sink, files, waiting, problem = (
        publishing.sink,
        publishing.checkpoint,
        publishing.waiting,
        publishing.problem,
    )
    return {
        "checkpoint": {"query": files.query, "next_batch": files.next_batch, "in_flight": files.in_flight},
        "waiting_days": [str(day) for day in waiting],
        "unsent_days": [str(day) for day in publishing.unsent.days],
        "slots": {str(slot): batch for slot, batch in publishing.slots.items()},
        "agrees": problem is None,
        "problem": problem,
        "lines": [
            f"{sink.name} -> topic {sink.topic}, {sink.slots} slots",
            f"checkpoint {files.path}: {_stands(files)}",
            *(f"slot {slot}: next micro-batch {batch}" for slot, batch in publishing.slots.items()),
            *([] if publishing.slots else ["the cluster has no progress of this sink"]),
            *([f"certified, and changes not sent yet: {_days(waiting)}"] if waiting else []),
            *how_to_send(config, publishing.unsent),
            f"problem: {problem}" if problem else "checkpoint and cluster agree",
        ],
    }


def _stands(files: QueryFiles) -> str:
    if files.query is None:
        return "does not exist yet"
    begun = f", micro-batch {files.in_flight} is begun" if files.in_flight is not None else ""
    return f"query {files.query}, next micro-batch {files.next_batch}{begun}"


def _days(days: Sequence[date]) -> str:
    return f"{days[0]}" if len(days) == 1 else f"{len(days)} days from {days[0]} to {days[-1]}"


@publish.command()
@common_options
def doctor(**common: Any) -> None:
    """Check the cluster for misconfiguration that affects publishing: limits, topic, replicas."""

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        return summary_of_diagnosis(step.diagnose_publishing(pipeline.config))

    run_job(Job("publish doctor", body, check=_require_topic), CommonOptions(**common))


def summary_of_diagnosis(diagnosis: step.PublishingDiagnosis) -> dict[str, Any]:
    """Tell what the cluster offers, and what is wrong with it.

    Args:
        diagnosis: What was found.

    Returns:
        `limits`, `settings` of the topic, by the names that Kafka has for them; `replicas`, by topic;
        `warnings`; `lines`. What the cluster may not be asked is left out.
    """
    facts, warnings = diagnosis.facts, diagnosis.warnings
    limits = {name: format_interval(limit) for name, limit in facts.limits.items()}
    return {
        "limits": limits,
        "settings": dict(facts.settings),
        "replicas": dict(facts.replicas),
        "warnings": warnings,
        "lines": [
            *(f"the cluster has {name} = {limit}" for name, limit in limits.items()),
            *(f"topic {diagnosis.topic} has {name} = {value}" for name, value in facts.settings.items()),
            *(f"topic {name}: {count} replica(s)" for name, count in facts.replicas.items()),
            *([] if limits else ["the limits of the cluster are unknown (they need DescribeConfigs on it)"]),
            *(f"warning: {warning}" for warning in warnings),
            *([] if warnings else ["no misconfiguration found"]),
        ],
    }


@publish.command()
@common_options
@click.option(
    "--to",
    type=click.Choice(["beginning", "checkpoint"]),
    required=True,
    help="beginning: delete the publishing progress, so that uncertified days are published again; move the"
    " checkpoint aside first. checkpoint: set the publishing progress to the position of the checkpoint.",
)
@click.option(
    "--in-flight",
    type=click.Choice(["published", "unpublished"]),
    help="Required with --to checkpoint if a micro-batch is in flight: whether consumers already have it.",
)
@click.option(
    "--accept-missing",
    is_flag=True,
    help="With --to checkpoint: continue although the topic may lack micro-batches that are done by the"
    " checkpoint, as after a restore of the output cluster. They are not sent again.",
)
@click.option(
    "--accept-partitions",
    is_flag=True,
    help="With --to beginning: begin although the topic has got partitions since it was published to.",
)
def reset(
    to: ResetTo, in_flight: InFlight | None, accept_missing: bool, accept_partitions: bool, **common: Any
) -> None:
    """Reset the publishing progress; stop publish_stream first."""
    goes_with = {
        "--in-flight": (in_flight, "checkpoint"),
        "--accept-missing": (accept_missing, "checkpoint"),
        "--accept-partitions": (accept_partitions, "beginning"),
    }
    for option, (given, other) in goes_with.items():
        if given and to != other:
            raise click.UsageError(f"{option} goes with --to {other}")
    accepted = {"accept_missing": accept_missing, "accept_partitions": accept_partitions}

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        return summary_of_reset(reset_publishing(pipeline, to, in_flight, **accepted))

    run_job(Job("publish reset", body, check=_require_topic), CommonOptions(**common))


def summary_of_reset(done: PublishingReset) -> dict[str, Any]:
    """Tell what `publish_stream` will do next.

    Args:
        done: Where it goes on.

    Returns:
        `missing`, `again`: the first and the last micro-batch that the topic may lack and that is not sent,
        and of those that consumers have and that are sent once more; None if there are none. `lines`.
    """
    if done.next_batch is None:
        following = "all days that are not certified will be published again"
    elif done.parts > 1:
        following = f"micro-batch {done.next_batch} continues with part {done.part + 1} of {done.parts}"
    else:
        following = f"micro-batch {done.next_batch} is next"
    lines = [f"{done.sink}: {following}"]
    if done.missing:
        missing = micro_batches_text(done.missing)
        lines.append(f"not sent again, although the topic may lack rows of it: {missing}")
    if done.again:
        again = micro_batches_text(done.again)
        lines.append(f"sent again, although consumers have rows of it already: {again}")
    return {"missing": _ends(done.missing), "again": _ends(done.again), "lines": lines}


def _ends(numbers: range) -> list[int] | None:
    return [numbers[0], numbers[-1]] if numbers else None


def _require_topic(config: PipelineConfig, contract: DataContract) -> None:
    settings_of(config)
