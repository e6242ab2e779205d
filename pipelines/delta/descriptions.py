"""Comments and properties of a Delta table, which its log keeps and every catalog and engine shows."""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from pyspark.sql import SparkSession

from pipelines.delta.conflicts import retry_conflicts
from pipelines.delta.log import newest_snapshot
from pipelines.schema_paths import delta_name
from pipelines.sql import literal

OWN_COLUMNS: Final[Mapping[str, str]] = {
    "_event_date": "Event day in the contract's time zone. The files of the table are divided by it.",
    "_topic": "Kafka topic of the record.",
    "_partition": "Kafka partition of the record.",
    "_offset": "Offset of the record in its partition.",
    "_kafka_timestamp": "Timestamp of the record in Kafka.",
    "_ingested_at": "When the record was read from Kafka. Not part of the event.",
}
"""Comments on columns that Oncelake adds to those of a contract."""


def describe_table(
    spark: SparkSession,
    path: str,
    table_comment: str,
    column_comments: Mapping[str, str],
    properties: Mapping[str, str],
) -> bool:
    """Set what differs of a table's comments and properties; return whether anything did.

    Args:
        spark: The session.
        path: The path of a Delta table.
        table_comment: What a row of it is.
        column_comments: What a column means, by its path. Columns that the table has not are
            left out; comments on other columns stay.
        properties: Its properties; those of other names stay.

    Raises:
        InfrastructureError: Others committed first at each try.
    """
    statements = list(_statements(spark, path, table_comment, column_comments, properties))
    for statement in statements:
        retry_conflicts(path, partial(spark.sql, statement))
    return bool(statements)


def _statements(
    spark: SparkSession,
    path: str,
    table_comment: str,
    column_comments: Mapping[str, str],
    properties: Mapping[str, str],
) -> Iterator[str]:
    """Yield at most two statements, each of them one commit."""
    metadata = json.loads(newest_snapshot(spark, path).metadata().json())["metaData"]
    comments = dict(_comments(json.loads(metadata["schemaString"]), ""))
    changed = [
        f"{delta_name(column)} COMMENT {literal(text)}"
        for column, text in column_comments.items()
        if column in comments and comments[column] != text
    ]
    if changed:
        yield f"ALTER TABLE delta.`{path}` ALTER COLUMN {', '.join(changed)}"
    now = {"comment": metadata.get("description") or "", **metadata.get("configuration", {})}
    pairs = [
        f"{literal(key)} = {literal(value)}"
        for key, value in {"comment": table_comment, **properties}.items()
        if now.get(key, "") != value
    ]
    if pairs:
        yield f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({', '.join(pairs)})"


def _comments(kind: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the paths of the columns of a type, as the log has it, and their comments, empty without one.

    Elements of arrays and values of maps can have no comment; what lies in them can.
    """
    match kind:
        case {"type": "struct", "fields": fields}:
            for field in fields:
                path = f"{prefix}.{field['name']}" if prefix else field["name"]
                yield path, field["metadata"].get("comment", "")
                yield from _comments(field["type"], path)
        case {"type": "array", "elementType": inner}:
            yield from _comments(inner, f"{prefix}[]")
        case {"type": "map", "valueType": inner}:
            yield from _comments(inner, f"{prefix}{{}}")
