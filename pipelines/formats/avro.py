"""The format `avro`: an Avro value behind the id of the schema that it was written by."""

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

from pipelines.formats.avro_columns import AvroColumns
from pipelines.formats.avro_to_json import as_json, as_read, has_broken_text
from pipelines.formats.framed import frame_faults, with_schema_id
from pipelines.formats.value_format import DOCUMENT, DocumentFault
from pipelines.registry.wire_format import ID, Schemas, WireFormat, Writers, WriterSchema
from pipelines.sql import literal

_TEXT: Final = "_text"
_BROKEN_TEXT: Final = "_broken_text"
# What lies around the value in `{"r":VALUE}`; without a value the text is `{}`.
_BEFORE, _BEHIND = len('{"r":'), len("}")


class Avro:
    """Read values that are Avro in a schema registry's wire format."""

    schema_kind: str | None = "AVRO"
    # A broken payload may announce a text of two billion bytes, and one such record would end the JVM.
    java_options: Mapping[str, str] = {
        "org.apache.avro.limits.string.maxLength": str(64 * 2**20),
        "org.apache.avro.limits.bytes.maxLength": str(64 * 2**20),
        "org.apache.avro.limits.collectionItems.maxLength": "1000000",
    }
    jar_classes: Mapping[str, str] = {"Avro": "org/apache/spark/sql/avro/AvroDataToCatalyst.class"}
    has_shortest_doubles = True

    def columns(self, schema_text: str) -> DataType:
        """See `ValueFormat.columns`."""
        return AvroColumns().kind(json.loads(schema_text), "")

    def require_readable(self, spark: SparkSession, schema: WriterSchema) -> None:
        """See `ValueFormat.require_readable`."""
        values = spark.range(0).selectExpr("X'' AS _value")
        read = values.selectExpr(f"{as_read(schema.text, '_value')} AS _read")
        document = read.selectExpr("*", f"{as_json(schema.text, '_read')} AS {_TEXT}")
        document.selectExpr(has_broken_text(schema.text, "_read", _TEXT))

    def with_document(self, envelopes: DataFrame, writers: Writers) -> DataFrame:
        """See `ValueFormat.with_document`."""
        # Each has a column of its own, since each has a type of its own; and a column is computed once.
        schemas, payload = writers.schemas, writers.wire_format.payload
        columns = _columns(schemas)
        read = (
            f"CASE WHEN {ID} = {literal(i)} THEN {as_read(s.text, payload)} END AS {columns[i]}"
            for i, s in schemas.items()
        )
        documents = {i: as_json(s.text, columns[i]) for i, s in schemas.items()}
        broken = {i: has_broken_text(s.text, columns[i], _TEXT) for i, s in schemas.items()}
        length = f"length({_TEXT}) - {_BEFORE + _BEHIND}"
        value = f"IF({_TEXT} = '{{}}', 'null', substring({_TEXT}, {_BEFORE + 1}, {length}))"
        return (
            with_schema_id(envelopes, writers)
            .selectExpr("*", *read)
            .selectExpr("*", f"CAST({_by_id(documents)} AS STRING) AS {_TEXT}")
            .selectExpr("*", f"CAST({_by_id(broken)} AS BOOLEAN) AS {_BROKEN_TEXT}")
            .selectExpr("*", f"CAST({value} AS BINARY) AS {DOCUMENT}")
        )

    def helper_columns(self, writers: Writers) -> tuple[str, ...]:
        """See `ValueFormat.helper_columns`."""
        return (ID, *_columns(writers.schemas).values(), _TEXT, _BROKEN_TEXT, DOCUMENT)

    def document_faults(self, writers: Writers) -> list[DocumentFault]:
        """See `ValueFormat.document_faults`."""
        undecodable = DocumentFault(f"{_TEXT} IS NULL OR {_BROKEN_TEXT}", "undecodable")
        return [*frame_faults(writers), undecodable]

    def text(self, wire_format: WireFormat) -> None:
        """See `ValueFormat.text`."""
        return


def _columns(schemas: Schemas) -> dict[str, str]:
    """Return a column for each id; an id itself may be no name of a column."""
    return {schema_id: f"_avro_{position}" for position, schema_id in enumerate(schemas)}


def _by_id(expressions: Mapping[str, str]) -> str:
    """Return SQL for the expression of the id's schema; null for other ids."""
    if not expressions:
        return "NULL"
    return f"CASE {ID} {' '.join(f'WHEN {literal(n)} THEN {sql}' for n, sql in expressions.items())} END"
