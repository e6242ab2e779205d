"""`oncelake forget`: what the lake holds of a dedup key is emptied or deleted, permanently."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import Any, Final

import click

from pipelines.cli.job_runner import Job, JobFailed, refuse_unfit_expectations, run_job
from pipelines.cli.options import CommonOptions, common_options, key_option
from pipelines.cli.terminal import searched_text
from pipelines.config.commands import command
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.ledger.certifications import VerdictStatus
from pipelines.ledger.kept_values import LEDGERS
from pipelines.lineage.key_filter import AskedPart, asked_key
from pipelines.lineage.searches import OfKey, again
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.forget import ForgetResult, Forgotten, forget_and_rebuild

_DONE: Final = {
    "bronze": "bronze: {:,} records {}emptied",
    "quarantine": "quarantine: {:,} rows {}deleted",
    "speed": "speed: {:,} rows {}deleted",
    "batch": "batch: {:,} rows of certified days {}removed",
}
_OUT_OF_REACH: Final = (
    "not deleted: Kafka's own copy, for as long as the topic keeps it, and the copy in a dead-letter topic;"
    " reports and Data Docs that exist already; backups; folders that checkpoint reset or a person has moved"
    " aside; broken records in which the key cannot be read; the records of other pipelines that read the"
    " topic, until the events are forgotten there, too (their jobs ask for it); the state of speed_stream,"
    " until its watermark is past the event time by speed.watermark_delay and the share"
    " speed.state_eviction_share of it, and files of its checkpoint for some further micro-batches; event"
    " logs of Spark, which hold the condition with the key; the"
    " minimum and maximum values of each file in Delta's log, which the batch table keeps for ten years"
)


@click.command()
@common_options
@key_option()
@click.option(
    "--again",
    "repeats",
    is_flag=True,
    help="Repeat all earlier deletions, after a restore or a failed run.",
)
@click.option("--dry-run", is_flag=True, help="Count what would be deleted, and change nothing.")
def forget(key_texts: tuple[str, ...], repeats: bool, dry_run: bool, **common: Any) -> None:
    """Delete events by dedup key, permanently.

    These are all events of a dedup key, or of parts of it. Their records are emptied in bronze and deleted
    from quarantine and speed layer; certified days that hold them are rebuilt and audited. If a run died, run
    the command again to complete it. If a producer sends a forgotten event again while speed_stream still
    knows its key, the audit of its day fails: run the command with the same key.
    """
    if bool(key_texts) == repeats:
        raise click.UsageError("expected a key (--key COLUMN=VALUE) or --again, not both")
    key: list[AskedPart] = []

    def check(config: PipelineConfig, contract: DataContract) -> None:
        refuse_unfit_expectations(config, contract)
        if not repeats:
            key.extend(asked_key(contract, key_texts))

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        search = again(pipeline) if repeats else OfKey(pipeline, key)
        if search is None:
            return {"counts": {}, "lines": ["no event was forgotten before: there is nothing to repeat"]}
        done = forget_and_rebuild(pipeline, run_id, search, dry_run=dry_run)
        return summary_of(pipeline.config, done, dry_run=dry_run)

    run_job(Job("forget", body, check=check), CommonOptions(**common))


def summary_of(config: PipelineConfig, done: ForgetResult, *, dry_run: bool) -> dict[str, Any]:
    """Return the summary of what was forgotten.

    Args:
        config: The pipeline's configuration.
        done: What was done.
        dry_run: Nothing was done yet.

    Returns:
        `counts` by layer; `days`, the verdict on each rebuilt one; `lines`.

    Raises:
        JobFailed: Readers keep the events, since a day failed its audit or the rebuild could not be done.
    """
    forgotten, failure = done.forgotten, done.rebuild.failure
    names = [day.isoformat() for day in forgotten.days]
    summary = {
        "counts": asdict(forgotten.counts),
        "days": {day.isoformat(): status for day, status in done.rebuild.verdicts.items()},
        "days_to_rebuild": names if dry_run else [],
        "looked_in": searched_text(forgotten.searched),
        "warnings": done.warnings,
        "lines": list(_lines(config, forgotten, done.rebuild.verdicts, dry_run=dry_run)),
    }
    if failure:
        raise JobFailed(
            failure,
            summary,
            "the events are deleted from bronze, quarantine and speed layer, but readers still get them on"
            f" {', '.join(names)}: {failure}. Fix that. The next nightly_batch then removes the events for"
            f" readers; {command(config, 'forget', '--again')} does it now."
            f" If the topic no longer exists: {_without_topic(config)}",
        )
    return summary


def _without_topic(config: PipelineConfig) -> str:
    """Return how days are rebuilt of which nobody can ask Kafka any more."""
    if config.kafka.has_others:
        return "set retired for its cluster, as docs/clusters.md says"
    return "add --set batch.seal_by=bronze"


def _lines(
    config: PipelineConfig, forgotten: Forgotten, verdicts: Mapping[date, VerdictStatus], *, dry_run: bool
) -> Iterator[str]:
    yield f"searched {searched_text(forgotten.searched)}, and all layers"
    counts = asdict(forgotten.counts)
    if not any(counts.values()):
        yield "no matching event was found"
        return
    for layer, number in counts.items():
        yield _DONE[layer].format(number, "to be " if dry_run else "")
    if dry_run:
        yield from (f"to rebuild: {day}" for day in forgotten.days)
        yield from (f"to be rewritten without them, past its retention: {day}" for day in forgotten.final)
        return
    yield from (f"rebuilt: {day}: {verdict}" for day, verdict in verdicts.items())
    yield from (f"rewritten without them, past its retention: {day}" for day in forgotten.final)
    yield from _left_until(config)
    yield _OUT_OF_REACH


def _left_until(config: PipelineConfig) -> Iterator[str]:
    """Yield which files still contain the events, until when, and how to delete them earlier."""
    until = datetime.now(UTC) + config.maintain.vacuum_after
    folders = [config.table(layer) for layer in ("bronze", "quarantine", "speed", "batch")]
    folders += [config.serving_table] if config.serving.table else []
    folders += map(config.ops_table, LEDGERS)
    yield (
        "files of earlier versions still contain the events; they are deleted by the first"
        f" {command(config, 'maintain')} after {until:%Y-%m-%d %H:%M} UTC:"
    )
    yield from (f"  {folder}" for folder in folders)
    yield (
        f"to delete them now: {command(config, 'maintain', '--vacuum-now')} (readers of earlier versions then"
        " fail, also queries that are running)"
    )
