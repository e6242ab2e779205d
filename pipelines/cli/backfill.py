"""`oncelake backfill`: what Kafka has and bronze lacks is read while the streams go on."""

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from pipelines.cli.job_runner import Job, JobFailed, run_job
from pipelines.cli.options import CommonOptions, LogFormat, cluster_option, common_options, once
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.durations import about
from pipelines.kafka.backfill_plan import BackfillSpan, PartitionPlan
from pipelines.kafka.backfill_run import Backfill, BackfillProgress, Tell
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.backfill import OffsetsGone, source_of
from pipelines.steps.backfill import backfill as copy_missing

_OFFSETS: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,18})(?:\.\.([0-9]{1,18}))?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_log = logging.getLogger(__name__)


@click.command()
@common_options
@cluster_option
@once(
    "--from",
    "since",
    metavar="TIME",
    help="Start at the first record sent at this time or later, e.g. 2013-01-01 or 2013-01-02T12:00:00Z; UTC"
    " if there is no offset. Default: the first record in Kafka.",
)
@once(
    "--to",
    "until",
    metavar="TIME",
    help="Stop before the first record sent at this time or later. Default: the position of ingest.",
)
@click.option(
    "--offsets",
    multiple=True,
    metavar="PARTITION:FIRST..LAST",
    help="Offsets of a partition, instead of times. Repeatable, once for each partition.",
)
@once(
    "--max-offsets-per-second",
    "rate",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="Limit the rate. Overrides backfill.max_offsets_per_second.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be read, and change nothing.")
def backfill(
    since: str | None,
    until: str | None,
    offsets: tuple[str, ...],
    rate: int | None,
    dry_run: bool,
    **common: Any,
) -> None:
    """Copy records that Kafka has and bronze lacks to bronze.

    The streams keep running. Reads only offsets that ingest has already passed. If a run is stopped or dies,
    run the command again: it reads what is still missing. Ends with exit code 4 if Kafka no longer has
    offsets that bronze lacks.
    """
    # The whole configuration has the other ingests, which write to the same bronze.
    asked = replace(parse_span(since, until, offsets), cluster=common.pop("cluster"))
    if rate:
        common["settings"] = (*common["settings"], f"backfill.max_offsets_per_second={rate}")
    options = CommonOptions(**common)

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        try:
            with told(options.log_format) as tell:
                done = copy_missing(pipeline, run_id, asked, tell, dry_run=dry_run)
        except OffsetsGone as gone:
            raise JobFailed(gone, summary_of(gone.done, dry_run=dry_run)) from None
        return summary_of(done, dry_run=dry_run)

    def check(config: PipelineConfig, contract: DataContract) -> None:
        source_of(config, asked.cluster)

    run_job(Job("backfill", body, check), options)


def parse_span(since: str | None, until: str | None, offsets: tuple[str, ...]) -> BackfillSpan:
    """Return what the options ask for.

    Args:
        since: `--from`, a time in ISO 8601, in UTC if it names no offset.
        until: `--to`, the same.
        offsets: `--offsets`, as `oncelake reconcile` prints offsets: `0:100..199`.

    Raises:
        UsageError: They ask for nothing, or contradict each other, or cannot be read.
    """
    if bool(offsets) == bool(since or until):
        raise click.UsageError("expected either times (--from, --to or both) or --offsets")
    first, last = _moment("--from", since), _moment("--to", until)
    if first and last and last <= first:
        raise click.UsageError(f"--to: expected a time after --from, got {until!r}")
    ranges = [_offsets(text) for text in offsets]
    if len({number for number, _ in ranges}) < len(ranges):
        raise click.UsageError(
            "--offsets: expected one range for each partition; use a longer one, as what bronze has is not"
            " read again"
        )
    return BackfillSpan(first, last, dict(ranges))


def _moment(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"{option}: expected a time such as 2013-01-01T05:00:00Z or 2013-01-01, got {text!r}"
        ) from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if aware < _EPOCH:
        # Kafka takes some numbers below 0 for other questions, as -1 for the newest offset.
        raise click.UsageError(f"{option}: expected 1970 or later, as Kafka's timestamps, got {text!r}")
    return aware


def _offsets(text: str) -> tuple[int, range]:
    found = _OFFSETS.fullmatch(text)
    first, last = (int(found[2]), int(found[3] or found[2])) if found else (0, -1)
    if not found or last < first:
        raise click.UsageError(
            "--offsets: expected a partition, its first and its last offset, such as 0:100..199, got"
            f" {text!r}"
        )
    return int(found[1]), range(first, last + 1)


@contextmanager
def told(log_format: LogFormat) -> Iterator[Tell]:
    """Show how far a run is: a bar on a terminal, else a line for each chunk, with `json` an object."""
    if log_format == "json":
        yield _print_json
    elif (console := Console(stderr=True)).is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bar:
            yield _on(bar)
    else:
        yield _log_line


def _print_json(progress: BackfillProgress) -> None:
    left = progress.left_s
    figures = {
        "offsets": progress.done,
        "of": progress.total,
        "records": progress.records,
        "elapsed_s": round(progress.elapsed_s, 1),
        "left_s": None if left is None else round(left, 1),
    }
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    print(json.dumps({"time": now, "progress": figures}), file=sys.stderr, flush=True)


def _on(bar: Progress) -> Callable[[BackfillProgress], None]:
    task = bar.add_task("offsets")

    def show(progress: BackfillProgress) -> None:
        bar.update(task, completed=progress.done, total=progress.total)

    return show


def _log_line(progress: BackfillProgress) -> None:
    left = "" if progress.left_s is None else f"; about {about(progress.left_s)} left"
    _log.info(
        "%s of %s offsets read, %s records appended%s",
        *(f"{number:,}" for number in (progress.done, progress.total, progress.records)),
        left,
    )


def summary_of(done: Backfill, *, dry_run: bool) -> dict[str, Any]:
    """Tell what a backfill has read.

    Args:
        done: What was read, or would be.
        dry_run: Nothing was read.

    Returns:
        `counts`; `partitions`: what was asked for of each, and what became of it; `lines`.
    """
    plans = done.partitions
    return {
        "counts": {
            "missing": sum(each.lack.offsets for each in plans.values()),
            "offsets_to_read": done.progress.total,
            "records": done.progress.records,
            "commits": done.chunks,
            "left_to_ingest": sum(each.left_to_ingest for each in plans.values()),
            "removed_by_retention": sum(each.removed for each in plans.values()),
        },
        "dry_run": dry_run,
        "topic": done.topic,
        "partitions": [
            {
                "partition": number,
                "asked": [each.span.start, max(each.span.start, each.span.stop)],
                "missing": each.lack.offsets,
                "read": [[one.offsets.start, one.offsets.stop] for one in each.lack.ranges],
                "gone": [[one.start, one.stop] for one in done.gone.get(number, ())],
                "left_to_ingest": each.left_to_ingest,
                "removed_by_retention": each.removed,
            }
            for number, each in plans.items()
        ],
        "lines": [
            line for number, each in plans.items() for line in _lines(f"{done.topic}-{number}", each, dry_run)
        ]
        or ["nothing was asked for that the topic has"],
    }


def _lines(place: str, plan: PartitionPlan, dry_run: bool) -> Iterator[str]:
    for each in plan.lack.ranges:
        some = ", of which bronze has some" if each.is_partial else ""
        yield f"{'to read' if dry_run else 'read':<8} {place} @ {_text(each.offsets)}{some}"
    for gone in plan.gone.ranges:
        some = ", of which bronze has some" if gone.is_partial else ""
        yield f"{'MISSING':<8} {place} @ {_text(gone.offsets)}{some}: Kafka no longer has them"
    if plan.left_to_ingest:
        yield f"{'known':<8} {place}: ingest_stream reads {plan.left_to_ingest:,} offsets of these itself"
    if plan.removed:
        yield (
            f"{'known':<8} {place}: {plan.removed:,} offsets were removed by maintain.bronze_retention, or by"
            " Kafka before ingest began"
        )
    if not plan.lack.ranges and not plan.gone.ranges:
        yield f"{'known':<8} {place}: bronze lacks nothing that was asked for"


def _text(offsets: range) -> str:
    return f"{offsets.start}" if len(offsets) == 1 else f"{offsets.start}..{offsets.stop - 1}"
