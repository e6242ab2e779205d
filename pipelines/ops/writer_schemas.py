"""The schemas that producers wrote by, kept in the lake.

A rebuild reads bronze alone, years later and whatever became of the registry; so each schema that was
needed once is kept in `ops/writer_schemas`.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config import PipelineConfig
from pipelines.contract import DataContract
from pipelines.decode import decode
from pipelines.sinks.delta import append, read, small_rows
from pipelines.sinks.tables import ensure_table, exists, shape, small_frame
from pipelines.sources.registry import Registry, registry_of
from pipelines.sql_text import literal
from pipelines.wire import NO_WRITERS, SCHEMA_KINDS, Writers, WriterSchema, is_framed, schema_id

_TABLE: Final = "registry string, id bigint, kind string, text string, fetched_at timestamp"

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
    """The schemas that the values of a bounded frame of envelopes name, those that are known.

    Raises:
        InfrastructureError: one is neither in the lake nor to be had from the registry.
    """
    if not is_framed(contract):
        return NO_WRITERS
    named = envelopes.withColumnRenamed("value", "_value").select(F.expr(schema_id()).alias("id")).distinct()
    ids = {row["id"] for row in small_rows(named.where("id IS NOT NULL"))}
    known = known_writers(spark, config, contract)
    return {**known, **learn(spark, config, contract, ids - known.keys())}


def known_writers(spark: SparkSession, config: PipelineConfig, contract: DataContract) -> Writers:
    """The schemas of the pipeline's format that the lake has kept, by id; none for plain JSON."""
    if not is_framed(contract):
        return NO_WRITERS
    table = config.ops_table("writer_schemas")
    if not exists(spark, table):
        return NO_WRITERS
    kept = read(spark, table).where(F.col("registry") == registry_of(config, contract).url)
    found = {row["id"]: WriterSchema(row["id"], row["kind"], row["text"]) for row in small_rows(kept)}
    return _fitting(found, contract)


def learn(spark: SparkSession, config: PipelineConfig, contract: DataContract, ids: Iterable[int]) -> Writers:
    """Asks the registry for schemas and keeps them in the lake; those of another format are left out.

    Args:
        spark: the session.
        config: names the registry and the lake.
        contract: names the format.
        ids: the schemas that the lake does not know.

    Returns:
        Those that the registry knows.

    Raises:
        InfrastructureError: the registry does not answer.
    """
    wanted = sorted(ids)
    if not wanted:
        return NO_WRITERS
    config_of_registry = registry_of(config, contract)
    registry = Registry(config_of_registry)
    found = {number: schema for number in wanted if (schema := registry.schema(number))}
    checked = {number: _checked(spark, schema) for number, schema in found.items()}
    if checked:
        _keep(spark, config, config_of_registry.url, checked)
        _log.info("learned schemas %s from %s", ", ".join(map(str, checked)), config_of_registry.url)
    return _fitting(checked, contract)


def _fitting(schemas: Mapping[int, WriterSchema], contract: DataContract) -> Writers:
    kind = SCHEMA_KINDS[contract.value_format]
    return {number: schema for number, schema in schemas.items() if schema.kind == kind}


def _checked(spark: SparkSession, schema: WriterSchema) -> WriterSchema:
    """The schema; one that Spark cannot read by counts as of no kind, so that its records are put aside."""
    if schema.kind != "AVRO":
        return schema
    try:
        spark.range(0).selectExpr(f"from_avro(X'', {literal(schema.text)}, map('mode', 'PERMISSIVE'))")
    except PySparkException as error:
        _log.warning("Spark cannot read by schema %d: %s", schema.id, str(error).splitlines()[0])
        return replace(schema, kind="UNREADABLE")
    return schema


def _keep(spark: SparkSession, config: PipelineConfig, registry: str, schemas: Writers) -> None:
    table = config.ops_table("writer_schemas")
    columns = shape(_TABLE)
    ensure_table(spark, table, columns)
    now = datetime.now(UTC)
    rows = [
        {"registry": registry, "id": s.id, "kind": s.kind, "text": s.text, "fetched_at": now}
        for s in schemas.values()
    ]
    append(small_frame(spark, rows, columns), table)
