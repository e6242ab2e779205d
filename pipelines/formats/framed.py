"""What formats share whose values name a schema."""

from pyspark.sql import DataFrame

from pipelines.formats.value_format import DocumentFault
from pipelines.registry.wire_format import ID, Writers
from pipelines.sql import literal


def with_schema_id(envelopes: DataFrame, writers: Writers) -> DataFrame:
    """Return envelopes with `_schema_id string`; null for a value that names no schema."""
    return envelopes.selectExpr("*", f"{writers.wire_format.schema_id} AS {ID}")


def knows_schema(writers: Writers) -> str:
    """Return an SQL condition that is true if the id is that of a known schema, and never null."""
    return f"coalesce({ID} IN ({', '.join(map(literal, writers.schemas)) or 'NULL'}), false)"


def frame_faults(writers: Writers) -> list[DocumentFault]:
    """Return what can be wrong with the id of a value."""
    return [
        DocumentFault(f"{ID} IS NULL", "no_schema_id"),
        DocumentFault(f"NOT {knows_schema(writers)}", "unknown_schema", ID),
    ]
