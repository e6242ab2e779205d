"""A further value format, and the wire format of a further registry: all that they would bring."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType

from pipelines.formats.framed import frame_faults, knows_schema, with_schema_id
from pipelines.formats.value_format import DOCUMENT, DocumentFault
from pipelines.registry.wire_format import ID, WireFormat, Writers, WriterSchema

FURTHER: Final = "hex_json"
KIND: Final = "HEX"
SCHEMA_ID: Final = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"

_HEADER: Final = 18
BY_UUID: Final = WireFormat(
    schema_id=f"CASE WHEN length(_value) >= {_HEADER} AND substring(_value, 1, 2) = X'0300' THEN"
    " regexp_replace(lower(hex(substring(_value, 3, 16))),"
    " '(.{8})(.{4})(.{4})(.{4})(.{12})', '$1-$2-$3-$4-$5') END",
    payload=f"substring(_value, {_HEADER + 1})",
    header=lambda schema_id: b"\x03\x00" + UUID(schema_id).bytes,
)
"""A version, no compression, the 16 bytes of a UUID, the payload; as in the AWS Glue schema registry."""

_TYPES: Final[Mapping[str, DataType]] = {"string": StringType(), "int": IntegerType()}


class HexJson:
    """Read values that are JSON in hexadecimal, by schemas that are a line `NAME TYPE` for each column."""

    schema_kind: str | None = KIND
    java_options: Mapping[str, str] = {"hex.limit": "64"}
    jar_classes: Mapping[str, str] = {"Hex": "hex/Reader.class"}
    has_shortest_doubles = False

    def columns(self, schema_text: str) -> DataType:
        """See `ValueFormat.columns`."""
        parts = [line.split() for line in schema_text.splitlines()]
        return StructType([StructField(name, _TYPES[kind]) for name, kind in parts])

    def require_readable(self, spark: SparkSession, schema: WriterSchema) -> None:
        """See `ValueFormat.require_readable`."""
        self.columns(schema.text)

    def with_document(self, envelopes: DataFrame, writers: Writers) -> DataFrame:
        """See `ValueFormat.with_document`."""
        document = f"CASE WHEN {knows_schema(writers)} THEN {_bytes(writers.wire_format)} END AS {DOCUMENT}"
        return with_schema_id(envelopes, writers).selectExpr("*", document)

    def helper_columns(self, writers: Writers) -> tuple[str, ...]:
        """See `ValueFormat.helper_columns`."""
        return (ID, DOCUMENT)

    def document_faults(self, writers: Writers) -> list[DocumentFault]:
        """See `ValueFormat.document_faults`."""
        return [*frame_faults(writers), DocumentFault(f"{DOCUMENT} IS NULL", "undecodable")]

    def text(self, wire_format: WireFormat) -> str:
        """See `ValueFormat.text`."""
        return f"CAST({_bytes(wire_format)} AS STRING)"


def written(document: bytes, schema_id: str = SCHEMA_ID) -> bytes:
    """A value as its producers write it."""
    return BY_UUID.header(schema_id) + document.hex().encode()


def _bytes(wire_format: WireFormat) -> str:
    return f"try_to_binary(CAST({wire_format.payload} AS STRING), 'hex')"
