"""Quarantine: count and show records that broke the contract, or give them up."""

from collections import Counter
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.delta.io import small_rows
from pipelines.delta.record_tables import require_table
from pipelines.delta.tables import version
from pipelines.ledger.leases import lease
from pipelines.ledger.quarantine import Selection, picked, update_open
from pipelines.records.decode import COORDINATES
from pipelines.records.redaction import shown_found
from pipelines.report.model.records import QuarantineExample, QuarantineReason
from pipelines.report.queries.profile import quarantine_reasons
from pipelines.spark.pipeline import Pipeline


def summarise(pipeline: Pipeline, selection: Selection) -> list[dict[str, Any]]:
    """Count records by what became of them and why they are there.

    Returns:
        For each group `status, reason, column, contract_version, records, attempts` (the most tries of one
        record), `first_sent` and `last_sent` (text, UTC); the largest groups first.
    """
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
    return small_rows(groups.orderBy(F.desc("records"), "status", "reason", "column"))


def examples(pipeline: Pipeline, selection: Selection, limit: int) -> list[dict[str, Any]]:
    """Return the first records in Kafka's order: `_sent`, and the columns but for key, headers and times.

    `_sent` is Kafka's timestamp as text, in UTC; `value` is bytes.
    """
    first = picked(pipeline, selection).orderBy("_kafka_timestamp", *COORDINATES).limit(limit)
    sent = first.withColumn("_sent", _as_text(F.col("_kafka_timestamp")))
    timestamps = ("_kafka_timestamp", "_ingested_at", "_quarantined_at", "_tried_at")
    return small_rows(sent.drop("key", "headers", *timestamps))


def open_reasons(pipeline: Pipeline) -> tuple[QuarantineReason, ...]:
    """Return the open records by reason, most frequent first, with samples as a report shows them."""
    selection, contract = Selection(), pipeline.contract
    counts: Counter[str] = Counter()
    for group in summarise(pipeline, selection):
        counts[group["reason"]] += group["records"]
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
    """Mark open records as given up; they are not shown as open and not replayed any more.

    Nothing else changes: a rebuild that finds them valid under a later contract takes them in.

    Args:
        pipeline: The pipeline.
        run_id: the holder of the lease meanwhile.
        selection: which of the open records.
        dry_run: count, and change nothing.

    Returns:
        How many records these are.
    """
    at = version(pipeline.spark, require_table(pipeline, "quarantine"))
    chosen = picked(pipeline, selection, at).select(*COORDINATES).distinct()
    if not dry_run:
        with lease(pipeline, run_id):
            changes = {"_status": F.lit("discarded"), "_tried_at": F.current_timestamp()}
            update_open(pipeline, chosen, changes)
    return chosen.count()
