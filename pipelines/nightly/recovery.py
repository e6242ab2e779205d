"""The batch table is brought back to what was certified, if a run died between writing and deciding."""

import logging

from pyspark.sql import SparkSession

from pipelines.config.model import PipelineConfig
from pipelines.delta.fenced_commits import is_as_at, restore_fenced
from pipelines.delta.tables import keep_versions
from pipelines.ledger.certifications import Certified, certified
from pipelines.ledger.certified_mark import mark_certified
from pipelines.ledger.leases import Lease

_log = logging.getLogger(__name__)


def back_to_certified(
    spark: SparkSession, config: PipelineConfig, state: Certified | None, held: Lease
) -> tuple[int, bool]:
    """Makes the batch table hold the certified version, and claims it for the holder of the lease.

    Without a certified day it is emptied. From then on no run that held the lease before can change it.

    Args:
        spark: the session.
        config: names the tables.
        state: what is certified, read after the lease was taken.
        held: the pipeline's lease.

    Returns:
        The version of the table that holds what is certified and nothing else, and whether it had to be put
        back.

    Raises:
        StaleEpoch: another run has taken the lease over.
        SourceError: the certified version is gone.
    """
    table = config.table("batch")
    if state is not None:
        # Before a commit is made, whose clean-up of the log may take the certified version away.
        keep_versions(spark, table)
    at = state.version if state else None
    made, restored = restore_fenced(spark, table, at, held.stamp("undo"))
    if restored:
        _log.warning(
            "the batch layer held days that nobody certified: a run died, or others wrote; %s",
            "it is emptied" if at is None else f"back to version {at}",
        )
    if state is not None:
        # A version that was put back brings the properties that it had, as verdicts of before have none.
        mark_certified(spark, config, state.version)
    return made, restored


def holds_certified(spark: SparkSession, config: PipelineConfig) -> bool:
    """Whether the batch table holds what was certified, and nothing else."""
    state = certified(spark, config)
    return is_as_at(spark, config.table("batch"), state.version if state else None)
