"""The format `json`: the value is a JSON text and names no schema."""

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

from pipelines.formats.json_columns import JsonColumns
from pipelines.formats.value_format import DOCUMENT, DocumentFault
from pipelines.registry.wire_format import WireFormat, Writers, WriterSchema


class PlainJson:
    """Read values that are JSON texts."""

    schema_kind: str | None = None
    java_options: Mapping[str, str] = {}
    jar_classes: Mapping[str, str] = {}
    has_shortest_doubles = False

    def columns(self, schema_text: str) -> DataType:
        """See `ValueFormat.columns`."""
        document = json.loads(schema_text)
        return JsonColumns(document).part(document)[0]

    def require_readable(self, spark: SparkSession, schema: WriterSchema) -> None:
        """See `ValueFormat.require_readable`: JSON is read without the schema."""

    def with_document(self, envelopes: DataFrame, writers: Writers) -> DataFrame:
        """See `ValueFormat.with_document`."""
        return envelopes.selectExpr("*", f"_value AS {DOCUMENT}")

    def helper_columns(self, writers: Writers) -> tuple[str, ...]:
        """See `ValueFormat.helper_columns`."""
        return (DOCUMENT,)

    def document_faults(self, writers: Writers) -> list[DocumentFault]:
        """See `ValueFormat.document_faults`."""
        return []

    def text(self, wire_format: WireFormat) -> str:
        """See `ValueFormat.text`."""
        return "CAST(_value AS STRING)"
