"""The table of the schemas that producers wrote by, `ops/writer_schemas`."""

from datetime import UTC, datetime
from typing import Final

from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.delta.io import append, read, small_rows
from pipelines.delta.tables import ensure_table, exists, shape, small_frame
from pipelines.registry.client import registry_of
from pipelines.registry.wire_format import SCHEMA_KINDS, Writers, WriterSchema
from pipelines.spark.pipeline import Pipeline

UNREADABLE: Final = "UNREADABLE"
UNKNOWN: Final = "UNKNOWN"
NO_ID: Final = -1
"""The id of the row that says that some ids were taken for unknown and are not kept."""

_PASSED_OVER: Final = "PASSED_OVER"
_TABLE: Final = "pipeline string, registry string, id bigint, kind string, text string, fetched_at timestamp"


def kept_schemas(pipeline: Pipeline) -> Writers:
    """What the registry has answered last, by id; also that it has none, or one that cannot be read by."""
    return {schema.id: schema for schema in answers(pipeline)}


def answers(pipeline: Pipeline) -> list[WriterSchema]:
    """What the registry has answered, in the order of time."""
    table = pipeline.ops_table("writer_schemas")
    if not exists(pipeline.spark, table):
        return []
    of_pipeline = (F.col("pipeline") == pipeline.config.name) & (
        F.col("registry") == registry_of(pipeline.config, pipeline.contract).url
    )
    rows = small_rows(read(pipeline.spark, table).where(of_pipeline).orderBy("fetched_at"))
    return [WriterSchema(row["id"], row["kind"], row["text"]) for row in rows]


def fitting(schemas: Writers, contract: DataContract) -> Writers:
    """Those of the contract's format, which can be read by."""
    kind = SCHEMA_KINDS[contract.value_format]
    return {number: schema for number, schema in schemas.items() if schema.kind == kind}


def keep(pipeline: Pipeline, schemas: Writers) -> None:
    """Keeps what the registry has answered."""
    table = pipeline.ops_table("writer_schemas")
    columns = shape(_TABLE)
    ensure_table(pipeline.spark, table, columns)
    now = datetime.now(UTC)
    rows = [
        {
            "pipeline": pipeline.config.name,
            "registry": registry_of(pipeline.config, pipeline.contract).url,
            "id": s.id,
            "kind": s.kind,
            "text": s.text,
            "fetched_at": now,
        }
        for s in schemas.values()
    ]
    append(small_frame(pipeline.spark, rows, columns), table)


def keep_passed_over(pipeline: Pipeline) -> None:
    """Keeps that some ids were taken for unknown which are not kept as such."""
    keep(pipeline, {NO_ID: WriterSchema(NO_ID, _PASSED_OVER, "")})
