"""Whether a clock can be believed: behind, it spoils what ingest writes; ahead, what upkeep removes.

A backfill with a clock that is ahead would spoil the order of ingestion, too.

What is late, and what lies in the future, is measured from the moment in which a record was read. That
moment stays in bronze permanently, so a wrong one is refused before it gets there. To a clock that is far
ahead everything is old: rows that retention keeps, and files that streams are writing.
"""

from datetime import UTC, datetime
from typing import Final

from pipelines.delta.stream_check import reset_command
from pipelines.delta.table_state import last_commit_at
from pipelines.durations import format_interval
from pipelines.errors import InfrastructureError
from pipelines.spark.checkpoints import offsets_of, planned_at
from pipelines.spark.pipeline import Pipeline

_SHOWN: Final = "%Y-%m-%d %H:%M:%S UTC"


def require_not_behind(pipeline: Pipeline) -> None:
    """Compare the current time with the newest commit of bronze, before anything is read.

    The commit's time is that of its file: on an object store the store's own, else that of the machine that
    made it. Kafka's timestamps are no evidence: they may come from a producer whose clock is ahead.

    Raises:
        InfrastructureError: The clock is behind by more than `ingest.max_clock_behind`.
    """
    newest, now = last_commit_at(pipeline.spark, pipeline.table("bronze")), datetime.now(UTC)
    if newest is None or newest - now <= pipeline.config.ingest.max_clock_behind:
        return
    raise InfrastructureError(
        f"the clock of this machine is behind: found {now:{_SHOWN}}, expected"
        f" {newest:{_SHOWN}} or later, when {pipeline.table('bronze')} was last written. Nothing was read."
        " Correct the clock, and start again. If it is correct, and bronze was written with a clock that was"
        f" ahead, start once with --set ingest.max_clock_behind='{(newest - now).days + 1} days'."
        " See docs/runbook.md, 'A clock is behind'"
    )


def require_not_ahead(pipeline: Pipeline) -> None:
    """Compare the current time with the newest commit of bronze, before anything is removed.

    Bronze is written all the time, so its newest commit is hardly older than now.

    Raises:
        InfrastructureError: The clock is ahead of it by more than `maintain.max_idle`.
    """
    newest, now = last_commit_at(pipeline.spark, pipeline.table("bronze")), datetime.now(UTC)
    max_idle = pipeline.config.maintain.max_idle
    if newest is None or now - newest <= max_idle:
        return
    raise InfrastructureError(
        f"the clock of this machine may be ahead: found {now:{_SHOWN}}, expected no more than"
        f" maintain.max_idle ({format_interval(max_idle)}) after {newest:{_SHOWN}}, when"
        f" {pipeline.table('bronze')} was last written. Nothing was removed. Correct the clock, and start"
        " again. If it is correct, and no record has arrived since, start once with"
        f" --set maintain.max_idle='{(now - newest).days + 1} days'."
        " See docs/runbook.md, 'A clock is ahead'"
    )


def require_same_clock(pipeline: Pipeline, table: str, began: datetime) -> None:
    """Compare a moment just before a commit by this machine with the time of that commit.

    On an object store the commit's time is the store's own. What is written to bronze with a clock that is
    ahead comes, by its time, after micro-batches that ingest commits later. To a nightly run a day seems to
    be over that is not.

    Args:
        pipeline: The pipeline.
        table: The path of the table that was written to.
        began: The moment.

    Raises:
        InfrastructureError: The clock is ahead by more than `ingest.max_clock_behind`.
    """
    newest = last_commit_at(pipeline.spark, table)
    if newest is None or began - newest <= pipeline.config.ingest.max_clock_behind:
        return
    raise InfrastructureError(
        f"the clock of this machine is ahead: found {began:{_SHOWN}}, expected {newest:{_SHOWN}} or earlier,"
        f" when {table} was last written. This run has written nothing else. Correct the clock, and start"
        " again. See docs/runbook.md, 'A clock is ahead'"
    )


def require_order(pipeline: Pipeline, batch: int) -> None:
    """Compare the moment of a micro-batch with that of the one before, as the checkpoint has them.

    Raises:
        InfrastructureError: It lies before it by more than `ingest.max_clock_behind`.
    """
    config = pipeline.config
    checkpoint = pipeline.checkpoint("ingest")
    texts = [offsets_of(pipeline.spark, checkpoint, number) for number in (batch - 1, batch)]
    previous, current = (planned_at(text) if text else None for text in texts)
    if previous is None or current is None or previous - current <= config.ingest.max_clock_behind:
        return
    raise InfrastructureError(
        f"the clock of this machine was set back: found micro-batch {batch} of {checkpoint} planned at"
        f" {current:{_SHOWN}}, expected no more than {format_interval(config.ingest.max_clock_behind)} before"
        f" the previous one, {previous:{_SHOWN}}. Nothing of it was written. Correct the clock, then run:"
        f" {reset_command(config, 'ingest')} (ingest then continues after the last records in bronze:"
        " nothing is lost or duplicated). See docs/runbook.md, 'A clock is behind'"
    )
