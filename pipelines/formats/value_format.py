"""What a value format must offer. Whatever the format, what is decoded is JSON text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

from pipelines.registry.wire_format import WireFormat, Writers, WriterSchema

DOCUMENT: Final = "_document"

DocumentReason = Literal["malformed_json", "no_schema_id", "unknown_schema", "undecodable"]


@dataclass(frozen=True)
class DocumentFault:
    """What can be wrong with a value before its fields are read.

    Attributes:
        condition: SQL over the columns that `ValueFormat.with_document` adds; true if it is wrong.
        reason: The reason for quarantine.
        found: SQL for what was found, if it says more than the reason.
    """

    condition: str
    reason: DocumentReason
    found: str | None = None


class ValueFormat(Protocol):
    """How the bytes of a value are read. `pipelines.formats.registered_formats` lists the formats.

    Attributes:
        schema_kind: The registry's kind of the schemas that values name; None if values name no schema.
        java_options: System properties that each JVM that decodes values needs.
        jar_classes: A class file of each further jar that it needs, by what messages call the jar.
        has_shortest_doubles: Whether a double is sent as the shortest decimal number that is read as itself,
            so that an exponent in it means nothing.
    """

    schema_kind: str | None
    java_options: Mapping[str, str]
    jar_classes: Mapping[str, str]
    has_shortest_doubles: bool

    def columns(self, schema_text: str) -> DataType:
        """Return the type that values of a schema have once they are JSON.

        Args:
            schema_text: The schema, as the registry has it.

        Raises:
            JSONDecodeError: The schema is no JSON, in which schemas of this format are written.
            ValueError, TypeError, AttributeError, KeyError, RecursionError: Values cannot be read by it.
        """
        ...

    def require_readable(self, spark: SparkSession, schema: WriterSchema) -> None:
        """Make sure that Spark can read values by a schema.

        Raises:
            PySparkException, Py4JJavaError, ValueError, TypeError, AttributeError, RecursionError: It cannot.
        """
        ...

    def with_document(self, envelopes: DataFrame, writers: Writers) -> DataFrame:
        """Return envelopes with `_document binary`, which is JSON, and what `document_faults` looks at.

        The document is null for a value of which `document_faults` names a fault.

        Args:
            envelopes: Rows with `_value binary`.
            writers: The schemas that are known, and how values name them.
        """
        ...

    def helper_columns(self, writers: Writers) -> tuple[str, ...]:
        """Return the columns that `with_document` adds."""
        ...

    def document_faults(self, writers: Writers) -> list[DocumentFault]:
        """Return what can be wrong, in the order in which it is looked for."""
        ...

    def text(self, wire_format: WireFormat) -> str | None:
        """Return SQL over `_value` for the JSON text that was sent; None if values are no text."""
        ...
