"""The state store of the deduplication: one that is not scanned in each micro-batch, else Spark's own."""

import logging
from datetime import timedelta
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from pipelines.config.model import PipelineConfig
from pipelines.spark.checkpoints import change_kept_setting

PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
SPARKS_OWN: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
NOT_SCANNED: Final = "oncelake.state.DeduplicationStateProvider"
MADE_FOR: Final = "4.2."
"""Whose operator calls `iterator` for nothing but eviction."""

_SLACK_MS: Final = "spark.sql.streaming.stateStore.oncelake.evictionSlackMs"

_log = logging.getLogger(__name__)


def use_state_store(spark: SparkSession, config: PipelineConfig) -> list[str]:
    """Choose the state store of queries that are started from now on, and have the checkpoint keep that one.

    A store that `spark.conf` names is used. Of two stores with the same files, the one that the checkpoint
    keeps is changed; with any other, Spark goes on with the one that the checkpoint was made with.

    Args:
        spark: The session.
        config: Of the pipeline, whose speed query must not run.

    Returns:
        A warning, if Spark's own store takes the place of ours.
    """
    asked = config.spark.conf.get(PROVIDER)
    why = None if asked else missing(spark)
    chosen = asked or (SPARKS_OWN if why else NOT_SCANNED)
    spark.conf.set(PROVIDER, chosen)
    spark.conf.set(_SLACK_MS, str(config.speed.eviction_slack // timedelta(milliseconds=1)))
    if chosen in (SPARKS_OWN, NOT_SCANNED):
        same_files = dict.fromkeys((SPARKS_OWN, NOT_SCANNED), chosen)
        change_kept_setting(spark, config.checkpoint("speed"), PROVIDER, same_files)
    if not why:
        return []
    warning = f"state: Spark's own state store is used, which each micro-batch scans as a whole: {why}"
    _log.warning("%s; see docs/runbook.md, 'The state store'", warning)
    return [warning]


def missing(spark: SparkSession) -> str | None:
    """Return why our store cannot be used; None if it can."""
    if not spark.version.startswith(MADE_FOR):
        return f"Oncelake's is made for Spark {MADE_FOR}*, and this is {spark.version}"
    jvm: Any = spark.sparkContext._jvm
    try:
        return str(jvm.oncelake.state.Capability.missing()) or None
    except (Py4JError, TypeError) as error:
        return f"Oncelake's is not on the class path ({error}); add --jars $(oncelake jars --list)"
