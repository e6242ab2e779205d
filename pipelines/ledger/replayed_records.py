"""Records that were replayed, and that a later contract refuses.

The mark of a replayed record says that readers have its event. A rebuild decides by the contract alone, so
under a stricter contract, or an earlier one, it takes the event out of its day. The record is then broken
like any other, and unresolved.
"""

import logging
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.config.commands import command
from pipelines.delta.fenced_commits import claim
from pipelines.delta.io import small_rows
from pipelines.delta.record_tables import QUARANTINE, REPLAYED_BY, ensure_quarantine
from pipelines.delta.small_tables import read_small
from pipelines.delta.tables import conform, exists, shape, small_frame, version
from pipelines.ledger.bronze_index import BronzeIndex
from pipelines.ledger.decoding import decode_all, decoding_key
from pipelines.ledger.forgotten_places import not_forgotten
from pipelines.ledger.leases import Lease
from pipelines.ledger.ops_tables import CERTIFICATIONS
from pipelines.ledger.quarantine import Selection, judge_replayed, picked
from pipelines.records.decode import COORDINATES, ENVELOPE, ORIGIN
from pipelines.spark.pipeline import Pipeline

# Of a large table Delta leaves out files without such rows by their statistics.
_UNSURE: Final = f"_status = 'replayed' AND NOT {REPLAYED_BY} <=> '{{}}'"
_OPENED: Final = f"_status = 'open' AND {REPLAYED_BY} IS NOT NULL"

_log = logging.getLogger(__name__)


def judge_again(pipeline: Pipeline, index: BronzeIndex, lease: Lease) -> str | None:
    """Make replayed records unresolved again that the contract refuses now.

    Records are decoded again only if the contract, or what else decides, has changed since they were valid.
    Those that bronze no longer holds are left as they are, since no rebuild can remove their events.

    Args:
        pipeline: The pipeline.
        index: Says which offsets bronze holds.
        lease: The pipeline's lease. Nothing is changed if a later run has taken it over.

    Returns:
        What people should know, as long as such records are unresolved; None if there are none.

    Raises:
        StaleEpoch: A later run has taken the lease over.
        InfrastructureError: A schema is neither in the lake nor to be had from the registry; or others
            changed the same rows at each try.
    """
    if not exists(pipeline.spark, pipeline.table("quarantine")):
        return None
    key = decoding_key(pipeline)
    is_unsure, opened = _looked(pipeline, key)
    if is_unsure:
        _judge(pipeline, index, lease, key)
        _, opened = _looked(pipeline, key)
    if not opened:
        return None
    replay = command(pipeline.config, "quarantine replay")
    warning = (
        f"{pipeline.table('quarantine')}: {opened:,} replayed records break the contract now, so they are"
        " unresolved again. Rebuilds remove their events. If an earlier contract is in use by mistake, deploy"
        f" the right one and run {replay}; else discard them, see"
        " docs/runbook.md, 'Records in quarantine are valid after all'"
    )
    _log.warning("%s", warning)
    return warning


def _looked(pipeline: Pipeline, key: str) -> tuple[bool, int]:
    """Return whether there are records to be judged, and how many were judged and are unresolved again."""
    unsure, opened = _UNSURE.format(key), F.expr(_OPENED)
    rows = conform(read_small(pipeline.spark, pipeline.table("quarantine")), shape(QUARANTINE))
    counted = rows.where(f"({unsure}) OR ({_OPENED})").agg(
        F.coalesce(F.bool_or(F.expr(unsure)), F.lit(False)).alias("is_unsure"),
        F.count_distinct(F.when(opened, F.struct(*COORDINATES))).alias("opened"),
    )
    row = small_rows(counted)[0]
    return bool(row["is_unsure"]), int(row["opened"])


def _rows(pipeline: Pipeline, condition: str) -> DataFrame:
    """Return rows of the quarantine, at one version, with all of its columns."""
    table = pipeline.table("quarantine")
    rows = picked(pipeline, Selection(status=None), version(pipeline.spark, table))
    return conform(rows, shape(QUARANTINE)).where(condition)


def _judge(pipeline: Pipeline, index: BronzeIndex, lease: Lease, key: str) -> None:
    unsure = _in_bronze(pipeline, index, _rows(pipeline, _UNSURE.format(key)))
    # Apart, since it reads no values: what bronze has lost stays unsure for ever.
    if unsure.isEmpty():
        return
    records = unsure.dropDuplicates([*COORDINATES]).select(*ENVELOPE, *ORIGIN)
    decoded = decode_all(pipeline, records, retries_passed_over=True).persist()
    try:
        ensure_quarantine(pipeline)
        # A run that a later one has overtaken would undo what that one has replayed.
        claim(pipeline.spark, CERTIFICATIONS.path(pipeline), lease.stamp("judge"))
        marks = unsure.select(*COORDINATES, REPLAYED_BY).distinct()
        judge_replayed(pipeline, decoded.join(marks, [*COORDINATES]), key)
    finally:
        decoded.unpersist()


def _in_bronze(pipeline: Pipeline, index: BronzeIndex, rows: DataFrame) -> DataFrame:
    """Return the rows whose records bronze holds as they came, by the first offset of each partition."""
    firsts = [{"_topic": e.topic, "_partition": e.partition, "_first": e.first} for e in index.offsets()]
    held = small_frame(pipeline.spark, firsts, shape("_topic string, _partition int, _first bigint"))
    rows = rows.join(F.broadcast(held), ["_topic", "_partition"]).where("_offset >= _first")
    return not_forgotten(pipeline, rows)
