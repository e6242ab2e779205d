"""Records that were replayed, and that a later contract refuses.

The mark of a replayed record says that readers have its event. A rebuild decides by the contract alone, so
under a stricter contract, or an earlier one, it takes the event out of its day. The record is then broken
like any other, and unresolved.
"""

import logging

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.config.commands import command
from pipelines.delta.fenced_commits import claim
from pipelines.delta.record_tables import QUARANTINE, REPLAYED_BY, ensure_quarantine
from pipelines.delta.tables import conform, exists, shape, small_frame, version
from pipelines.ledger.bronze_index import BronzeIndex
from pipelines.ledger.decoding import decode_all, decoding_key
from pipelines.ledger.forgotten_places import places
from pipelines.ledger.leases import Lease
from pipelines.ledger.ops_tables import CERTIFICATIONS
from pipelines.ledger.quarantine import Selection, judge_replayed, picked
from pipelines.records.decode import COORDINATES, ENVELOPE, ORIGIN, VALID
from pipelines.spark.pipeline import Pipeline

_log = logging.getLogger(__name__)


def reopen_refused(pipeline: Pipeline, index: BronzeIndex, lease: Lease) -> str | None:
    """Make replayed records unresolved again that the contract refuses now.

    Records are decoded again only if the contract, or what else decides, has changed since they were valid.
    Those that bronze no longer holds are left as they are, since no rebuild can remove their events.

    Args:
        pipeline: The pipeline.
        index: says which offsets bronze holds.
        lease: the pipeline's lease. Nothing is changed if a later run has taken it over.

    Returns:
        What was found, for people; None if the contract refuses none.

    Raises:
        StaleEpoch: a later run has taken the lease over.
        InfrastructureError: a schema is neither in the lake nor to be had from the registry; or others
            changed the same rows at each try.
    """
    spark, table = pipeline.spark, pipeline.table("quarantine")
    if not exists(spark, table):
        return None
    key = decoding_key(pipeline)
    replayed = conform(picked(pipeline, Selection("replayed"), version(spark, table)), shape(QUARANTINE))
    unsure = replayed.where(~F.col(REPLAYED_BY).eqNullSafe(F.lit(key)))
    if unsure.isEmpty():
        return None
    unsure = _in_bronze(pipeline, index, unsure).dropDuplicates([*COORDINATES, REPLAYED_BY])
    keys = unsure.select(*COORDINATES, REPLAYED_BY)
    records = unsure.dropDuplicates([*COORDINATES]).select(*ENVELOPE, *ORIGIN)
    decoded = decode_all(pipeline, records, retries_passed_over=True).persist()
    try:
        counts = {row[VALID]: row["count"] for row in decoded.groupBy(VALID).count().toLocalIterator()}
        if counts:
            ensure_quarantine(pipeline)
            # A run that a later one has overtaken would undo what that one has replayed.
            claim(spark, CERTIFICATIONS.path(pipeline), lease.stamp("judge"))
            judge_replayed(pipeline, decoded.join(keys, [*COORDINATES]), key)
    finally:
        decoded.unpersist()
    if not (refused := counts.get(False, 0)):
        return None
    warning = (
        f"{table}: {refused:,} replayed records break the contract now, so they are unresolved again, and a"
        " rebuild removes their events. If an earlier contract is in use by mistake, deploy the right one and"
        f" run {command(pipeline.config, 'quarantine replay')}"
    )
    _log.warning("%s", warning)
    return warning


def _in_bronze(pipeline: Pipeline, index: BronzeIndex, rows: DataFrame) -> DataFrame:
    """Return the rows whose records bronze holds as they came, by the first offset of each partition."""
    firsts = [{"_topic": e.topic, "_partition": e.partition, "_first": e.first} for e in index.offsets()]
    held = small_frame(pipeline.spark, firsts, shape("_topic string, _partition int, _first bigint"))
    rows = rows.join(F.broadcast(held), ["_topic", "_partition"]).where("_offset >= _first")
    if (forgotten := places(pipeline)) is not None:
        rows = rows.join(forgotten.select(*COORDINATES), [*COORDINATES], "left_anti")
    return rows
