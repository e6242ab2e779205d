"""`oncelake maintain`: compaction, retention and VACUUM of a pipeline's tables."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import click

from pipelines.cli.job_runner import Job, run_job
from pipelines.cli.options import CommonOptions, common_options
from pipelines.config.streams import Layer
from pipelines.retention.removal_terms import Removal
from pipelines.retention.upkeep_run import (
    FoldedIndex,
    KeptFiles,
    LeftOver,
    OldRows,
    TableFiles,
    UpkeepFinding,
)
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.maintain import Upkeep, maintain
from pipelines.steps.serving import refresh_view
from pipelines.steps.serving_table import refresh_table

_BEHIND: Final = {
    "bronze": "speed_stream has not read all of it",
    "speed": "publish_stream has not read all of it",
    "batch": "publish_stream has not sent what was certified",
}

_COUNTS: Final = (
    *("files_compacted", "bytes_compacted"),
    *("bronze_rows", "speed_rows", "quarantine_rows", "index_rows"),
    *("files_removed", "bytes_removed"),
)


@click.command("maintain")
@common_options
@click.option(
    "--vacuum-now",
    is_flag=True,
    help="Delete files of earlier versions immediately, not after maintain.vacuum_after. Queries that still"
    " read these versions fail.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
def maintain_tables(vacuum_now: bool, dry_run: bool, **common: Any) -> None:
    """Compact files; delete old rows and unneeded files."""

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        if not dry_run:
            # An older view may still take a certified day from the speed layer.
            refresh_view(pipeline)
            refresh_table(pipeline)
        done = maintain(pipeline, run_id, dry_run=dry_run, vacuum_now=vacuum_now)
        return summary_of(done, vacuum_now=vacuum_now)

    run_job(Job("maintain", body), CommonOptions(**common))


def summary_of(done: Upkeep, *, vacuum_now: bool) -> dict[str, Any]:
    """Tell what upkeep has done, and what it left.

    Args:
        done: What was done.
        vacuum_now: It did not wait for `maintain.vacuum_after`.

    Returns:
        `counts`: files and bytes put together and removed, rows removed from each table; `lines`.
    """
    lines = [line for finding in done.findings for line in _lines(finding, vacuum_now=vacuum_now)]
    return {"counts": _counts(done), "lines": lines}


def _counts(done: Upkeep) -> dict[str, int]:
    counts = Counter(dict.fromkeys(_COUNTS, 0))
    for finding in done.findings:
        match finding:
            case TableFiles(_, what, files):
                counts[f"files_{what}"] += files.count
                counts[f"bytes_{what}"] += files.bytes
            case OldRows(layer, removal):
                counts[f"{layer}_rows"] += removal.rows
            case FoldedIndex(rows):
                counts["index_rows"] += rows
    return dict(counts)


def _lines(finding: UpkeepFinding, *, vacuum_now: bool) -> Iterator[str]:
    match finding:
        case TableFiles(table, what, files):
            yield f"{table}: files {what}: {files.count:,} ({files.bytes:,} bytes)"
        case LeftOver(is_restored):
            done = "restored" if is_restored else "to be restored"
            yield f"batch: a run died before its verdict; first {done} to the certified version"
        case OldRows(layer, removal):
            if removal.rows:
                yield f"{layer}: {removal.rows:,} {_removed(layer, removal)}"
            yield from (f"{layer}: kept from {need.day} on: {need.why}" for need in removal.needs)
        case FoldedIndex(rows):
            yield f"ops/bronze_index: {rows:,} rows fewer: old rows were folded"
        case KeptFiles(layer):
            for_long = "" if vacuum_now else " for longer than maintain.vacuum_after"
            yield f"{layer}: no file removed: {_BEHIND[layer]}{for_long}"


def _removed(layer: Layer, removal: Removal) -> str:
    if layer == "bronze":
        sent = f"{removal.sent_before:%Y-%m-%d %H:%M} UTC"
        return f"records that were sent before {sent}; whole from {removal.kept_from}"
    if layer == "speed":
        return f"rows of {removal.days} certified days; kept from {removal.kept_from}"
    return "replayed or discarded records"
