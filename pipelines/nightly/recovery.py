"""Restore the batch table to its certified version, if a run died between writing and deciding."""

import logging

from pipelines.delta.epochs import Stamp
from pipelines.delta.fenced_commits import is_as_at, restore_fenced
from pipelines.delta.fencing import Restored
from pipelines.delta.table_properties import keep_versions
from pipelines.ledger.certifications import Certified, certified, mark_certified
from pipelines.spark.pipeline import Pipeline

_log = logging.getLogger(__name__)


def back_to_certified(pipeline: Pipeline, state: Certified | None, stamp: Stamp) -> Restored:
    """Make the batch table hold the certified version, and claim it for the epoch of a stamp.

    Without a certified day it is emptied. From then on no run that held the lease before can change it.

    Args:
        pipeline: The pipeline.
        state: What is certified, read after the lease was taken.
        stamp: What the commit carries.

    Returns:
        The version of the table that holds what is certified and nothing else; and whether it was restored.

    Raises:
        StaleEpoch: Another run has taken the lease over.
        SourceError: The certified version is gone.
    """
    table = pipeline.table("batch")
    if state is not None:
        # Before a commit is made, whose clean-up of the log may take the certified version away.
        keep_versions(pipeline.spark, table)
    at = state.version if state else None
    restored = restore_fenced(pipeline.spark, table, at, stamp)
    if restored.has_differed:
        _log.warning(
            "the batch layer held days that are not certified: a run died, or others wrote to it; %s",
            "it was emptied" if at is None else f"it was restored to version {at}",
        )
    if state is not None:
        # A restored version brings the properties that it had; older verdicts have none.
        mark_certified(pipeline, state.version)
    return restored


def holds_certified(pipeline: Pipeline) -> bool:
    """Return whether the batch table holds what was certified, and nothing else."""
    state = certified(pipeline)
    return is_as_at(pipeline.spark, pipeline.table("batch"), state.version if state else None)
