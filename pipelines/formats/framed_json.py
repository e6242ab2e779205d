"""The format `json_schema`: a JSON text behind the id of a JSON Schema."""

from pyspark.sql import DataFrame

from pipelines.formats.framed import frame_faults, knows_schema, with_schema_id
from pipelines.formats.plain_json import PlainJson
from pipelines.formats.value_format import DOCUMENT, DocumentFault
from pipelines.registry.wire_format import ID, WireFormat, Writers


class FramedJson(PlainJson):
    """Read values that are JSON texts in a schema registry's wire format."""

    schema_kind: str | None = "JSON"

    def with_document(self, envelopes: DataFrame, writers: Writers) -> DataFrame:
        """See `ValueFormat.with_document`."""
        payload = writers.wire_format.payload
        return with_schema_id(envelopes, writers).selectExpr(
            "*", f"CASE WHEN {knows_schema(writers)} THEN {payload} END AS {DOCUMENT}"
        )

    def helper_columns(self, writers: Writers) -> tuple[str, ...]:
        """See `ValueFormat.helper_columns`."""
        return (ID, DOCUMENT)

    def document_faults(self, writers: Writers) -> list[DocumentFault]:
        """See `ValueFormat.document_faults`."""
        return frame_faults(writers)

    def text(self, wire_format: WireFormat) -> str:
        """See `ValueFormat.text`."""
        return f"CAST({wire_format.payload} AS STRING)"
