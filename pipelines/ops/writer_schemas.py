"""The schemas that producers wrote by, kept in the lake.

A rebuild reads bronze alone, years later and whatever became of the registry; so each schema that was
needed once is kept in `ops/writer_schemas`.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config import PipelineConfig
from pipelines.contract import DataContract
from pipelines.decode import decode
from pipelines.documents import check_readable
from pipelines.errors import InfrastructureError
from pipelines.ops.failures import cause
from pipelines.sinks.delta import append, read, small_rows
from pipelines.sinks.tables import ensure_table, exists, shape, small_frame
from pipelines.sources.registry import Registry, registry_of
from pipelines.wire import (
    NO_WRITERS,
    SCHEMA_KINDS,
    Writers,
    WriterSchema,
    is_framed,
    schema_id,
)

_TABLE: Final = "pipeline string, registry string, id bigint, kind string, text string, fetched_at timestamp"
_UNREADABLE: Final = "UNREADABLE"
_UNKNOWN: Final = "UNKNOWN"

_log = logging.getLogger(__name__)


def decode_all(
    spark: SparkSession, config: PipelineConfig, contract: DataContract, envelopes: DataFrame
) -> DataFrame:
    """Decodes a bounded frame of envelopes by the schemas that its values name; see `pipelines.decode`.

    Raises:
        InfrastructureError: a schema is neither in the lake nor to be had from the registry.
    """
    return decode(
        envelopes, contract, config.decode.max_future, writers_of(spark, config, contract, envelopes)
    )


def writers_of(
    spark: SparkSession, config: PipelineConfig, contract: DataContract, envelopes: DataFrame
) -> Writers:
    """The schemas that the values of a bounded frame of envelopes name, those that can be read by.

    What the registry did not know, or Spark could not read by, is asked for again, and nothing waits for it.

    Raises:
        InfrastructureError: one is neither in the lake nor to be had from the registry.
    """
    if not is_framed(contract):
        return NO_WRITERS
    named = envelopes.withColumnRenamed("value", "_value").select(F.expr(schema_id()).alias("id")).distinct()
    ids = {row["id"] for row in small_rows(named.where("id IS NOT NULL"))}
    kept = _kept(spark, config, contract)
    new = learn(spark, config, contract, ids - kept.keys())
    unusable = {number for number in ids & kept.keys() if kept[number].kind in (_UNKNOWN, _UNREADABLE)}
    try:
        new = {**new, **learn(spark, config, contract, unusable)}
    except InfrastructureError as error:
        _log.warning("%d ids stay unknown, or unreadable: %s", len(unusable), error)
    usable = {**_fitting(kept, contract), **new}
    return {number: usable[number] for number in sorted(ids & usable.keys())}


def ask_again(spark: SparkSession, config: PipelineConfig, contract: DataContract) -> tuple[int, ...]:
    """Asks the registry for the schemas that it did not know before, or that Spark could not read by.

    Returns:
        The ids of those that can be read by since they were asked for first, today or earlier.
    """
    if not is_framed(contract):
        return ()
    unusable = {_UNKNOWN, _UNREADABLE}
    unknown = {n for n, schema in _kept(spark, config, contract).items() if schema.kind in unusable}
    try:
        learn(spark, config, contract, unknown)
    except InfrastructureError as error:
        _log.warning("%d ids stay unknown: %s", len(unknown), error)
    kinds: dict[int, list[str]] = {}
    for schema in _answers(spark, config, contract):
        kinds.setdefault(schema.id, []).append(schema.kind)
    return tuple(n for n in sorted(kinds) if unusable & {*kinds[n]} and kinds[n][-1] not in unusable)


def known_writers(spark: SparkSession, config: PipelineConfig, contract: DataContract) -> Writers:
    """The schemas that the lake has kept for the pipeline, by id; none for plain JSON."""
    return _fitting(_kept(spark, config, contract), contract) if is_framed(contract) else NO_WRITERS


def learn(spark: SparkSession, config: PipelineConfig, contract: DataContract, ids: Iterable[int]) -> Writers:
    """Asks the registry for schemas and keeps in the lake what it answers, also that it has none.

    Args:
        spark: the session.
        config: names the registry and the lake.
        contract: names the format.
        ids: the schemas that are asked for.

    Returns:
        Those that the registry has in the contract's format.

    Raises:
        InfrastructureError: the registry does not answer; what it answered before is kept.
    """
    wanted = sorted(ids)
    if not wanted:
        return NO_WRITERS
    url = registry_of(config, contract).url
    registry = Registry(registry_of(config, contract))
    answers: dict[int, WriterSchema] = {}
    try:
        for number in wanted:
            found = registry.schema(number)
            answers[number] = _checked(spark, found) if found else WriterSchema(number, _UNKNOWN, "")
    finally:
        kept = _kept(spark, config, contract)
        if news := {number: found for number, found in answers.items() if kept.get(number) != found}:
            _keep(spark, config, url, news)
    fitting = _fitting(answers, contract)
    _log.info("asked %s for %d schemas, and can read by %d", url, len(wanted), len(fitting))
    return fitting


def _kept(spark: SparkSession, config: PipelineConfig, contract: DataContract) -> Writers:
    return {schema.id: schema for schema in _answers(spark, config, contract)}


def _answers(spark: SparkSession, config: PipelineConfig, contract: DataContract) -> list[WriterSchema]:
    """What the registry has answered, in the order of time."""
    table = config.ops_table("writer_schemas")
    if not exists(spark, table):
        return []
    of_pipeline = (F.col("pipeline") == config.name) & (
        F.col("registry") == registry_of(config, contract).url
    )
    rows = small_rows(read(spark, table).where(of_pipeline).orderBy("fetched_at"))
    return [WriterSchema(row["id"], row["kind"], row["text"]) for row in rows]


def _fitting(schemas: Writers, contract: DataContract) -> Writers:
    kind = SCHEMA_KINDS[contract.value_format]
    return {number: schema for number, schema in schemas.items() if schema.kind == kind}


def _checked(spark: SparkSession, schema: WriterSchema) -> WriterSchema:
    """The schema; one that Spark cannot read by counts as of no kind, so that its records are put aside."""
    if schema.kind != "AVRO":
        return schema
    try:
        check_readable(spark, schema)
    except (PySparkException, Py4JJavaError, ValueError, TypeError, AttributeError, RecursionError) as error:
        # Spark has errors of its own for some schemas, hands on those of Avro for others, and a text from
        # elsewhere may have any shape.
        _log.warning("Spark cannot read by schema %d: %s", schema.id, cause(error))
        return replace(schema, kind=_UNREADABLE)
    return schema


def _keep(spark: SparkSession, config: PipelineConfig, registry: str, schemas: Writers) -> None:
    table = config.ops_table("writer_schemas")
    columns = shape(_TABLE)
    ensure_table(spark, table, columns)
    now = datetime.now(UTC)
    rows = [
        {
            "pipeline": config.name,
            "registry": registry,
            "id": s.id,
            "kind": s.kind,
            "text": s.text,
            "fetched_at": now,
        }
        for s in schemas.values()
    ]
    append(small_frame(spark, rows, columns), table)
