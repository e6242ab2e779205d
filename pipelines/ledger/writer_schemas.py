"""The schemas that producers wrote by, kept in the lake.

A rebuild reads bronze alone, years later and whatever became of the registry; so each schema that was
needed once is kept in `ops/writer_schemas`.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.delta.io import small_rows
from pipelines.errors import SourceError
from pipelines.formats.registered_formats import format_of, names_schemas, wire_format_of
from pipelines.ledger.ops_tables import WRITER_SCHEMAS
from pipelines.registry.schema_registry import registry_of
from pipelines.registry.wire_format import NO_WRITERS, Schemas, Writers, WriterSchema
from pipelines.spark.pipeline import Pipeline

UNREADABLE: Final = "UNREADABLE"
UNKNOWN: Final = "UNKNOWN"
NO_ID: Final = "-1"
"""The id of the row that says that some ids were taken for unknown and are not kept."""

_PASSED_OVER: Final = "PASSED_OVER"


def kept_schemas(pipeline: Pipeline) -> Schemas:
    """Return the last answer of the registry for each id.

    This includes the answers that there is no such schema, or one that cannot be used for reading.
    """
    return {schema.id: schema for schema in answers(pipeline)}


def answers(pipeline: Pipeline) -> list[WriterSchema]:
    """Return what the registry has answered, in the order of time."""
    if not WRITER_SCHEMAS.exists(pipeline):
        return []
    of_registry = F.col("registry") == registry_of(pipeline.config, pipeline.contract).identity
    rows = small_rows(WRITER_SCHEMAS.rows(pipeline).where(of_registry).orderBy("fetched_at"))
    # Rows of earlier releases have the id as a number alone.
    return [WriterSchema(row.get("schema_id") or str(row["id"]), row["kind"], row["text"]) for row in rows]


def kept_elsewhere(pipeline: Pipeline) -> dict[str, dict[str, str]]:
    """Return the texts of schemas that the lake keeps from other registries of the pipeline.

    Returns:
        By id the last text of each of these registries.
    """
    if not WRITER_SCHEMAS.exists(pipeline):
        return {}
    identity = registry_of(pipeline.config, pipeline.contract).identity
    others = F.col("registry") != identity
    texts: dict[str, dict[str, str]] = {}
    for row in small_rows(WRITER_SCHEMAS.rows(pipeline).where(others).orderBy("fetched_at")):
        if row["text"]:
            texts.setdefault(row.get("schema_id") or str(row["id"]), {})[row["registry"]] = row["text"]
    return texts


def require_same(schema: WriterSchema, identity: str, elsewhere: Mapping[str, str]) -> None:
    """Make sure that an id names the schema which it named in other registries.

    Ids are numbers that each registry gives by itself, and records in bronze name schemas by them alone.

    Args:
        schema: What a registry has answered.
        identity: Which registry that is.
        elsewhere: The texts that the lake keeps for the id, by the identities of the other registries.

    Raises:
        SourceError: It names another one.
    """
    for other, text in elsewhere.items():
        if _canonical(schema.text) != _canonical(text):
            raise SourceError(
                f"registry.url: {identity}: its schema with the id {schema.id} is another one than the lake"
                f" keeps from {other}, so records that name it would be read as something else."
                f" Set registry.url to {other} again, or import the schemas of that registry with their ids"
                " into the new one. See docs/runbook.md, 'The schema registry'"
            )


def _canonical(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def known_writers(pipeline: Pipeline) -> Writers:
    """Return the schemas that the lake has kept for the pipeline; none where values name none."""
    contract = pipeline.contract
    if not names_schemas(contract):
        return NO_WRITERS
    return Writers(fitting(kept_schemas(pipeline), contract), wire_format_of(pipeline.config, contract))


def fitting(schemas: Schemas, contract: DataContract) -> Schemas:
    """Return the schemas of the contract's format: those by which its values can be read."""
    kind = format_of(contract).schema_kind
    return {schema_id: schema for schema_id, schema in schemas.items() if schema.kind == kind}


def keep(pipeline: Pipeline, schemas: Schemas) -> None:
    """Keep what the registry has answered."""
    now = datetime.now(UTC)
    rows = [
        {
            "registry": registry_of(pipeline.config, pipeline.contract).identity,
            "id": int(s.id) if s.id == NO_ID or s.id.isdecimal() else None,
            "kind": s.kind,
            "text": s.text,
            "fetched_at": now,
            "schema_id": s.id,
        }
        for s in schemas.values()
    ]
    WRITER_SCHEMAS.append(pipeline, rows)


def keep_passed_over(pipeline: Pipeline) -> None:
    """Keep that some ids were taken for unknown which are not kept as such."""
    keep(pipeline, {NO_ID: WriterSchema(NO_ID, _PASSED_OVER, "")})
