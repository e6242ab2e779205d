"""`oncelake quarantine`: show, replay, discard or reopen broken records."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC
from typing import Any, Final, get_args

import click

from pipelines.cli.job_runner import Job, JobFailed, refuse_unfit_expectations, run_job
from pipelines.cli.options import Command, CommonOptions, common_options
from pipelines.cli.terminal import harmless
from pipelines.contracts.contract import DataContract
from pipelines.ledger.quarantine import STATUSES, Selection
from pipelines.records.reasons import Reason
from pipelines.records.redaction import shown_found
from pipelines.spark.pipeline import Pipeline
from pipelines.steps import quarantine as step
from pipelines.steps.quarantine import QuarantinedRecord, QuarantineGroup
from pipelines.steps.replay import replay_and_rebuild
from pipelines.steps.replay_run import Replay, ReplayResult

_VALUE_LENGTH: Final = 500
_MOMENT: Final = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"])
_FILTERS: Final = (
    click.option(
        "--reason",
        "reasons",
        multiple=True,
        type=click.Choice(get_args(Reason)),
        help="Only records with this reason. Repeatable.",
    ),
    click.option("--since", type=_MOMENT, help="Only records sent at this time (UTC) or later."),
    click.option("--until", type=_MOMENT, help="Only records sent before this time (UTC)."),
    click.option(
        "--partition",
        "partitions",
        multiple=True,
        type=click.IntRange(0, 2**31 - 1),
        help="Only records of this Kafka partition. Repeatable.",
    ),
    click.option(
        "--contract-version",
        "contract_versions",
        multiple=True,
        metavar="VERSION",
        help="Only records refused by this contract version. Repeatable.",
    ),
)
_status = click.option(
    "--status",
    type=click.Choice([*STATUSES, "any"]),
    default="open",
    show_default=True,
    help="Only records with this status; open: neither replayed nor discarded.",
)


_dry_run = click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")


def _filters(command: Command) -> Command:
    for option in reversed(_FILTERS):
        command = option(command)
    return command


@click.group()
def quarantine() -> None:
    """Show, replay or discard records that broke the contract, or reopen discarded ones."""


@quarantine.command()
@common_options
@_filters
@_status
def summary(status: str, **options: Any) -> None:
    """Count records by status and reason."""
    selection, common = _split(options, None if status == "any" else status)

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        return summary_of_groups(step.summarise(pipeline, selection))

    run_job(Job("quarantine summary", body), common)


def summary_of_groups(groups: Sequence[QuarantineGroup]) -> dict[str, Any]:
    """Tell how many records are in quarantine, and why.

    Args:
        groups: The records, by what became of them and why they are there.

    Returns:
        `counts`: `records`; `lines`, one for each group; `groups`.
    """
    lines = [
        f"{g.records:>9,}  {g.status:<9}  {g.reason:<17}  {g.column or '-':<20}"
        f"  contract {g.contract_version}  sent {g.first_sent} to {g.last_sent} UTC"
        f"  {_tries(g.attempts)}"
        for g in groups
    ]
    return {
        "counts": {"records": sum(g.records for g in groups)},
        "lines": lines,
        "groups": [asdict(g) for g in groups],
    }


@quarantine.command()
@common_options
@_filters
@_status
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="Maximum number of records to show.",
)
def show(status: str, limit: int, **options: Any) -> None:
    """Show records in the order of Kafka's offsets."""
    selection, common = _split(options, None if status == "any" else status)

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        return summary_of_records(step.examples(pipeline, selection, limit), pipeline.contract)

    run_job(Job("quarantine show", body), common)


def summary_of_records(shown: Sequence[QuarantinedRecord], contract: DataContract) -> dict[str, Any]:
    """Tell what is in quarantine, record by record.

    Args:
        shown: The records.
        contract: Says which values may be shown.

    Returns:
        `counts`: `records`; `lines`; `records`, each with what of its value may be shown, as text.
    """
    records = [_readable(record, contract) for record in shown]
    lines = [
        f"{r['topic']}-{r['partition']} @ {r['offset']}, sent {r['sent']} UTC: {r['reason']}"
        + (f" of {r['column']}" if r["column"] else "")
        + (f", found {r['found']}" if r["found"] is not None else "")
        + f" ({r['status']}, {_tries(r['attempts'])}, contract {r['contract_version']})\n    {r['value']}"
        for r in records
    ]
    return {"counts": {"records": len(records)}, "lines": lines, "records": records}


@quarantine.command()
@common_options
@_filters
@_dry_run
def replay(dry_run: bool, **options: Any) -> None:
    """Decode unresolved records with the current contract, and add those that pass to the lake.

    Events of uncertified days enter the speed layer. Certified days that get events are rebuilt and
    audited.
    """
    selection, common = _split(options, "open")

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        result = replay_and_rebuild(pipeline, run_id, selection, dry_run=dry_run)
        return summary_of_replay(result, dry_run=dry_run)

    run_job(Job("quarantine replay", body, check=refuse_unfit_expectations), common)


def summary_of_replay(result: ReplayResult[Any], *, dry_run: bool) -> dict[str, Any]:
    """Tell what was replayed.

    Args:
        result: What was done.
        dry_run: Nothing was done yet.

    Returns:
        `counts`; `days`, the verdict on each rebuilt one, and `warnings`, or `days_to_rebuild`; `lines`.

    Raises:
        JobFailed: A day failed its audit, or the rebuild could not be done.
    """
    done, verdicts, failure = result.done, result.rebuild.verdicts, result.rebuild.failure
    counts = asdict(done.counts)
    if dry_run:
        days = [day.isoformat() for day in done.days]
        lines = [*(f"to rebuild: {day}" for day in days), *_of_gone(done)]
        return {"counts": counts, "days_to_rebuild": days, "lines": lines}
    summary = {
        "counts": counts,
        "days": {day.isoformat(): status for day, status in verdicts.items()},
        "warnings": result.warnings,
        "lines": [*(f"rebuilt: {day}: {verdict}" for day, verdict in verdicts.items()), *_of_gone(done)],
    }
    if failure:
        raise JobFailed(failure, summary)
    return summary


def _of_gone(done: Replay[Any]) -> list[str]:
    why = "records of the day are gone from bronze, so it cannot be rebuilt"
    return [f"left unresolved: {day}: {why}; discard them" for day in done.gone]


@quarantine.command()
@common_options
@_filters
@click.option("--all", "everything", is_flag=True, help="Discard all unresolved records.")
@_dry_run
def discard(everything: bool, dry_run: bool, **options: Any) -> None:
    """Mark unresolved records as discarded. They stay in the table, and in bronze."""
    selection, common = _split(options, "open")
    if (selection == Selection()) != everything:
        raise click.UsageError("expected either a filter, or --all to discard all unresolved records")

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        return {"counts": {"records": step.discard(pipeline, run_id, selection, dry_run=dry_run)}}

    run_job(Job("quarantine discard", body), common)


@quarantine.command()
@common_options
@_filters
@click.option("--all", "everything", is_flag=True, help="Reopen all discarded records.")
@_dry_run
def reopen(everything: bool, dry_run: bool, **options: Any) -> None:
    """Mark discarded records as unresolved again."""
    selection, common = _split(options, "discarded")
    if (selection == Selection("discarded")) != everything:
        raise click.UsageError("expected either a filter, or --all to reopen all discarded records")

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        return {"counts": {"records": step.reopen(pipeline, run_id, selection, dry_run=dry_run)}}

    run_job(Job("quarantine reopen", body), common)


def _split(options: dict[str, Any], status: str | None) -> tuple[Selection, CommonOptions]:
    since, until = options.pop("since"), options.pop("until")
    if since and until and since >= until:
        raise click.UsageError("expected --since to be before --until")
    names = ("reasons", "partitions", "contract_versions")
    selection = Selection(
        status=status,
        since=since and since.replace(tzinfo=UTC),
        until=until and until.replace(tzinfo=UTC),
        **{name: options.pop(name) for name in names},
    )
    return selection, CommonOptions(**options)


def _readable(record: QuarantinedRecord, contract: DataContract) -> dict[str, Any]:
    value, actual = record.value or b"", shown_found(contract, record.column, record.found)
    text = value.decode("utf-8", "backslashreplace")[:_VALUE_LENGTH]
    names = ("topic", "partition", "offset", "sent", "reason", "column", "status", "attempts")
    return {
        **{name: getattr(record, name) for name in (*names, "contract_version")},
        "found": None if actual is None else harmless(actual),
        "value": f"({len(value)} bytes, withheld)" if contract.personal else harmless(text),
    }


def _tries(attempts: int) -> str:
    return "tried once" if attempts == 1 else f"tried {attempts} times"
