"""The batch table's own word of what was certified of it, by which a ledger is known that lost verdicts.

It is set after a verdict, never before: a run that died before it decided leaves none, and what it wrote is
taken back. A mark that is missing, or older than the verdicts, says nothing; the next run sets it.
"""

import logging
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pipelines.config.model import PipelineConfig
from pipelines.delta.tables import exists, set_table_property, table_property
from pipelines.errors import SourceError
from pipelines.spark.failures import first_line
from pipelines.spark.pipeline import Pipeline

CERTIFIED: Final = "oncelake.certified"
"""The property of the batch table that keeps the highest of its versions that was certified."""

_log = logging.getLogger(__name__)


def certified_mark(pipeline: Pipeline) -> int | None:
    """The highest version of the batch table that was certified, as it says itself; None if it does not."""
    table = pipeline.table("batch")
    kept = table_property(pipeline.spark, table, CERTIFIED) if exists(pipeline.spark, table) else None
    return None if kept is None else int(kept)


def mark_certified(pipeline: Pipeline, version: int) -> None:
    """Lets the batch table say that a version of it is certified, if it does not.

    Readers go by the verdicts, so that it cannot be said changes nothing of how a run ends.
    """
    try:
        if (certified_mark(pipeline) or -1) < version:
            set_table_property(pipeline.spark, pipeline.table("batch"), CERTIFIED, str(version))
    except (PySparkException, Py4JError) as error:
        _log.warning(
            "%s: the property %s is not set to %d, which the next run does: %s",
            *(pipeline.table("batch"), CERTIFIED, version, first_line(str(error))),
        )


def require_ledger(config: PipelineConfig, mark: int | None, certified: int | None) -> None:
    """Makes sure that the ledger knows what was certified of the batch table.

    Args:
        config: names the tables.
        mark: what the batch table said, before the ledger was read.
        certified: the highest version of the batch table of which the ledger says so; None if of none.

    Raises:
        SourceError: verdicts are gone.
    """
    if mark is None or (certified is not None and certified >= mark):
        return
    found = "no verdict" if certified is None else f"verdicts up to version {certified}"
    raise SourceError(
        f"{config.ops_table('certifications')}: verdicts on {config.name} are gone: found {found}, but"
        f" {config.table('batch')} says that its version {mark} was certified. The ledger was removed, or put"
        " back from an older backup. Nothing was changed, so that no certified day is lost. Put both folders"
        " back as they were at one time, or begin anew: see docs/runbook.md, 'Verdicts are gone'"
    )
