"""Records that were replayed, and that a later contract refuses.

The mark of a replayed record says that readers have its event. A rebuild decides by the contract alone, so
under a stricter contract, or an earlier one, it takes the event out of its day. The record is then broken
like any other, and unresolved.
"""

import logging

from pyspark.sql import functions as F

from pipelines.config.commands import command
from pipelines.delta.record_tables import QUARANTINE, ensure_quarantine
from pipelines.delta.tables import conform, exists, shape, version
from pipelines.ledger.decoding import decode_all, decoding_key
from pipelines.ledger.forgotten_places import places
from pipelines.ledger.quarantine import Selection, mark_broken, picked, update_rows
from pipelines.records.decode import COORDINATES, ENVELOPE, ORIGIN, VALID
from pipelines.spark.pipeline import Pipeline

REPLAYED_BY = "_replayed_by"
"""The column that has the `decoding_key` by which a replayed record was valid."""

_log = logging.getLogger(__name__)


def reopen_refused(pipeline: Pipeline) -> str | None:
    """Make replayed records unresolved again that the contract refuses now; the caller holds the lease.

    Records are decoded again only if the contract, or what else decides, has changed since they were valid.

    Returns:
        What was found, for people; None if the contract refuses none.

    Raises:
        InfrastructureError: a schema is neither in the lake nor to be had from the registry; or others
            changed the same rows at each try.
    """
    spark, table = pipeline.spark, pipeline.table("quarantine")
    if not exists(spark, table):
        return None
    key = decoding_key(pipeline)
    replayed = conform(picked(pipeline, Selection("replayed"), version(spark, table)), shape(QUARANTINE))
    unsure = replayed.where(~F.col(REPLAYED_BY).eqNullSafe(F.lit(key))).dropDuplicates(list(COORDINATES))
    if (forgotten := places(pipeline)) is not None:
        unsure = unsure.join(forgotten.select(*COORDINATES), [*COORDINATES], "left_anti")
    if unsure.isEmpty():
        return None
    ensure_quarantine(pipeline)
    records = decode_all(pipeline, unsure.select(*ENVELOPE, *ORIGIN), retries_passed_over=True).persist()
    try:
        refused = records.where(~F.col(VALID))
        if count := refused.count():
            mark_broken(pipeline, refused, "replayed")
        valid = records.where(VALID).select(*COORDINATES)
        update_rows(pipeline, valid, "replayed", {REPLAYED_BY: F.lit(key)})
    finally:
        records.unpersist()
    if not count:
        return None
    warning = (
        f"{table}: {count:,} replayed records break the contract now, so they are unresolved again, and a"
        " rebuild removes their events. If an earlier contract is in use by mistake, deploy the right one and"
        f" run {command(pipeline.config, 'quarantine replay')}"
    )
    _log.warning("%s", warning)
    return warning
