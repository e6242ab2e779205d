"""A look at the rows that a stage has not read, for the dedup keys that make one of its tasks long.

All rows of a dedup key go to one task: in `speed_stream` by the state, in `publish_stream` by the partition
of the output topic. A stage whose tasks are even costs no look.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipelines.config.streams import TableQuery
from pipelines.contracts.contract import DataContract
from pipelines.delta.io import small_rows
from pipelines.delta.sampled_rows import MOST_ROWS, sampled_rows
from pipelines.errors import SourceError
from pipelines.lag.causes import find_cause
from pipelines.lag.stage_facts import DedupKeySample, FrequentDedupKey, StageFacts
from pipelines.ledger.forgotten import not_emptied
from pipelines.ledger.writer_schemas import known_writers
from pipelines.records.decode import COORDINATES, VALID, decode
from pipelines.records.dedup import with_key_columns
from pipelines.records.redaction import text_of
from pipelines.schema_paths import flat
from pipelines.spark.failures import cause
from pipelines.spark.few_rows import sized_for
from pipelines.spark.pipeline import Pipeline
from pipelines.sql import name

_MOST_KEYS: Final = 3

_log = logging.getLogger(__name__)


def keys_looked_at(pipeline: Pipeline, facts: StageFacts, query: TableQuery) -> StageFacts:
    """Return what is known of a stage that reads a table, with dedup keys if a task of it is long.

    Args:
        pipeline: The pipeline.
        facts: What is known of the stage.
        query: Its query.
    """
    if find_cause(facts).cause != "skew":
        return facts
    try:
        return replace(facts, dedup_keys=dedup_keys(pipeline, query))
    except SourceError as error:
        failure = str(error)
    except (PySparkException, Py4JJavaError) as error:
        failure = cause(error)
    _log.warning("the dedup keys that %s reads are unknown: %s", query, failure)
    return facts


def dedup_keys(pipeline: Pipeline, query: TableQuery) -> DedupKeySample | None:
    """Return the most frequent dedup keys of some rows that a stage has not read, or has read last.

    Args:
        pipeline: The pipeline.
        query: The query of the stage.

    Returns:
        None if there are no such rows.

    Raises:
        SourceError: A commit of the table is damaged.
    """
    rows = sampled_rows(pipeline, query)
    if rows is None:
        return None
    with sized_for(pipeline, MOST_ROWS):
        counted = small_rows(_counted(_events(pipeline, query, rows), pipeline.contract))
    keys = tuple(_frequent(pipeline.contract, each) for each in counted if each[VALID])
    return DedupKeySample(counted[0]["_total"], keys[:_MOST_KEYS]) if counted else None


def _frequent(contract: DataContract, row: Mapping[str, Any]) -> FrequentDedupKey:
    return FrequentDedupKey(_shown(contract, row["_parts"]), row["_count"] / row["_total"], row["_place"])


def _events(pipeline: Pipeline, query: TableQuery, rows: DataFrame) -> DataFrame:
    """Return rows with the contract's columns, and whether they are events."""
    if query == "publish":
        return rows.withColumn(VALID, F.lit(True))
    # As the stream, it reads by the schemas that the lake has, and asks no registry.
    max_future = pipeline.config.decode.max_future
    return decode(not_emptied(rows), pipeline.contract, max_future, known_writers(pipeline))


def _counted(events: DataFrame, contract: DataContract) -> DataFrame:
    """Return the most frequent keys, and with them all records that break the contract, as one."""
    # No column of a contract begins with _, so no key has the name of what is counted.
    keys = list(contract.key_names)
    kinds = flat(contract.schema)
    parts = (
        text_of(contract, path, kinds[path].dataType, name(key))
        for key, path in zip(keys, contract.key, strict=True)
    )
    place = F.min(F.struct(*COORDINATES)).alias("_place")
    keyed = with_key_columns(events, contract).select(
        VALID, *(F.when(F.col(VALID), F.col(name(key))).alias(key) for key in keys), *COORDINATES
    )
    return (
        keyed.groupBy(VALID, *map(name, keys))
        .agg(F.count(F.lit(1)).alias("_count"), place)
        .withColumn("_total", F.sum("_count").over(Window.partitionBy()))
        .orderBy(F.col("_count").desc(), "_place")
        .limit(_MOST_KEYS + 1)
        .selectExpr(
            VALID,
            "_count",
            "_total",
            "concat(_place._topic, '-', _place._partition, '@', _place._offset) AS _place",
            f"array({', '.join(parts)}) AS _parts",
        )
    )


def _shown(contract: DataContract, parts: Sequence[str | None]) -> str | None:
    """Return a key as `oncelake explain` takes it, as far as it may be shown; None if no part may be."""
    named = zip(contract.key, parts, strict=True)
    shown = [path if value is None else f"{path}={value}" for path, value in named]
    return None if all(value is None for value in parts) else " ".join(shown)
