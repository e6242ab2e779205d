"""The batch table is brought back to what was certified, if a run died between writing and deciding."""

import logging
from collections.abc import Sequence
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import Row, SparkSession

from pipelines.config import PipelineConfig
from pipelines.ops.certification import Certified, certified
from pipelines.sinks.delta import read, restore
from pipelines.sinks.tables import exists, keep_versions

# Commits that leave the rows as they are.
_HARMLESS: Final = frozenset(
    {"SET TBLPROPERTIES", "VACUUM START", "VACUUM END", "ADD COLUMNS", "CHANGE COLUMN", "CHANGE COLUMNS"}
)
_LOOK_BACK: Final = 50

_log = logging.getLogger(__name__)


def back_to_certified(spark: SparkSession, config: PipelineConfig, state: Certified | None) -> bool:
    """Restores the batch table to the certified version, unless it holds that already.

    Only for the holder of the pipeline's lease. Without a certified day it is emptied.

    Args:
        spark: the session.
        config: names the tables.
        state: what is certified.

    Returns:
        Whether the table had to be restored.
    """
    if state is None:
        return _emptied(spark, config.table("batch"))
    # Before a commit is made, whose clean-up of the log may take the certified version away.
    keep_versions(spark, config.table("batch"))
    if _at(spark, config.table("batch"), state.version):
        return False
    _log.warning("an earlier run left days that nobody certified; back to version %d", state.version)
    restore(spark, config.table("batch"), state.version)
    keep_versions(spark, config.table("batch"))
    return True


def holds_certified(spark: SparkSession, config: PipelineConfig) -> bool:
    """Whether the batch table holds what was certified, and nothing else."""
    state, table = certified(spark, config), config.table("batch")
    return read(spark, table).isEmpty() if state is None else _at(spark, table, state.version)


def _emptied(spark: SparkSession, table: str) -> bool:
    if not exists(spark, table) or read(spark, table).isEmpty():
        return False
    _log.warning("an earlier run left days that nobody certified; the batch layer is emptied")
    DeltaTable.forPath(spark, table).delete()
    return True


def _at(spark: SparkSession, table: str, certified_version: int) -> bool:
    newest = DeltaTable.forPath(spark, table).history(_LOOK_BACK)
    commits = newest.select("version", "operation", "operationParameters").orderBy("version", ascending=False)
    return holds(list(commits.toLocalIterator()), certified_version)


def holds(commits: Sequence[Row], certified_version: int) -> bool:
    """Whether a table holds the rows of the certified version.

    Args:
        commits: `version, operation, operationParameters` of its newest commits, the newest first.
        certified_version: the version.
    """
    by_version = {commit["version"]: commit for commit in commits}
    at = commits[0]["version"]
    while at != certified_version:
        commit = by_version.get(at)
        if commit is not None and commit["operation"] == "RESTORE":
            at = int(commit["operationParameters"]["version"])
        elif commit is not None and commit["operation"] in _HARMLESS:
            at -= 1
        else:
            return False
    return True
