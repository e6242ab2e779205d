"""The serving table: the certified days as one Delta table, for engines that read no pinned version."""

import logging

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pipelines.config.commands import command
from pipelines.delta.conflicts import CONFLICTS, retry_conflicts
from pipelines.delta.epochs import StaleEpoch
from pipelines.delta.file_copies import Days, hold_days
from pipelines.delta.table_properties import SERVES, table_property
from pipelines.delta.tables import exists
from pipelines.delta.transaction import Transaction
from pipelines.errors import ConfigError, OncelakeError
from pipelines.ledger.certifications import certified
from pipelines.spark.failures import first_line
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.serving import refresh_view_or_warn

_log = logging.getLogger(__name__)


def refresh_readers_or_warn(pipeline: Pipeline) -> list[str]:
    """Let the view and the serving table show the certified state, after a run that is done.

    Returns:
        What their readers ought to know, as text; nothing if both show the certified state.
    """
    return [*refresh_view_or_warn(pipeline), *_refresh_table_or_warn(pipeline)]


def refresh_table(pipeline: Pipeline) -> None:
    """Make the serving table hold the certified days and nothing else; do nothing unless it is configured.

    It changes by one commit. Readers have what was certified before, or what is certified now.

    Raises:
        ConfigError: Another table is in its place.
        SourceError: The certified version is gone, or is not that of this batch table.
        InfrastructureError: Others wrote to it at each try.
    """
    if pipeline.config.serving.table:
        table = pipeline.config.serving_table
        retry_conflicts(table, lambda: _refresh(pipeline, table), (*CONFLICTS, StaleEpoch))


def _refresh(pipeline: Pipeline, table: str) -> None:
    spark = pipeline.spark
    if exists(spark, table) and (owner := table_property(spark, table, SERVES)) != pipeline.name:
        raise ConfigError(
            f"{table}: found a table whose property {SERVES} is {owner or 'not set'}, expected"
            f" {pipeline.name}: it is not the serving table of this pipeline. Nothing was changed. Move it"
            " away, or set serving.table to false"
        )
    # Begun before the ledger is read: of two runs, the one that knows less conflicts with the other.
    transaction = Transaction(spark, table)
    state = certified(pipeline)
    if state is not None:
        hold_days(transaction, Days(pipeline.table("batch"), state.version, state.days), pipeline.name)


def _refresh_table_or_warn(pipeline: Pipeline) -> list[str]:
    """Refresh the serving table; a failure to do so becomes a warning, as does one that nothing refreshes."""
    config = pipeline.config
    table, renew = config.serving_table, command(config, "maintain")
    try:
        refresh_table(pipeline)
        is_left_over = not config.serving.table and exists(pipeline.spark, table)
    except (PySparkException, Py4JError, OncelakeError) as error:
        warning = (
            f"serving.table: {table} could not be brought up to date and shows an earlier state:"
            f" {first_line(str(error))}; fix this, then run: {renew}"
        )
    else:
        if not is_left_over:
            return []
        warning = (
            f"serving.table: found false, and {table} from when it was true: it shows an earlier state, and"
            " what was forgotten since. Delete the folder, or set serving.table to true"
        )
    _log.warning("%s", warning)
    return [warning]
