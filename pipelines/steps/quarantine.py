"""Quarantine: count and show records that broke the contract, give them up, or take that back."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.delta.io import small_rows
from pipelines.delta.record_tables import require_table
from pipelines.delta.tables import version
from pipelines.ledger.leases import lease
from pipelines.ledger.quarantine import Selection, picked, update_rows
from pipelines.records.decode import COORDINATES
from pipelines.records.redaction import shown_found
from pipelines.report.model.records import QuarantineExample, QuarantineReason
from pipelines.report.queries.profile import quarantine_reasons
from pipelines.spark.pipeline import Pipeline

_BEFORE: Final = {"discarded": "open", "open": "discarded"}
"""The status of rows that a person gives another one, by that."""
_JOBS: Final = {"discarded": "quarantine discard", "open": "quarantine reopen"}
"""The command that gives it, likewise."""


@dataclass(frozen=True)
class QuarantineGroup:
    """Records of the quarantine of which the same became, for the same reason.

    Attributes:
        status: What became of them.
        reason: Why they are there.
        column: The column that is broken; None if it is the whole record.
        contract_version: The version of the contract that refused them.
        records: How many records these are.
        attempts: The most tries of one record.
        first_sent: When the first was sent, by Kafka's timestamp; text, UTC, since its year may be any.
        last_sent: When the last was sent; the same.
    """

    status: str
    reason: str
    column: str | None
    contract_version: str
    records: int
    attempts: int
    first_sent: str
    last_sent: str


@dataclass(frozen=True)
class QuarantinedRecord:
    """A record of the quarantine.

    Attributes:
        topic: Its topic.
        partition: Its partition.
        offset: Its offset.
        sent: When it was sent, by Kafka's timestamp; text, UTC, since its year may be any.
        reason: Why it is there.
        column: The column that is broken; None if it is the whole record.
        found: What was found there; None if that was nothing.
        status: What became of it.
        attempts: How often it was tried.
        contract_version: The version of the contract that refused it.
        value: Its value; None without one.
    """

    topic: str
    partition: int
    offset: int
    sent: str
    reason: str
    column: str | None
    found: str | None
    status: str
    attempts: int
    contract_version: str
    value: bytes | None


def summarise(pipeline: Pipeline, selection: Selection) -> Sequence[QuarantineGroup]:
    """Count records by what became of them and why they are there; the largest groups come first."""
    groups = (
        picked(pipeline, selection)
        .groupBy(
            *(F.col(f"_{name}").alias(name) for name in ("status", "reason", "column", "contract_version"))
        )
        .agg(
            F.count_distinct(*COORDINATES).alias("records"),
            F.max("_attempts").alias("attempts"),
            _as_text(F.min("_kafka_timestamp")).alias("first_sent"),
            _as_text(F.max("_kafka_timestamp")).alias("last_sent"),
        )
    )
    rows = small_rows(groups.orderBy(F.desc("records"), "status", "reason", "column"))
    return [QuarantineGroup(**row) for row in rows]


def examples(pipeline: Pipeline, selection: Selection, limit: int) -> Sequence[QuarantinedRecord]:
    """Return the first records in Kafka's order."""
    first = picked(pipeline, selection).orderBy("_kafka_timestamp", *COORDINATES).limit(limit)
    columns = {field.name: F.col(f"_{field.name}") for field in fields(QuarantinedRecord)}
    columns |= {"sent": _as_text(F.col("_kafka_timestamp")), "value": F.col("value")}
    rows = small_rows(first.select(*(column.alias(name) for name, column in columns.items())))
    return [QuarantinedRecord(**row) for row in rows]


def unresolved_reasons(pipeline: Pipeline) -> tuple[QuarantineReason, ...]:
    """Return the unresolved records by reason, most frequent first, with samples as a report shows them."""
    selection, contract = Selection(), pipeline.contract
    counts: Counter[str] = Counter()
    for group in summarise(pipeline, selection):
        counts[group.reason] += group.records
    shown = quarantine_reasons(
        counts, picked(pipeline, selection), pipeline.config.audit.examples, values=not contract.personal
    )
    return tuple(reason.model_copy(update={"examples": _shown(contract, reason)}) for reason in shown)


def _shown(contract: DataContract, reason: QuarantineReason) -> tuple[QuarantineExample, ...]:
    return tuple(
        each.model_copy(update={"found": shown_found(contract, each.column, each.found)})
        for each in reason.examples
    )


def _as_text(moment: Column) -> Column:
    # Kafka takes timestamps of any year, Python's end with 9999.
    return F.date_format(moment, "yyyy-MM-dd HH:mm:ss")


def discard(pipeline: Pipeline, run_id: str, selection: Selection, *, dry_run: bool) -> int:
    """Mark unresolved records as given up; they no longer count as unresolved, and are not replayed.

    Nothing else changes: a rebuild that finds them valid under a later contract takes them in.

    Args:
        pipeline: The pipeline.
        run_id: The holder of the lease meanwhile.
        selection: Which of the unresolved records.
        dry_run: Count, and change nothing.

    Returns:
        How many records these are.
    """
    return _mark(pipeline, run_id, selection, "discarded", dry_run=dry_run)


def reopen(pipeline: Pipeline, run_id: str, selection: Selection, *, dry_run: bool) -> int:
    """Make discarded records unresolved again, so that the next replay decodes them.

    Args:
        pipeline: The pipeline.
        run_id: The holder of the lease meanwhile.
        selection: Which of the discarded records.
        dry_run: Count, and change nothing.

    Returns:
        How many records these are.
    """
    return _mark(pipeline, run_id, selection, "open", dry_run=dry_run)


def _mark(pipeline: Pipeline, run_id: str, selection: Selection, status: str, *, dry_run: bool) -> int:
    at = version(pipeline.spark, require_table(pipeline, "quarantine"))
    chosen = picked(pipeline, selection, at).select(*COORDINATES).distinct()
    if not dry_run:
        changes = {"_status": F.lit(status), "_tried_at": F.current_timestamp()}
        with lease(pipeline, run_id, _JOBS[status]):
            update_rows(pipeline, chosen, changes, before=_BEFORE[status])
    return chosen.count()
